"""Tests of `exporter.watch.poller`: the thread that polls, how it ends, and the record of its last hour."""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import cast

import msgspec
import pytest

from exporter.clock import SystemClock
from exporter.config import Config, Imds, PollInterval
from exporter.errors import PollOutcome
from exporter.imds import ImdsClient
from exporter.model.jobs import Finding, Pause
from exporter.model.lifecycle import Transition
from exporter.model.views import Minute
from exporter.watch import Watch
from exporter.watch.poller import Poller, Polls
from exporter.work import Watchdog
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import eventually

RARELY = Config(imds=Imds(poll_interval=PollInterval(3600)))
OFTEN = Config(imds=Imds(poll_interval=PollInterval(0.2)))
PATIENCE = 60.0


class Client(msgspec.Struct):
    """A client that only records whether it was closed."""

    endpoint: str
    closed: bool = False
    longest_poll: float = 3.5

    def close(self) -> None:
        """Note it."""
        self.closed = True


class Watching:
    """A watch that records each poll, and fails or hangs on request."""

    def __init__(self) -> None:
        self.polls: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.inbox: queue.SimpleQueue[Finding | Pause] = queue.SimpleQueue()
        self.recorded: queue.SimpleQueue[Finding | Pause] = queue.SimpleQueue()
        self.configured: list[str] = []
        self.error: Exception | None = None
        self.released = threading.Event()
        self.released.set()

    def configure(self, _settings: Config, endpoint: str) -> None:
        """Note it."""
        self.configured.append(endpoint)

    def record_findings(self) -> None:
        """Take what workers reported."""
        while not self.inbox.empty():
            self.recorded.put(self.inbox.get())

    def poll(self, client: Client) -> PollOutcome:
        """Record the poll, and fail or hang on request."""
        self.polls.put(client.endpoint)
        self.released.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return PollOutcome.SUCCESS


class Polled:
    """A poller, with what it polls and a note of its death."""

    def __init__(self) -> None:
        self.watch = Watching()
        self.died = threading.Event()
        self.clock = HandClock()
        self.watchdog = Watchdog(self.clock)
        self.poller = Poller(cast("Watch", self.watch), SystemClock(), self.watchdog, died=self.died.set)

    def configure(self, client: Client, settings: Config = RARELY) -> Client:
        """Return it a client."""
        self.poller.configure(settings, cast("ImdsClient", client))
        return client

    def checks(self, seconds: int) -> list[str | None]:
        """Check with the watchdog once a second, and return what it finds."""
        found = []
        for _ in range(seconds):
            self.clock.pass_seconds(1)
            found.append(self.watchdog.check())
        return found

    def next(self) -> str:
        """Wait for the next poll, and return whom it asked."""
        return self.watch.polls.get(timeout=PATIENCE)


@contextmanager
def polling() -> Iterator[Polled]:
    """Return a poller that is stopped at the end."""
    polled = Polled()
    try:
        yield polled
    finally:
        polled.watch.released.set()
        assert polled.poller.stop(PATIENCE)


def test_it_polls_again_and_again() -> None:
    """The first poll comes at once, the next ones at the interval."""
    with polling() as polled:
        polled.configure(Client("a"), OFTEN)
        polled.poller.start()
        assert [polled.next() for _ in range(3)] == ["a", "a", "a"]
        assert polled.watch.configured == ["a"]


def test_a_stop_does_not_wait_for_the_interval() -> None:
    """It ends in the middle of a pause."""
    with polling() as polled:
        polled.configure(Client("a"))
        polled.poller.start()
        polled.next()
        assert polled.poller.stop(PATIENCE)
    assert not polled.died.is_set()


def test_a_new_configuration_is_used_at_once() -> None:
    """It does not wait for the old interval, and the old client's connections are let go."""
    with polling() as polled:
        old = polled.configure(Client("a"))
        polled.poller.start()
        assert polled.next() == "a"
        polled.configure(Client("b"))
        assert polled.next() == "b"
        assert old.closed
        assert polled.watch.configured == ["a", "b"]


def test_of_two_new_configurations_the_last_holds() -> None:
    """One that was replaced before it was used is closed too, and never asked."""
    with polling() as polled:
        skipped, used = polled.configure(Client("a")), polled.configure(Client("b"))
        polled.poller.start()
        assert polled.next() == "b"
        assert skipped.closed
        assert not used.closed


def test_a_finding_does_not_wait_for_the_next_poll() -> None:
    """What a worker reports is recorded at once, and no poll is made for it."""
    finding = Finding("a", Transition.APPROVED, NOW)
    with polling() as polled:
        polled.configure(Client("a"))
        polled.poller.start()
        polled.next()
        polled.poller.report(finding)
        assert polled.watch.recorded.get(timeout=PATIENCE) == finding
        assert polled.poller.stop(PATIENCE)
    assert polled.watch.polls.empty()


def test_a_wake_is_a_poll() -> None:
    """Whoever asks for a poll gets one before the interval is over."""
    with polling() as polled:
        polled.configure(Client("a"))
        polled.poller.start()
        polled.next()
        polled.poller.wake()
        assert polled.next() == "a"


def test_a_stop_gives_up_on_a_poll_that_hangs() -> None:
    """If a request hangs, `stop` returns that the thread did not end."""
    with polling() as polled:
        polled.watch.released.clear()
        polled.configure(Client("a"))
        polled.poller.start()
        polled.next()
        assert not polled.poller.stop(0.05)


def test_a_poll_that_hangs_is_noticed() -> None:
    """The watchdog names a poll that takes longer than the client can need; a pause may take any time."""
    with polling() as polled:
        polled.watch.released.clear()
        polled.configure(Client("a"))
        polled.poller.start()
        polled.next()
        assert polled.checks(4) == [None, None, None, "the poll has not ended within 3.5 s"]
        polled.watch.released.set()
        eventually(lambda: polled.watchdog.check() is None)
        assert polled.checks(4) == [None] * 4


def test_an_error_of_ours_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The end of the poller is logged with its reason, and reported to the application."""
    with polling() as polled:
        polled.watch.error = RuntimeError("a flaw")
        polled.configure(Client("a"))
        polled.poller.start()
        assert polled.died.wait(PATIENCE)
    (record,) = caplog.records
    assert record.getMessage() == "poller failed"
    assert "a flaw" in caplog.text


def test_polls_are_counted_by_minute() -> None:
    """Each minute has its successes and failures, with the reason of the last; others are empty."""
    polls = Polls()
    for second in range(120):
        failed = second in (70, 71)
        polls.count(PollOutcome.TIMEOUT if failed else PollOutcome.SUCCESS, NOW + timedelta(seconds=second))
    hour = polls.last_hour(NOW + timedelta(minutes=3))
    assert len(hour) == 60
    assert hour[-4:] == (
        Minute(NOW, succeeded=60),
        Minute(NOW + timedelta(minutes=1), succeeded=58, failed=2, reason="timeout"),
        Minute(NOW + timedelta(minutes=2)),
        Minute(NOW + timedelta(minutes=3)),
    )
    assert all(minute == Minute(minute.at) for minute in hour[:-4])


def test_an_hour_is_kept() -> None:
    """However long the exporter runs, and however the clock steps, there are sixty minutes."""
    polls = Polls()
    for minute in (*range(600), 3, 4, 600):
        polls.count(PollOutcome.SUCCESS, NOW + timedelta(minutes=minute))
    hour = polls.last_hour(NOW + timedelta(minutes=600))
    assert len(hour) == 60
    assert [minute.at for minute in hour] == [NOW + timedelta(minutes=541 + number) for number in range(60)]
    assert hour[-1].succeeded == 1
