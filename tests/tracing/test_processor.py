"""Tests of `exporter.tracing.processor`: a queue whose exporter does as it likes."""

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from exporter.health import Health, Trouble
from exporter.tracing.export import ExportOutcome
from exporter.tracing.processor import CAPACITY, MAX_AGE_SECONDS, BatchProcessor
from exporter.tracing.spans import Span
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import eventually
from tests.tracing.doubles import SpanTally

DOWN = ExportOutcome(problem="Connection refused")


def span(name: str) -> Span:
    """Return a span."""
    return Span(name, "1" * 32, "1" * 16, "", NOW, NOW, {})


def accept(spans: Sequence[Span]) -> ExportOutcome:
    """Accept all spans."""
    return ExportOutcome(len(spans))


class ScriptedExporter:
    """Records what it is given, and answers as it is told."""

    def __init__(self) -> None:
        self.answer: Callable[[Sequence[Span]], ExportOutcome] = accept
        self.tried: list[list[str]] = []
        self.taken: list[str] = []
        self.interrupted = threading.Event()

    def export(self, spans: Sequence[Span]) -> ExportOutcome:
        """Answer."""
        names = [one.name for one in spans]
        outcome = self.answer(spans)
        self.tried.append(names)
        if not outcome.problem:
            self.taken += names
        return outcome

    def shutdown(self) -> None:
        """Record it."""
        self.interrupted.set()


