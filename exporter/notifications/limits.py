"""Time limits of threads of the sender process: a thread that exceeds its limit gets an exception.

A receiver that sends a byte a second, or a template that loops, cannot be ended in another way.
"""

import contextlib
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

_EVERY_SECONDS = 0.25
# Beyond the limit of CPU time, if the thread is in one long call of C.
_GRACE_SECONDS = 1.0


class TimeLimitError(BaseException):
    """A limit was exceeded; not an `Exception`, so that no plugin and no template handles it."""


def _interrupt(thread: int, error: type[BaseException] | None) -> None:
    """Raise an exception in a thread once it runs Python code again; None withdraws it."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(error) if error else None
    )


class Limits:
    """The limits of all threads; one further thread checks them while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._deadlines: dict[int, tuple[Callable[[], float], float]] = {}
        threading.Thread(target=self._check, name="limits", daemon=True).start()

    @contextlib.contextmanager
    def wall(self, seconds: float) -> Iterator[None]:
        """Limit the time of a block on this thread.

        Raises:
            TimeLimitError: it was exceeded, and repeatedly until the block ends.
        """
        with self._limit(time.monotonic, seconds):
            yield

    @contextlib.contextmanager
    def cpu(self, seconds: float) -> Iterator[None]:
        """Limit the CPU time of a block on this thread, or the time where CPU time is not known.

        Where the system can, it ends the process if the block stays in one long call of C.

        Raises:
            TimeLimitError: as for `wall`.
        """
        if sys.platform == "win32":
            with self.wall(seconds):
                yield
        else:
            clock = time.pthread_getcpuclockid(threading.get_ident())
            with self._limit(lambda: time.clock_gettime(clock), seconds):
                signal.setitimer(signal.ITIMER_PROF, seconds + _GRACE_SECONDS)
                try:
                    yield
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)

    @contextlib.contextmanager
    def _limit(self, clock: Callable[[], float], seconds: float) -> Iterator[None]:
        thread = threading.get_ident()
        with self._lock:
            self._deadlines[thread] = (clock, clock() + seconds)
            self._lock.notify()
        try:
            yield
        finally:
            while True:
                # The exception may arrive as late as here.
                with contextlib.suppress(TimeLimitError):
                    with self._lock:
                        self._deadlines.pop(thread, None)
                    _interrupt(thread, None)
                    break

    def _check(self) -> None:
        while True:
            with self._lock:
                if not self._deadlines:
                    self._lock.wait()
                for thread, (clock, deadline) in self._deadlines.items():
                    if clock() > deadline:
                        _interrupt(thread, TimeLimitError)
            time.sleep(_EVERY_SECONDS)
