import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from exporter.errors import ConfigurationError, StoppingError
from exporter.work import Reloader

SECONDS = 20.0


class Configurations:
    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self.applied = 0

    def prepare(self) -> Callable[[], None]:
        self.begun.put(None)
        error = self.results.get(timeout=SECONDS)
        if error is not None:
            raise error
        return self.apply

    def apply(self) -> None:
        self.applied += 1

    def wait(self) -> None:
        self.begun.get(timeout=SECONDS)


@pytest.fixture
def configurations() -> Configurations:
    return Configurations()


@pytest.fixture
def reloader(configurations: Configurations) -> Iterator[Reloader]:
    others = threading.enumerate()
    found = Reloader(configurations.prepare)
    yield found
    found.stop(SECONDS)
    for thread in threading.enumerate():
        if thread not in others:
            thread.join(SECONDS)
            assert not thread.is_alive()


def test_requests_share_the_reload_that_begins_after_them(
    configurations: Configurations, reloader: Reloader
) -> None:
    """A hundred requests during a reload, which may have read the old file, cost one more."""
    first = reloader.request()
    configurations.wait()
    others = [reloader.request() for _ in range(100)]
    assert not first.done()
    configurations.results.put(None)
    assert first.result(SECONDS) is None
    configurations.wait()
    assert not any(other.done() for other in others)
    configurations.results.put(None)
    assert [other.result(SECONDS) for other in others] == [None] * 100
    assert configurations.applied == 2


@pytest.mark.parametrize("error", [ConfigurationError("c.yml:1: bad"), ZeroDivisionError("ours")])
def test_a_reload_that_fails(
    configurations: Configurations, reloader: Reloader, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asked gets the reason, it is logged, nothing is applied, and the next one succeeds."""
    for result in (error, None):
        configurations.results.put(result)
        assert reloader.request().exception(SECONDS) is result
    assert configurations.applied == 1
    (record,) = caplog.records
    assert record.getMessage().startswith("reload failed")


def test_a_stop_fails_all_requests(configurations: Configurations, reloader: Reloader) -> None:
    """Those under way, those that wait and later ones fail at once, and nothing is applied any more."""
    requests = [reloader.request()]
    configurations.wait()
    requests += [reloader.request(), reloader.request()]
    reloader.stop(SECONDS)
    requests.append(reloader.request())
    assert all(isinstance(request.exception(0), StoppingError) for request in requests)
    configurations.results.put(None)


def test_a_stop_waits_for_what_is_being_applied(configurations: Configurations) -> None:
    """No part is configured while it stops."""
    applying, go_on = threading.Event(), threading.Event()

    def apply() -> None:
        applying.set()
        assert go_on.wait(SECONDS)
        configurations.apply()

    def stop() -> None:
        reloader.stop(SECONDS)
        stopped.set_result(configurations.applied)

    reloader = Reloader(lambda: apply)
    stopped: Future[int] = Future()
    request = reloader.request()
    assert applying.wait(SECONDS)
    threading.Thread(target=stop).start()
    assert isinstance(request.exception(SECONDS), StoppingError)
    assert not stopped.done()
    go_on.set()
    assert stopped.result(SECONDS) == 1
