"""Tests of `exporter.work`: the thread that calls a step, pauses after failures, and the watchdog."""

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.work import Backoff, Loop, Watchdog
from tests.clocks import HandClock

PATIENCE = 30.0


def test_step_is_called_at_once_until_it_asks_for_a_pause() -> None:
    """A step that returns 0 is called again without a pause, and after a pause only by `wake`."""
    calls = threading.Semaphore(0)
    delays = iter([0, 0, None, None])

    def step() -> float | None:
        calls.release()
        return next(delays)

    loop = Loop("test", step)
    loop.start()
    for _ in range(3):
        assert calls.acquire(timeout=PATIENCE)
    assert not calls.acquire(timeout=0.05)
    loop.wake()
    assert calls.acquire(timeout=PATIENCE)
    loop.stop()
    assert loop.join(PATIENCE)


def test_wake_during_a_step_is_not_lost() -> None:
    """A `wake` while the step runs leads to another call."""
    entered, go_on, calls = threading.Event(), threading.Event(), threading.Semaphore(0)

    def step() -> None:
        calls.release()
        entered.set()
        go_on.wait(PATIENCE)

    loop = Loop("test", step)
    loop.start()
    assert entered.wait(PATIENCE)
    loop.wake()
    go_on.set()
    assert calls.acquire(timeout=PATIENCE)
    assert calls.acquire(timeout=PATIENCE)
    loop.stop()
    assert loop.join(PATIENCE)


def test_an_exception_does_not_end_the_loop() -> None:
    """``failed`` gets the exception, and returns when the step is called again."""
    problems: list[str] = []
    recovered = threading.Event()

    def step() -> None:
        if not problems:
            raise RuntimeError("broken")
        recovered.set()

    def failed(error: Exception) -> float:
        problems.append(str(error))
        return 0.0

    loop = Loop("test", step, failed=failed)
    loop.start()
    assert recovered.wait(PATIENCE)
    assert problems == ["broken"]
    loop.stop()
    assert loop.join(PATIENCE)


def test_an_exception_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Without ``failed`` the exception is logged with its traceback."""
    entered = threading.Event()

    def step() -> None:
        entered.set()
        raise RuntimeError("broken")

    loop = Loop("worker", step)
    with caplog.at_level(logging.ERROR):
        loop.start()
        assert entered.wait(PATIENCE)
        loop.stop()
        assert loop.join(PATIENCE)
    assert [record.getMessage() for record in caplog.records] == ["background work failed"]
    assert "RuntimeError: broken" in caplog.text


def test_a_stopped_loop_does_not_start() -> None:
    """After `stop` nothing runs, and `join` has nothing to wait for."""
    called = threading.Event()
    loop = Loop("test", called.set)
    loop.stop()
    loop.start()
    assert loop.join(0.0)
    assert not called.is_set()


def pauses(count: int, *, chance: float, took: float = 0.0) -> list[float]:
    """Return the pauses of an outage in which each attempt takes so long."""
    clock = HandClock()
    backoff = Backoff(clock, chance=lambda: chance)
    found = []
    for _ in range(count):
        clock.pass_seconds(took)
        found.append(backoff.failed(took))
        clock.pass_seconds(found[-1])
    return found


def test_the_pause_doubles() -> None:
    """Pauses grow to 20 s during the first two minutes, then to five minutes."""
    assert pauses(15, chance=0.0) == [1, 2, 4, 8, 16, 20, 20, 20, 20, 20, 300, 300, 300, 300, 300]


def test_chance_takes_up_to_half_off() -> None:
    """VMs that fail together do not come back together."""
    assert pauses(6, chance=1.0) == [1, 1, 2, 4, 8, 10]


def test_success_starts_over() -> None:
    """The first failure after a success is followed by the shortest pause."""
    backoff = Backoff(HandClock(), chance=lambda: 0.0)
    assert [backoff.failed(), backoff.failed()] == [1, 2]
    backoff.succeeded()
    assert backoff.failed() == 1


@given(
    st.lists(st.tuples(st.floats(0, 60), st.floats(0, 1)), min_size=1, max_size=40),
    st.floats(0.2, 3600),
    st.floats(10, 300),
)
def test_bounds(attempts: list[tuple[float, float]], first: float, longest: float) -> None:
    """Whatever attempts take, pauses keep their bounds, and early attempts their distance."""
    clock = HandClock()
    chances = iter([chance for _, chance in attempts])
    backoff = Backoff(clock, first=first, early_longest=10.0, longest=longest, chance=lambda: next(chances))
    since: float | None = None
    for took, _ in attempts:
        clock.pass_seconds(took)
        since = clock.monotonic() if since is None else since
        early = clock.monotonic() - since < 120
        pause = backoff.failed(took)
        bound = 10.0 if early else longest
        assert min(first, bound) <= pause <= bound
        assert not early or pause <= max(10.0 - took, min(first, bound))
        clock.pass_seconds(pause)


class Checked:
    """A watchdog with a clock to drive by hand."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.watchdog = Watchdog(self.clock)

    def check_after(self, *steps: float) -> list[str | None]:
        """Advance the clock step by step, and return the result of each check."""
        found = []
        for step in steps:
            self.clock.pass_seconds(step)
            found.append(self.watchdog.check())
        return found


def test_work_that_hangs() -> None:
    """What has not ended within its limit is named at the next check, and at every one after it."""
    checked = Checked()
    with checked.watchdog.limit("the poll", 3.5):
        assert checked.check_after(1, 1, 1, 1, 1) == [None] * 3 + ["the poll has not ended within 3.5 s"] * 2


def test_work_that_ends() -> None:
    """What ends in time leaves nothing behind, however often it is done."""
    checked = Checked()
    for _ in range(5):
        with checked.watchdog.limit("the poll", 3.5):
            assert checked.check_after(1, 1, 1) == [None] * 3


def test_work_that_fails() -> None:
    """An error ends the work."""
    checked = Checked()
    with pytest.raises(RuntimeError), checked.watchdog.limit("the poll", 1):
        raise RuntimeError
    assert checked.check_after(2) == [None]


def test_several_at_once() -> None:
    """Each has its own limit; one that hangs is found beside one that does not."""
    checked = Checked()
    with checked.watchdog.limit("the poll", 60), checked.watchdog.limit("an approval", 1.5):
        assert checked.check_after(1, 1) == [None, "an approval has not ended within 1.5 s"]


def test_frozen_vm() -> None:
    """A clock that jumps, as after a freeze of the VM, takes at most 2 s from what was under way."""
    checked = Checked()
    with checked.watchdog.limit("the poll", 10):
        assert checked.check_after(1, 3600, 1, 86_400, 1) == [None] * 5
        assert checked.check_after(1, 1, 1.5) == [None, None, "the poll has not ended within 10 s"]


def test_who_always_has_something_under_way() -> None:
    """Each call replaces what was expected before; one that does not come is found."""
    checked = Checked()
    for _ in range(3):
        checked.watchdog.expect("poller", "the poll", 3.5)
        assert checked.check_after(1, 1, 1) == [None] * 3
        checked.watchdog.expect("poller", "the pause", 1.5)
        assert checked.check_after(1) == [None]
    assert checked.check_after(1) == ["the pause has not ended within 1.5 s"]
