"""Limits of the sender process: the length of what receivers answer, and the time of its threads.

A thread that exceeds its limit gets an exception: a receiver that sends a byte a second, or a template that
loops, cannot be ended in another way.
"""

import contextlib
import ctypes
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import requests

_MOST_ANSWER = 2**18
_EVERY_SECONDS = 0.25
# Beyond the limit of CPU time, if the thread is in one long call of C.
_GRACE_SECONDS = 1.0


class TimeLimitError(BaseException):
    """A limit was exceeded; not an `Exception`, so that no plugin and no template handles it."""


class AnswerTooLargeError(requests.RequestException):
    """A receiver's answer is too large; plugins handle it as they do a broken connection."""


class _BoundedSocketIO(socket.SocketIO):
    """What `http.client` reads a response from, and `smtplib` all replies of a connection."""

    _length = 0

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        self._length += count or 0
        if self._length > _MOST_ANSWER:
            raise AnswerTooLargeError
        return count


def bound_answers() -> None:
    """Limit what this process reads of an answer, and to what size a compressed one is unpacked.

    Plugins read answers whole, and neither they nor requests have a setting for this. Without it, an answer
    would only end at the limit of the process' memory, which all attempts share: those of other targets
    would fail with it, or end with the process, and count as unanswered. `socket.makefile` looks its class
    up by name.
    """
    unbounded = requests.Response.iter_content

    def iter_content(response: requests.Response, *args: Any, **options: Any) -> Iterator[Any]:
        length = 0
        for chunk in unbounded(response, *args, **options):
            length += len(chunk)
            if length > _MOST_ANSWER:
                raise AnswerTooLargeError
            yield chunk

    # mypy allows no assignment to a method or to a class, which is all that can be done here.
    requests.Response.iter_content = iter_content  # type: ignore[assignment, method-assign]
    socket.SocketIO = _BoundedSocketIO  # type: ignore[misc]


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
    def cpu(self, seconds: float) -> Iterator[None]:
        """Limit the CPU time of a block on this thread, or the time where CPU time is not known.

        Where the system can, it ends the process if the block stays in one long call of C.

        Raises:
            TimeLimitError: as for `limited`.
        """
        if sys.platform == "win32":
            with self.limited(seconds):
                yield
        else:
            clock = time.pthread_getcpuclockid(threading.get_ident())
            with self.limited(seconds, lambda: time.clock_gettime(clock)):
                signal.setitimer(signal.ITIMER_PROF, seconds + _GRACE_SECONDS)
                try:
                    yield
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)

    @contextlib.contextmanager
    def limited(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
        """Limit the time of a block on this thread.

        Raises:
            TimeLimitError: it was exceeded, and repeatedly until the block ends.
        """
        thread, deadline = threading.get_ident(), clock() + seconds
        with self._lock:
            self._deadlines[thread] = (clock, deadline)
            self._lock.notify()
        try:
            yield
        finally:
            while True:
                # The exception may arrive as late as here.
                with contextlib.suppress(TimeLimitError):
                    with self._lock:
                        self._deadlines.pop(thread, None)
                    if clock() > deadline:
                        # Only then: in CPython 3.11, a tracer loops forever after a withdrawal.
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
