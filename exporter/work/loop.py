"""A thread that calls a step again and again."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

_ERROR_SECONDS = 20.0


class Loop:
    """Calls ``step`` on a thread of its own until `stop`; any thread may use it.

    ``step`` does one piece of work and returns the seconds until it is to be called again: 0 for at once,
    None for not before `wake`. ``failed`` is called with an exception that it raised and returns the same;
    without it the exception is logged, and the step called again 20 s later.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        *,
        failed: Callable[[Exception], float | None] | None = None,
    ) -> None:
        self._step = step
        self._failed = failed or self._log
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._stopping = False
        # A step may wait for a peer for minutes; the end of the process must not.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self._stopping

    def start(self) -> None:
        """Start the thread, unless it was started before or the loop has been stopped."""
        with self._lock:
            if self._thread.ident is None and not self._stopping:
                self._thread.start()

    def wake(self) -> None:
        """Call the step now, or once more after the call under way."""
        self._wake.set()

    def stop(self) -> None:
        """Ask the thread to end after the call under way."""
        with self._lock:
            self._stopping = True
        self._wake.set()

    def join(self, timeout: float) -> bool:
        """Wait for the thread, and return whether it ended within ``timeout`` seconds."""
        if self._thread.ident is not None:
            self._thread.join(max(timeout, 0.0))
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                delay = self._step()
            except Exception as error:  # noqa: BLE001  # a thread that ended would not be missed by anybody
                delay = self._failed(error)
            if delay is None or delay > 0:
                self._wake.wait(delay)

    def _log(self, error: Exception) -> float:
        log.error("background work failed", exc_info=error, extra={"worker": self._thread.name})
        return _ERROR_SECONDS
