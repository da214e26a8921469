"""The last resort against work that hangs: the process ends, and its supervisor starts it again."""

import contextlib
import threading
from collections.abc import Iterator

import msgspec

from exporter.clock import Clock

# Checks come once a second. After a longer gap the VM was frozen, the process suspended or the machine busy.
_LONGEST_STEP = 2.0


class _Work(msgspec.Struct, eq=False):
    what: str
    seconds: float
    left: float


class Watchdog:
    """Knows the work under way and how long it may take; `check` is for one thread, all else for any.

    Only the time between checks counts, and of each gap at most 2 s. A frozen VM makes the clock jump; what
    was under way meanwhile keeps the time that it had left.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way: set[_Work] = set()
        self._expected: dict[str, _Work] = {}
        self._checked = clock.monotonic()

    @contextlib.contextmanager
    def limit(self, what: str, seconds: float) -> Iterator[None]:
        """Expect the block to end within some seconds."""
        work = _Work(what, seconds, seconds)
        with self._lock:
            self._under_way.add(work)
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard(work)

    def expect(self, who: str, what: str, seconds: float) -> None:
        """Expect the next call for ``who`` within some seconds: there is always something under way there."""
        with self._lock:
            self._expected[who] = _Work(what, seconds, seconds)

    def check(self) -> str | None:
        """Return what has been under way for too long, as a sentence; None if there is nothing."""
        now = self._clock.monotonic()
        step, self._checked = min(now - self._checked, _LONGEST_STEP), now
        with self._lock:
            under_way = [*self._under_way, *self._expected.values()]
        for work in under_way:
            work.left -= step
        hanging = [work for work in under_way if work.left < 0]
        return f"{hanging[0].what} has not ended within {hanging[0].seconds:g} s" if hanging else None