class Setting:
    """A processor with everything around it."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.tally = SpanTally()
        self.exporter = ScriptedExporter()
        self.processor = self.begin(lambda: self.exporter)

    def begin(self, make: Callable[[], ScriptedExporter]) -> BatchProcessor:
        """Start a processor."""
        return BatchProcessor(
            "http://receiver.test",
            make,
            counts=self.tally,
            health=self.health,
            clock=self.clock,
            chance=lambda: 0.0,
        )

    def put(self, *names: str) -> None:
        """Queue spans, and have the processor look at the clock."""
        self.processor.put([span(name) for name in names])

    def attempts(self, count: int) -> None:
        """Wait for so many attempts in all, one after the other, while time passes."""
        while len(self.exporter.tried) < count:
            before = len(self.exporter.tried)
            self.clock.pass_seconds(300)
            self.put()
            eventually(lambda before=before: len(self.exporter.tried) > before)  # type: ignore[misc]

    def problems(self) -> list[tuple[Trouble, str]]:
        """Return the active problems."""
        return [(problem.trouble, problem.message) for problem in self.health.problems()]


@pytest.fixture
def setting() -> Iterator[Setting]:
    """Set up, and end all threads."""
    found = Setting()
    yield found
    assert found.processor.stop(10)


def failing(problem: str) -> list[tuple[Trouble, str]]:
    """Return what `Health` has after a failure."""
    return [(Trouble.TRACING_FAILING, f"traces to http://receiver.test: {problem}")]


def test_spans_are_exported(setting: Setting) -> None:
    """What is queued is exported in its order, and counted."""
    setting.put("a", "b")
    setting.put("c")
    eventually(lambda: setting.exporter.taken == ["a", "b", "c"])
    eventually(lambda: setting.tally.exported == 3)
    assert setting.tally.dropped == 0


def test_a_receiver_that_is_down(setting: Setting) -> None:
    """Spans wait, new ones do not hasten the next attempt, and all are exported once it is back."""
    setting.exporter.answer = lambda _: DOWN
    setting.put("a")
    eventually(lambda: setting.problems() == failing("Connection refused"))
    setting.put("b")
    setting.put("c")
    assert setting.exporter.tried == [["a"]]
    setting.exporter.answer = accept
    setting.clock.pass_seconds(1)
    setting.put("d")
    eventually(lambda: sorted(setting.exporter.taken) == ["a", "b", "c", "d"])
    eventually(lambda: setting.problems() == [])
    assert (setting.tally.exported, setting.tally.dropped) == (4, 0)


def test_the_queue_is_bounded(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """While a receiver is down for long the oldest spans are dropped, counted and logged."""
    setting.exporter.answer = lambda _: DOWN
    setting.put("first", "second")
    eventually(setting.problems)
    setting.put(*(str(number) for number in range(CAPACITY + 8)))
    assert setting.tally.dropped == 10
    assert "spans dropped" in caplog.text
    setting.exporter.answer = accept
    setting.clock.pass_seconds(1)
    setting.put()
    eventually(lambda: setting.tally.exported == CAPACITY)
    assert sorted(setting.exporter.taken, key=int) == [str(number) for number in range(8, CAPACITY + 8)]


def test_spans_that_are_too_old(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """What no receiver has accepted for a day is dropped, and what is newer is not."""
    setting.exporter.answer = lambda _: DOWN
    setting.put("old")
    eventually(setting.problems)
    setting.clock.pass_seconds(MAX_AGE_SECONDS)
    setting.put("new")
    eventually(lambda: len(setting.exporter.tried) == 2)
    setting.exporter.answer = accept
    setting.clock.pass_seconds(300)
    setting.put()
    eventually(lambda: setting.exporter.taken == ["new"])
    assert setting.tally.dropped == 1
    assert "spans dropped" in caplog.text


def test_a_span_that_is_refused(setting: Setting) -> None:
    """One that the receiver refuses for good costs no other: it is found at once, and dropped alone."""

    def answer(spans: Sequence[Span]) -> ExportOutcome:
        bad = any(one.name == "bad" for one in spans)
        return ExportOutcome(problem="status 400", refused=True) if bad else accept(spans)

    setting.exporter.answer = answer
    setting.put("a", "b", "bad", "c")
    setting.put("d")
    eventually(lambda: sorted(setting.exporter.taken) == ["a", "b", "c", "d"])
    eventually(lambda: (setting.tally.exported, setting.tally.dropped) == (4, 1))


def test_a_span_that_always_fails(setting: Setting) -> None:
    """One over which a receiver fails holds up no other for good, and is exported once that is mended."""

    def answer(spans: Sequence[Span]) -> ExportOutcome:
        return DOWN if any(one.name == "bad" for one in spans) else accept(spans)

    setting.exporter.answer = answer
    setting.put("a", "bad", "b", "c")
    eventually(setting.problems)
    while len(setting.exporter.taken) < 3:
        setting.attempts(len(setting.exporter.tried) + 1)
    setting.put("d")
    while len(setting.exporter.taken) < 4:
        setting.attempts(len(setting.exporter.tried) + 1)
    assert sorted(setting.exporter.taken) == ["a", "b", "c", "d"]
    setting.exporter.answer = accept
    setting.attempts(len(setting.exporter.tried) + 1)
    eventually(lambda: (setting.tally.exported, setting.tally.dropped) == (5, 0))


def test_a_receiver_that_rejects_some(setting: Setting) -> None:
    """Spans that a receiver rejects in a successful answer are counted as dropped."""
    setting.exporter.answer = lambda _: ExportOutcome(1)
    setting.put("a", "b", "c")
    eventually(lambda: (setting.tally.exported, setting.tally.dropped) == (1, 2))


def test_what_waits_is_exported_at_the_stop(setting: Setting) -> None:
    """A stop makes one more attempt, whatever the delay."""
    setting.exporter.answer = lambda _: DOWN
    setting.put("a")
    eventually(lambda: setting.exporter.tried)
    setting.exporter.answer = accept
    assert setting.processor.stop(10)
    assert setting.exporter.taken == ["a"]


def test_what_cannot_be_exported_before_the_end(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """Spans that are lost with the process are counted and logged."""
    setting.exporter.answer = lambda _: DOWN
    setting.put("a")
    setting.put("b")
    eventually(lambda: setting.exporter.tried)
    assert setting.processor.stop(10)
    assert setting.tally.dropped == 2
    assert "spans dropped" in caplog.text


def test_a_stop_does_not_wait_for_a_hanging_export(setting: Setting) -> None:
    """An export that hangs is asked to give up, and left behind if it does not."""
    released = threading.Event()

    def hang(_: Sequence[Span]) -> ExportOutcome:
        assert released.wait(30)
        return DOWN

    setting.exporter.answer = hang
    setting.put("a")
    eventually(lambda: setting.processor._batch)
    assert not setting.processor.stop(0.1)
    assert setting.exporter.interrupted.is_set()
    assert setting.tally.dropped == 1
    released.set()


@pytest.mark.parametrize("answer", [DOWN, ExportOutcome(1)])
def test_an_export_that_is_left_behind_is_ignored(setting: Setting, answer: ExportOutcome) -> None:
    """What was counted as dropped is not counted again, and no problem is reported that would never end."""
    released = threading.Event()

    def hang(_: Sequence[Span]) -> ExportOutcome:
        assert released.wait(30)
        return answer

    setting.exporter.answer = hang
    setting.put("a")
    eventually(lambda: setting.processor._batch)
    setting.put("b")
    assert not setting.processor.stop(0.1)
    setting.put("c")
    released.set()
    assert setting.processor.stop(10)
    assert (setting.tally.exported, setting.tally.dropped) == (0, 3)
    assert setting.exporter.tried == [["a"]]
    assert setting.problems() == []


def test_what_cannot_be_set_up(setting: Setting) -> None:
    """If the SDK refuses a variable the reason is reported, and spans are counted as dropped in the end."""

    def fail() -> ScriptedExporter:
        raise ValueError("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer but got x")

    broken = setting.begin(fail)
    eventually(lambda: "cannot be set up: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in setting.problems()[0][1])
    broken.put([span("a")])
    assert broken.stop(10)
    assert setting.tally.dropped == 1
