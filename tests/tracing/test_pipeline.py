"""Tests of `exporter.tracing.pipeline`: a way out whose receiver does as it likes."""

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from exporter.health import Health, Trouble
from exporter.tracing.outlets import Sent
from exporter.tracing.pipeline import CAPACITY, Pipeline
from exporter.tracing.spans import Span
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import eventually
from tests.tracing.doubles import SpanTally

DOWN = Sent(problem="Connection refused")


def span(name: str) -> Span:
    """Give a span."""
    return Span(name, "1" * 32, "1" * 16, "", NOW, NOW, {})


class ScriptedOutlet:
    """Keeps what it is given, and answers as it is told."""

    def __init__(self) -> None:
        self.answer: Callable[[Sequence[Span]], Sent] = lambda spans: Sent(len(spans))
        self.tried: list[list[str]] = []
        self.taken: list[str] = []
        self.closed = threading.Event()

    def send(self, spans: Sequence[Span]) -> Sent:
        """Answer."""
        names = [one.name for one in spans]
        sent = self.answer(spans)
        self.tried.append(names)
        if not sent.problem:
            self.taken += names
        return sent

    def close(self) -> None:
        """Note it."""
        self.closed.set()


class Post:
    """A pipeline with everything around it."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.tally = SpanTally()
        self.outlet = ScriptedOutlet()
        self.pipeline = self.begin(lambda: self.outlet)

    def begin(self, open_outlet: Callable[[], ScriptedOutlet]) -> Pipeline:
        """Begin another."""
        return Pipeline(
            "http://receiver.test",
            open_outlet,
            counts=self.tally,
            health=self.health,
            clock=self.clock,
            chance=lambda: 0.0,
        )

    def put(self, *names: str) -> None:
        """Give it spans, and have it look at the clock."""
        self.pipeline.put([span(name) for name in names])

    def problems(self) -> list[tuple[Trouble, str]]:
        """Give what is wrong."""
        return [(problem.trouble, problem.message) for problem in self.health.problems()]


@pytest.fixture
def post() -> Iterator[Post]:
    """Set up, and end all threads."""
    found = Post()
    yield found
    assert found.pipeline.stop(10)


def failing(problem: str) -> list[tuple[Trouble, str]]:
    """Give what `Health` has where a try failed."""
    return [(Trouble.TRACING_FAILING, f"traces to http://receiver.test: {problem}")]


def test_spans_go_out(post: Post) -> None:
    """What is put arrives, in its order, and is counted."""
    post.put("a", "b")
    post.put("c")
    eventually(lambda: post.outlet.taken == ["a", "b", "c"])
    eventually(lambda: post.tally.exported == 3)
    assert post.tally.dropped == 0


def test_a_receiver_that_is_down(post: Post) -> None:
    """Spans wait, new ones do not hasten the next try, and all arrive once it is back."""
    post.outlet.answer = lambda _: DOWN
    post.put("a")
    eventually(lambda: post.problems() == failing("Connection refused"))
    post.put("b")
    post.put("c")
    assert post.outlet.tried == [["a"]]
    post.outlet.answer = lambda spans: Sent(len(spans))
    post.clock.pass_seconds(1)
    post.put("d")
    eventually(lambda: post.outlet.taken == ["a", "b", "c", "d"])
    eventually(lambda: post.problems() == [])
    assert (post.tally.exported, post.tally.dropped) == (4, 0)


def test_the_queue_is_bounded(post: Post) -> None:
    """Where a receiver is down for long the oldest spans go, and are counted."""
    post.outlet.answer = lambda _: DOWN
    post.put("first")
    eventually(lambda: post.outlet.tried)
    post.put(*(str(number) for number in range(CAPACITY + 10)))
    assert post.tally.dropped == 10
    post.outlet.answer = lambda spans: Sent(len(spans))
    post.clock.pass_seconds(1)
    post.put()
    eventually(lambda: len(post.outlet.taken) == CAPACITY + 1)
    assert post.outlet.taken[:2] == ["first", "10"]


def test_a_span_that_is_never_taken(post: Post) -> None:
    """One that a receiver calls bad costs no other: it is found, and dropped alone."""

    def answer(spans: Sequence[Span]) -> Sent:
        bad = any(one.name == "bad" for one in spans)
        return Sent(problem="it answered 400", hopeless=True) if bad else Sent(len(spans))

    post.outlet.answer = lambda _: DOWN
    post.put("a")
    eventually(lambda: post.outlet.tried)
    post.put("b", "bad", "c")
    post.outlet.answer = answer
    post.clock.pass_seconds(1)
    post.put("d")
    eventually(lambda: post.outlet.taken == ["a", "b", "c", "d"])
    eventually(lambda: (post.tally.exported, post.tally.dropped) == (4, 1))


def test_a_receiver_that_takes_some(post: Post) -> None:
    """Spans that a receiver takes and then rejects are counted as dropped."""
    post.outlet.answer = lambda _: Sent(1)
    post.put("a", "b", "c")
    eventually(lambda: (post.tally.exported, post.tally.dropped) == (1, 2))


def test_an_error_of_ours(post: Post) -> None:
    """A bug costs the span that meets it, and not the thread."""

    def fail(spans: Sequence[Span]) -> Sent:
        raise KeyError(spans[0].name)

    post.outlet.answer = fail
    post.put("a")
    eventually(lambda: post.problems() == failing("KeyError in this program"))
    eventually(lambda: post.tally.dropped == 1)
    post.outlet.answer = lambda spans: Sent(len(spans))
    post.put("b")
    eventually(lambda: post.outlet.taken == ["b"])


def test_what_waits_goes_out_at_the_stop(post: Post) -> None:
    """A stop tries once more, whatever the delay; what does not arrive then is counted."""
    post.outlet.answer = lambda _: DOWN
    post.put("a")
    eventually(lambda: post.outlet.tried)
    post.outlet.answer = lambda spans: Sent(len(spans))
    assert post.pipeline.stop(10)
    assert post.outlet.taken == ["a"]
    assert post.outlet.closed.is_set()


def test_what_cannot_be_sent_before_the_end(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    """Spans that are lost with the process are counted, and said."""
    post.outlet.answer = lambda _: DOWN
    post.put("a")
    post.put("b")
    eventually(lambda: post.outlet.tried)
    assert post.pipeline.stop(10)
    assert post.tally.dropped == 2
    assert "spans not sent" in caplog.text


def test_a_stop_does_not_wait_for_a_hanging_try(post: Post) -> None:
    """A try that hangs is left behind."""
    released = threading.Event()

    def hang(_: Sequence[Span]) -> Sent:
        assert released.wait(30)
        return DOWN

    post.outlet.answer = hang
    post.put("a")
    eventually(lambda: post.pipeline._batch)
    assert not post.pipeline.stop(0.1)
    assert post.tally.dropped == 1
    released.set()


@pytest.mark.parametrize("answer", [DOWN, Sent(1)])
def test_a_try_that_is_left_behind_has_no_say(post: Post, answer: Sent) -> None:
    """What was counted as dropped is not counted again, and no trouble is told that nobody would end."""
    released = threading.Event()

    def hang(_: Sequence[Span]) -> Sent:
        assert released.wait(30)
        return answer

    post.outlet.answer = hang
    post.put("a")
    eventually(lambda: post.pipeline._batch)
    post.put("b")
    assert not post.pipeline.stop(0.1)
    post.put("c")
    released.set()
    assert post.pipeline.stop(10)
    assert (post.tally.exported, post.tally.dropped) == (0, 3)
    assert post.outlet.tried == [["a"]]
    assert post.problems() == []


def test_what_cannot_be_set_up(post: Post) -> None:
    """Where the SDK refuses a variable the reason is shown, and spans are counted as dropped in the end."""

    def fail() -> ScriptedOutlet:
        raise ValueError("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer but got x")

    broken = post.begin(fail)
    eventually(lambda: "cannot be set up: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in post.problems()[0][1])
    broken.put([span("a")])
    assert broken.stop(10)
    assert post.tally.dropped == 1
