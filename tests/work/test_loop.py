"""Tests of the thread that calls a step again and again."""

import logging
import threading

import pytest

from exporter.work import Loop

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
    """``failed`` gets the exception, and says when the step is called again."""
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
