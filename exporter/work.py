"""Background work: loops on threads, back-off, a watchdog, and reports to the watch."""

import contextlib
import logging
import math
import queue
import random
import threading
from collections.abc import Callable

import msgspec

from exporter.clock import Clock
from exporter.model.reports import WorkerReport

log = logging.getLogger(__name__)

_ERROR_SECONDS = 20.0  # after an exception of a step
# Between two checks. In a longer gap the VM was frozen, the process suspended or the machine busy.
_LONGEST_STEP = 10.0


class Loop:
    """Calls ``step`` on its own thread until `stop`, which sets ``stopping``; thread-safe.

    ``step`` does one piece of work and returns the seconds until its next call: 0 for immediately, None for
    not before `wake`. ``failed`` is called with an exception of ``step`` and also returns the seconds;
    without it the exception is logged, and the next call is 20 s later.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        *,
        failed: Callable[[Exception], float | None] | None = None,
    ) -> None:
        self.name = name
        self._step = step
        self._failed = failed or self._log
        # Waiting for it takes less CPU than for an Event: the poller does so once a second.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.stopping = False
        # A step may wait for a peer for minutes; that must not keep the process from exiting.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, unless it was started before or the loop has been stopped."""
        with self._lock:
            if self._thread.ident is None and not self.stopping:
                self._thread.start()

    def wake(self) -> None:
        """Call the step now, or once more after the call in progress."""
        # One is enough, and those of a loop that does not run would become ever more.
        if self._wakes.empty():
            self._wakes.put(None)

    def stop(self) -> None:
        """Make the thread end after the call in progress."""
        with self._lock:
            self.stopping = True
        self.wake()

    def join(self, timeout: float) -> bool:
        """Wait for the thread, and return whether it ended within ``timeout`` seconds."""
        if self._thread.ident is not None:
            self._thread.join(max(timeout, 0.0))
        return not self._thread.is_alive()

    def turn(self) -> float | None:
        """Call the step once, in this thread, and return the seconds until its next call."""
        try:
            return self._step()
        except Exception as error:  # noqa: BLE001  # the thread would end unnoticed
            return self._failed(error)

    def _run(self) -> None:
        while not self.stopping:
            while not self._wakes.empty():
                self._wakes.get()
            delay = self.turn()
            if delay is None or delay > 0:
                with contextlib.suppress(queue.Empty):
                    self._wakes.get(timeout=delay)

    def _log(self, error: Exception) -> float:
        log.error("background work failed", exc_info=error, extra={"worker": self.name})
        return _ERROR_SECONDS


class Backoff:
    """The pauses after consecutive failures; used by one thread. All times are in seconds.

    The pause starts at ``first`` and doubles with every failure. It is at most ``early_longest`` while the
    failures have lasted for less than ``early``, and at most ``longest`` after that. ``chance`` (0 to 1)
    takes up to half of it off, so that the VMs of a fleet do not retry at the same time; within these bounds
    it is at least ``first``.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        first: float = 1.0,
        early: float = 120.0,
        early_longest: float = 20.0,
        longest: float = 300.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._first = first
        self._early = early
        self._early_longest = early_longest
        self._longest = longest
        self._chance = chance
        self.failures = 0

    def succeeded(self) -> None:
        self.failures = 0

    def failed(self, took: float = 0.0) -> float:
        """Return the pause after another failure; ``took`` is the duration of the attempt.

        Early on, an attempt begins at most ``early_longest`` after the failed one began, or ``first`` after
        the end of one that took longer.
        """
        now = self._clock.monotonic()
        if not self.failures:
            self._failing_since = now
        self.failures += 1
        early = now - self._failing_since < self._early
        longest = self._early_longest if early else self._longest
        pause = min(self._first * 2.0 ** min(self.failures - 1, 20), longest - took if early else longest)
        return max(pause * (1 - self._chance() / 2), min(self._first, longest))


class _Work(msgspec.Struct, eq=False):
    what: str
    seconds: float
    left: float


class Watchdog:
    """The time limit of the work in progress; `check` is for one thread, `expect` for any.

    Of the time between two checks at most 10 s count, so that a freeze of the VM does not use up the limit.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._work = _Work("", math.inf, math.inf)
        self._checked = clock.monotonic()

    def expect(self, what: str, seconds: float) -> None:
        """Expect the next call within this many seconds."""
        self._work = _Work(what, seconds, seconds)

    def check(self) -> str | None:
        """Return a sentence about work that exceeds its limit; None if it does not."""
        now, work = self._clock.monotonic(), self._work
        work.left -= min(now - self._checked, _LONGEST_STEP)
        self._checked = now
        return f"{work.what} has not ended within {work.seconds:g} s" if work.left < 0 else None


class Inbox:
    """Reports for the watch; any thread may put, the poller takes."""

    def __init__(self) -> None:
        self._reports: queue.SimpleQueue[WorkerReport] = queue.SimpleQueue()
        self._poller: Loop | None = None

    def connect(self, poller: Loop) -> None:
        """Set the loop that takes the reports."""
        self._poller = poller

    def put(self, *reports: WorkerReport) -> None:
        """Queue reports, and wake the poller; without any, it decides about approvals again."""
        for report in reports:
            self._reports.put(report)
        if self._poller is not None:
            self._poller.wake()

    def take(self) -> list[WorkerReport]:
        """Return the reports queued so far, oldest first."""
        return [self._reports.get() for _ in range(self._reports.qsize())]
