"""Tests of `exporter.tracing.worker`: spans that wait in the state, and a scripted receiver."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from exporter.health import DegradedReason, Health
from exporter.model.jobs import Span
from exporter.state import Store
from exporter.state.queues import CAPACITY
from exporter.tracing.worker import FACTS_SECONDS, LONGEST_WAIT, ExportOutcome, Worker
from exporter.work import Backoff
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import eventually
from tests.state_support import alter, on_disk
from tests.tracing.doubles import SpanTally

DOWN = ExportOutcome(problem="Connection refused")
NAME = "http://receiver.test"


def span(name: str) -> Span:
    """Return a span, with an id that follows from its name."""
    return Span(name, "1" * 32, f"{abs(hash(name)):x}".zfill(16)[:16], "", NOW, NOW, {"n": 1, "of": ("a",)})


def accept(spans: Sequence[Span]) -> ExportOutcome:
    """Accept all spans."""
    return ExportOutcome(len(spans))


class ScriptedExporter:
    """Records its spans, and returns scripted outcomes."""

    def __init__(self) -> None:
        self.answer: Callable[[Sequence[Span]], ExportOutcome] = accept
        self.tried: list[list[str]] = []
        self.taken: list[str] = []
        self.interrupted = threading.Event()

    def export(self, spans: Sequence[Span]) -> ExportOutcome:
        """Answer."""
        names = [one.name for one in spans]
        self.tried.append(names)
        outcome = self.answer(spans)
        if not outcome.problem:
            self.taken += names
        return outcome

    def shutdown(self) -> None:
        """Record it."""
        self.interrupted.set()


class Setting:
    """A worker with everything around it, whose steps the test calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.tally = SpanTally()
        self.exporter = ScriptedExporter()
        self.make: Callable[[], ScriptedExporter] = lambda: self.exporter
        self.knows_vm = True
        self.open()

    def open(self) -> None:
        """Start as a new process does."""
        self.store = Store.open(self.folder, health=self.health, clock=self.clock)
        self.store.spans.lanes = ("otlp",)
        self.worker = Worker(
            "otlp",
            NAME,
            self.new_exporter,
            spans=self.store.spans,
            knows_vm=lambda: self.knows_vm,
            metrics=self.tally,
            health=self.health,
            clock=self.clock,
            backoff=Backoff(self.clock, chance=lambda: 0.0),
        )

    def new_exporter(self) -> ScriptedExporter:
        """Return the exporter, unless a test wants none."""
        return self.make()

    def put(self, *names: str) -> None:
        """Stage spans."""
        self.store.spans.stage([span(name) for name in names])

    def work(self) -> float | None:
        """Call the step until it returns a pause, and return that."""
        while (delay := self.worker.step()) == 0:
            pass
        return delay

    def waiting(self) -> list[str]:
        """Return the names of the spans that wait."""
        return [found.name for _, found in self.store.spans.waiting("otlp") if found is not None]

    def problems(self) -> list[tuple[DegradedReason, str]]:
        """Return the active problems."""
        return [(problem.reason, problem.message) for problem in self.health.problems()]


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    """Set up, and end all threads."""
    found = Setting(tmp_path)
    yield found
    assert found.worker.stop(10)
    found.store.close()


def failing(problem: str) -> list[tuple[DegradedReason, str]]:
    """Return what `Health` has after a failure."""
    return [(DegradedReason.TRACING_FAILING, f"traces to {NAME}: {problem}")]


def test_spans_are_exported(setting: Setting) -> None:
    """What waits is exported in its order, counted, and leaves nothing behind."""
    setting.put("a", "b")
    setting.put("c")
    assert setting.work() is None
    assert setting.exporter.tried == [["a", "b", "c"]]
    assert (setting.tally.exported, setting.tally.dropped) == (3, 0)
    assert on_disk(setting.folder, "span") == {}
    assert setting.work() is None
    assert len(setting.exporter.tried) == 1


def test_nothing_is_stored_while_nothing_is_traced(setting: Setting) -> None:
    """Without a lane a span is nowhere."""
    setting.store.spans.lanes = ()
    setting.put("a")
    assert on_disk(setting.folder, "span") == {}
    assert setting.waiting() == []


