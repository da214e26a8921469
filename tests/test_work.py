import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.work import Backoff, Loop, Watchdog
from tests.clocks import HandClock

PATIENCE = 30.0


def test_step_is_called_at_once_until_it_asks_for_a_pause() -> None:
    """A step that returns 0 is called again without a pause; `wake` ends a pause, the only end of None."""
    calls = threading.Semaphore(0)
    delays = iter([0, 0, 0.3, None, None])

    def step() -> float | None:
        calls.release()
        return next(delays)

    loop = Loop("test", step)
    loop.start()
    for _ in range(3):
        assert calls.acquire(timeout=PATIENCE)
    assert not calls.acquire(timeout=0.05)
    assert calls.acquire(timeout=PATIENCE)
    assert not calls.acquire(timeout=0.05)
    loop.wake()
    assert calls.acquire(timeout=PATIENCE)
    assert not loop.join(-1)
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "test"] == [True]
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
    def __init__(self) -> None:
        self.clock = HandClock()
        self.watchdog = Watchdog(self.clock)

    def check_after(self, *steps: float) -> list[str | None]:
        found = []
        for step in steps:
            self.clock.pass_seconds(step)
            found.append(self.watchdog.check())
        return found


def test_work_that_hangs() -> None:
    """What does not end within its limit is named at the next check."""
    checked = Checked()
    checked.watchdog.expect("the poll", 3)
    assert checked.check_after(1, 1, 1, 1, 1) == [None] * 3 + ["the poll has not ended within 3 s"] * 2


def test_frozen_vm() -> None:
    """A clock that jumps, as after a freeze of the VM, takes at most 10 s from what is expected."""
    checked = Checked()
    checked.watchdog.expect("the poll", 30)
    assert checked.check_after(1, 3600, 1, 86_400, 1) == [None] * 5
    assert checked.check_after(5, 5) == [None, "the poll has not ended within 30 s"]
