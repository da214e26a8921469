"""Spans that wait in the state, on the bench: for a receiver that fails, refuses, or is not there yet."""

import logging
from collections.abc import Sequence
from unittest.mock import Mock

import msgspec
import pytest

from exporter.model.jobs import Span, SpanEvent, TraceJobs
from exporter.model.lifecycle import Effects, WatchState
from exporter.otlp.worker import FACTS_SECONDS, LONGEST_WAIT, ExportOutcome
from exporter.simulator import Fault
from exporter.state.jobs import CAPACITY
from tests.bench import Bench, Build
from tests.builders import raw_event
from tests.clocks import NOW
from tests.state_support import alter, stage

ON = "tracing: {enabled: true}"
REFUSED = ExportOutcome(problem="status 400", refused=True)
DOWN = ExportOutcome(problem="Connection refused")


def span(name: str) -> Span:
    return Span(name, "1" * 32, f"{abs(hash(name)):x}".zfill(16)[:16], "", NOW, NOW, {"n": 1, "of": ("a",)})


def put(bench: Bench, *spans: Span | str) -> None:
    stage(bench.app._store, [span(one) if isinstance(one, str) else one for one in spans])
    bench.app._pipeline._tracer.wake()
    bench.loops.settle()


def names(bench: Bench) -> list[str]:
    return [one.name for one in bench.receiver.spans]


def counted(bench: Bench) -> tuple[float | None, float | None]:
    return bench.metric("spans_total", outcome="exported"), bench.metric("spans_total", outcome="dropped")


@pytest.fixture
def bench(build: Build) -> Bench:
    bench: Bench = build(ON)
    return bench


def test_what_cannot_be_read(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged span is dropped alone, and logged."""
    bench.receiver.problem = "down"
    put(bench, "a")
    put(bench, "b")
    bench.app.stop()
    bench.receiver.problem = ""
    alter(bench.state, "UPDATE entries SET value = '{' WHERE value LIKE '%\"name\":\"a\"%'")
    bench.start()
    bench.advance(1)
    assert (names(bench), counted(bench)) == (["b"], (1, 1))
    assert "job in the state file cannot be decoded" in caplog.text


def test_the_number_is_bounded(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """While a receiver is down for long the oldest spans are dropped; the rest goes in growing batches."""
    bench.receiver.problem = "down"
    put(bench, "first", "second")
    put(bench, *(str(number) for number in range(CAPACITY - 1)), "last")
    assert counted(bench) == (0, 2)
    assert "spans dropped" in caplog.text
    put(bench, *(f"x{number}" for number in range(CAPACITY + 5)))
    assert counted(bench) == (0, 2 + CAPACITY + 5)
    bench.receiver.problem = ""
    bench.receiver.answer = answer = Mock(side_effect=bench.receiver.answer)
    bench.advance(300)
    sizes = [len(call.args[0]) for call in answer.mock_calls]
    assert (sizes[:3], max(sizes)) == ([1, 2, 4], 512)
    assert names(bench) == [f"x{number}" for number in range(5, CAPACITY + 5)]


def test_spans_that_are_too_old(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """What no receiver has accepted for a day is dropped, and what is newer is not."""
    bench.receiver.problem = "down"
    put(bench, "old")
    bench.clock.pass_seconds(LONGEST_WAIT.total_seconds() + 1)
    bench.receiver.problem = ""
    put(bench, msgspec.structs.replace(span("new"), end=bench.clock.now() - LONGEST_WAIT))
    assert (names(bench), counted(bench)) == (["new"], (1, 1))
    assert "spans dropped" in caplog.text


@pytest.mark.parametrize("outcome", [REFUSED, DOWN])
def test_a_span_that_the_receiver_does_not_take(build: Build, outcome: ExportOutcome) -> None:
    """It costs no other: one that is refused for good is dropped, one that fails is exported in the end."""
    bench = build(f"{ON}\nimds: {{poll_interval: 1h}}")

    def answer(spans: Sequence[Span]) -> ExportOutcome:
        bad = any(one.name == "bad" for one in spans)
        return outcome if bad else ExportOutcome(len(spans))

    bench.receiver.answer = answer
    put(bench, "a", "bad", "b", "c")
    bench.advance(0 if outcome.refused else 3000)
    assert sorted(names(bench)) == ["a", "b", "c"]
    put(bench, "d")
    bench.advance(0 if outcome.refused else 3000)
    assert sorted(names(bench)) == ["a", "b", "c", "d"]
    bench.receiver.answer = lambda spans: ExportOutcome(len(spans))
    bench.advance(300)
    assert counted(bench) == ((4, 1) if outcome.refused else (5, 0))


def test_a_receiver_that_rejects_some(bench: Bench) -> None:
    """Spans that a receiver rejects in a successful answer are counted as dropped."""
    bench.receiver.answer = lambda _: ExportOutcome(1)
    put(bench, "a", "b", "c")
    assert counted(bench) == (1, 2)


def test_it_waits_for_the_facts_about_the_vm(bench: Bench) -> None:
    """The resource describes the VM; without the facts spans go after some seconds."""
    bench.simulator.set_fault(Fault("error", endpoint="instance"))
    bench.restart()
    put(bench, "a")
    bench.advance(FACTS_SECONDS - 1)
    assert names(bench) == []
    bench.advance(2)
    assert names(bench) == ["a"]


def test_what_cannot_be_set_up(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the SDK refuses a variable the reason is reported, and spans are queued until that is fixed."""
    bench = build()
    with monkeypatch.context() as patch:
        reason = ValueError("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer but got x")
        patch.setattr("exporter.otlp.traces.otlp_exporter", lambda _: (_ for _ in ()).throw(reason))
        bench.reload(ON)
        put(bench, "a")
        assert "cannot be set up: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in bench.api("problems")[0]
        bench.restart()
    bench.restart()
    assert (names(bench), bench.api("problems")) == (["a"], [])


def test_a_failure_is_a_problem_until_it_is_over(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Page and API name the receiver and the reason, which is logged once; the next one has short pauses."""
    caplog.set_level(logging.WARNING)
    bench.receiver.answer = lambda _: DOWN
    bench.show(raw_event(EventStatus="Started", NotBefore=""))
    bench.show(wait=60)
    (problem,) = bench.api("problems")
    assert "traces to http" in problem
    assert problem.endswith("Connection refused")
    assert caplog.text.count("degraded") == 1
    bench.receiver.answer = lambda spans: ExportOutcome(len(spans))
    bench.advance(60)
    assert bench.api("problems") == []
    assert sorted(names(bench)) == ["scheduled_event Freeze", "started"]
    bench.receiver.answer = answer = Mock(return_value=DOWN)
    put(bench, "later")
    bench.advance(4)
    assert answer.call_count >= 3


def test_changes_are_bounded(bench: Bench) -> None:
    """Of the changes of lives that continue, the newest are kept; those of a forgotten life go with it."""
    events = {("a", number): SpanEvent("updated", NOW) for number in range(CAPACITY + 2)}
    step = Effects(WatchState(), (), (), (), (), new_incarnation=True)
    for part in (dict(list(events.items())[:3]), dict(list(events.items())[3:])):
        bench.app._store.record(step, traced=TraceJobs(events=part))
    found = bench.app._store.spans.events
    assert list(found.of("a")) == list(range(2, CAPACITY + 2))
    step = Effects(WatchState(), forgotten=("a",))
    for number in range(2):
        bench.app._store.record(step, traced=TraceJobs(events={("b", number): events["a", 1]}))
    assert (list(found.of("a")), list(found.of("b"))) == ([], [0, 1])