def test_a_receiver_that_is_down(setting: Setting) -> None:
    """Spans wait, new ones do not hasten the next attempt, and all are exported once it is back."""
    setting.exporter.answer = lambda _: DOWN
    setting.put("a")
    assert setting.work() == 1.0
    assert setting.problems() == failing("Connection refused")
    setting.put("b")
    assert setting.work() == 1.0
    assert setting.exporter.tried == [["a"]]
    setting.exporter.answer = accept
    setting.clock.pass_seconds(1)
    assert setting.work() is None
    assert sorted(setting.exporter.taken) == ["a", "b"]
    assert setting.problems() == []
    assert (setting.tally.exported, setting.tally.dropped) == (2, 0)


def test_spans_outlive_the_process(setting: Setting) -> None:
    """What a receiver has not taken is exported as it was by the next process, and what it took is not."""
    setting.put("taken")
    setting.work()
    setting.exporter.answer = lambda _: DOWN
    full = msgspec.structs.replace(span("full"), error="too late", kind="client")
    setting.store.spans.stage([full])
    setting.work()
    setting.store.close()
    seen: list[Span] = []

    def look(spans: Sequence[Span]) -> ExportOutcome:
        seen.extend(spans)
        return accept(spans)

    setting.exporter.answer = look
    setting.open()
    setting.work()
    assert seen == [full]


def test_what_cannot_be_read(setting: Setting) -> None:
    """A damaged span is dropped alone."""
    setting.put("a")
    setting.put("b")
    setting.store.close()
    alter(
        setting.folder,
        "UPDATE entries SET value = '{' WHERE value LIKE '%\"a\"%' AND value LIKE '%\"name\":\"a\"%'",
    )
    setting.open()
    setting.work()
    assert setting.exporter.taken == ["b"]
    assert setting.tally.dropped == 1


