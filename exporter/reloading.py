"""Reloads of the configuration: one at a time, on a thread of their own, so that nothing waits for them."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from exporter.errors import ConfigurationError, StoppingError

log = logging.getLogger(__name__)


class Reloader:
    """Loads the configuration again on request; thread-safe.

    ``prepare`` reads the configuration, which may take long, and returns the function that applies it.
    Requests that arrive during a reload share the next one: a flood of them costs two reloads.
    """

    def __init__(self, prepare: Callable[[], Callable[[], None]]) -> None:
        self._prepare = prepare
        self._lock = threading.Lock()
        self._applying = threading.Lock()
        self._current: Future[None] | None = None
        self._next: Future[None] | None = None
        self._stopped = False

    def request(self) -> Future[None]:
        """Return the result of a reload that begins after this call; does not block.

        The result is a `ConfigurationError` if the configuration is bad, and a `StoppingError` if `stop` is
        called first.
        """
        with self._lock:
            if self._next is None:
                self._next = Future()
                if self._stopped:
                    self._next.set_exception(StoppingError())
                elif self._current is None:
                    threading.Thread(target=self._run, name="reload", daemon=True).start()
            return self._next

    def stop(self, timeout: float) -> None:
        """Fail all requests that have no result yet. No configuration is applied any more.

        Waits up to ``timeout`` seconds for one that is being applied, but not for one that is being read.
        """
        with self._lock:
            self._stopped = True
            for future in (self._current, self._next):
                if future is not None and not future.done():
                    future.set_exception(StoppingError())
        if self._applying.acquire(timeout=timeout):
            self._applying.release()

    def _run(self) -> None:
        while (future := self._begin()) is not None:
            error = self._reload()
            with self._lock:
                if future.done():
                    continue
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)

    def _begin(self) -> Future[None] | None:
        with self._lock:
            if self._stopped:
                return None
            self._current, self._next = self._next, None
            return self._current

    def _reload(self) -> Exception | None:
        try:
            apply = self._prepare()
            with self._applying:
                if not self._stopped:
                    apply()
                    log.info("configuration loaded again")
        except ConfigurationError as error:
            log.warning("reload failed; the old configuration stays", extra={"error": str(error)})
            return error
        except Exception as error:
            log.exception("reload failed")
            return error
        return None
