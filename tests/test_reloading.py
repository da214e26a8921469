"""Reloads that meet one another, or a stop."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from exporter.app import App
from exporter.errors import StoppingError
from tests.bench import Bench, Build

SECONDS = 60.0


class Gate:
    """Holds what goes through one method of the application, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.reached: threading.Semaphore = threading.Semaphore(0)
        self.opened = threading.Semaphore(0)
        self.passed = 0
        method: Callable[..., object] = getattr(App, name)

        def held(*given: object) -> object:
            self.reached.release()
            assert self.opened.acquire(timeout=SECONDS)
            self.passed += 1
            return method(*given)

        monkeypatch.setattr(App, name, held)


def asked(pool: ThreadPoolExecutor, bench: Bench) -> Future[None]:
    return pool.submit(bench.app.reload)


def test_one_reload_at_a_time(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is asked for during another begins after it, so that it reads the newest file."""
    bench = build("")
    gate = Gate(monkeypatch, "_fresh")
    with ThreadPoolExecutor(2) as pool:
        reloads = [asked(pool, bench), asked(pool, bench)]
        assert gate.reached.acquire(timeout=SECONDS)
        assert not gate.reached.acquire(timeout=0.05)
        gate.opened.release()
        assert gate.reached.acquire(timeout=SECONDS)
        gate.opened.release()
        assert [one.result(SECONDS) for one in reloads] == [None, None]
    assert gate.passed == 2


def test_a_stop_during_a_reload(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still being read is not applied, and a later reload is refused."""
    bench = build("")
    reading, applying = Gate(monkeypatch, "_fresh"), Gate(monkeypatch, "_use")
    with ThreadPoolExecutor(1) as pool:
        reload = asked(pool, bench)
        assert reading.reached.acquire(timeout=SECONDS)
        bench.app.stop()
        reading.opened.release()
        assert isinstance(reload.exception(SECONDS), StoppingError)
    with pytest.raises(StoppingError):
        bench.app.reload()
    assert applying.passed == 0
    applying.opened.release()
    bench.start()


def test_a_stop_waits_for_what_is_being_applied(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part is configured while it stops."""
    bench = build("")
    monkeypatch.setattr("exporter.app._RELOAD_STOP_SECONDS", SECONDS)
    gate = Gate(monkeypatch, "_use")
    with ThreadPoolExecutor(2) as pool:
        reload = asked(pool, bench)
        assert gate.reached.acquire(timeout=SECONDS)
        stop = pool.submit(bench.app.stop)
        assert not gate.reached.acquire(timeout=0.05)
        assert not stop.done()
        gate.opened.release()
        assert reload.result(SECONDS) is None
        stop.result(SECONDS)
    gate.opened.release()
    bench.start()