def test_the_number_is_bounded(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """While a receiver is down for long the oldest spans are dropped, counted and logged."""
    setting.exporter.answer = lambda _: DOWN
    setting.put("first", "second")
    setting.work()
    setting.put(*(str(number) for number in range(CAPACITY - 1)))
    setting.put("last")
    assert setting.waiting() == [*(str(number) for number in range(CAPACITY - 1)), "last"]
    setting.work()
    assert setting.tally.dropped == 2
    assert "spans dropped" in caplog.text
    setting.put(*(f"x{number}" for number in range(CAPACITY + 5)))
    assert setting.waiting() == [f"x{number}" for number in range(5, CAPACITY + 5)]
    setting.work()
    assert setting.tally.dropped == 2 + CAPACITY + 5


def test_spans_that_are_too_old(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """What no receiver has accepted for a day is dropped, and what is newer is not."""
    setting.exporter.answer = lambda _: DOWN
    setting.put("old")
    setting.work()
    setting.clock.pass_seconds(LONGEST_WAIT.total_seconds() + 1)
    setting.store.spans.stage([msgspec.structs.replace(span("new"), end=setting.clock.now())])
    setting.exporter.answer = accept
    setting.work()
    assert setting.exporter.taken == ["new"]
    assert setting.tally.dropped == 1
    assert "spans dropped" in caplog.text


def test_a_span_that_is_refused(setting: Setting) -> None:
    """One that the receiver refuses for good costs no other: it is found at once, and dropped alone."""

    def answer(spans: Sequence[Span]) -> ExportOutcome:
        bad = any(one.name == "bad" for one in spans)
        return ExportOutcome(problem="status 400", refused=True) if bad else accept(spans)

    setting.exporter.answer = answer
    setting.put("a", "b", "bad", "c", "d")
    assert setting.work() is None
    assert sorted(setting.exporter.taken) == ["a", "b", "c", "d"]
    assert (setting.tally.exported, setting.tally.dropped) == (4, 1)


def test_a_span_that_always_fails(setting: Setting) -> None:
    """A span that makes a receiver fail does not block others, and is exported once that is fixed."""

    def answer(spans: Sequence[Span]) -> ExportOutcome:
        return DOWN if any(one.name == "bad" for one in spans) else accept(spans)

    setting.exporter.answer = answer
    setting.put("a", "bad", "b", "c")
    for _ in range(10):
        setting.work()
        setting.clock.pass_seconds(300)
    assert sorted(setting.exporter.taken) == ["a", "b", "c"]
    setting.put("d")
    for _ in range(10):
        setting.work()
        setting.clock.pass_seconds(300)
    assert sorted(setting.exporter.taken) == ["a", "b", "c", "d"]
    setting.exporter.answer = accept
    setting.work()
    assert (setting.tally.exported, setting.tally.dropped) == (5, 0)


def test_a_receiver_that_rejects_some(setting: Setting) -> None:
    """Spans that a receiver rejects in a successful answer are counted as dropped."""
    setting.exporter.answer = lambda _: ExportOutcome(1)
    setting.put("a", "b", "c")
    setting.work()
    assert (setting.tally.exported, setting.tally.dropped) == (1, 2)


def test_it_waits_for_the_facts_about_the_vm(setting: Setting) -> None:
    """The resource describes the VM; without the facts spans go after some seconds."""
    setting.knows_vm = False
    setting.put("a")
    assert setting.work() == 0.5
    setting.knows_vm = True
    setting.work()
    assert setting.exporter.taken == ["a"]
    setting.knows_vm = False
    setting.put("b")
    assert setting.work() == 0.5
    setting.clock.pass_seconds(FACTS_SECONDS)
    setting.work()
    assert setting.exporter.taken == ["a", "b"]


def test_what_waits_is_exported_at_the_stop(setting: Setting) -> None:
    """A stop makes one more attempt, whatever the delay, also while the facts are not known."""
    setting.exporter.answer = lambda _: DOWN
    setting.put("a")
    setting.worker.start()
    eventually(lambda: setting.exporter.tried)
    setting.exporter.answer = accept
    setting.knows_vm = False
    assert setting.worker.stop(10)
    assert setting.exporter.taken == ["a"]


def test_what_cannot_be_exported_before_the_end(setting: Setting) -> None:
    """Spans that are left at the stop wait for the next start."""
    setting.exporter.answer = lambda _: DOWN
    setting.put("a", "b")
    setting.worker.start()
    eventually(lambda: setting.exporter.tried)
    assert setting.worker.stop(10)
    assert setting.tally.dropped == 0
    assert setting.waiting() == ["a", "b"]


@pytest.mark.parametrize("answer", [DOWN, ExportOutcome(1)])
def test_a_stop_does_not_wait_for_a_hanging_export(setting: Setting, answer: ExportOutcome) -> None:
    """An export that hangs is asked to give up, and left behind if it does not; its result still counts."""
    released = threading.Event()

    def hang(_: Sequence[Span]) -> ExportOutcome:
        assert released.wait(30)
        return answer

    setting.exporter.answer = hang
    setting.put("a")
    setting.worker.start()
    eventually(lambda: setting.exporter.tried)
    assert not setting.worker.stop(0.1)
    assert setting.exporter.interrupted.is_set()
    assert setting.problems() == []
    released.set()
    assert setting.worker.stop(10)
    assert setting.waiting() == (["a"] if answer.problem else [])


def test_an_export_that_is_left_behind(setting: Setting) -> None:
    """What was dropped meanwhile is not counted again."""
    released = threading.Event()

    def hang(spans: Sequence[Span]) -> ExportOutcome:
        assert released.wait(30)
        return accept(spans)

    setting.exporter.answer = hang
    setting.put("a")
    setting.worker.start()
    eventually(lambda: setting.exporter.tried)
    setting.store.spans.remove([key for key, _ in setting.store.spans.waiting("otlp")])
    released.set()
    assert setting.worker.stop(10)
    assert (setting.tally.exported, setting.tally.dropped) == (0, 0)


def test_what_cannot_be_set_up(setting: Setting) -> None:
    """If the SDK refuses a variable the reason is reported, and spans are queued until that is fixed."""

    def fail() -> ScriptedExporter:
        raise ValueError("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer but got x")

    setting.make = fail
    setting.put("a")
    assert setting.work() is None
    assert "cannot be set up: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in setting.problems()[0][1]
    assert setting.waiting() == ["a"]
