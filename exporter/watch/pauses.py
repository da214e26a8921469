"""Detection of pauses of the VM, by how much later than asked the poller's thread wakes up.

A pause is visible if the guest's monotonic clock continues during it. It cannot be detected:

- A pause during which the guest's clocks stop, too. Azure's documentation of time synchronisation says that
  after a pause of 28 seconds the VM's clock is 28 seconds behind until the host's time service corrects it
  (https://learn.microsoft.com/azure/virtual-machines/linux/time-sync). Such a pause is visible only as a step
  forward of the wall clock afterwards, which NTP and administrators cause, too.
- The reason why this process stopped. SIGSTOP, a frozen cgroup, a debugger, and memory that has to be read
  back from a slow disk look the same. The time for which the thread waits for a processor is known to Linux,
  and does not count.
- A pause while a request to IMDS is under way, and that part of a pause that falls into the sleep between two
  polls: each is measured up to the length of the sleep too short.
"""

import contextlib
import logging
import os
import sys

from exporter.clock import Clock, ahead

log = logging.getLogger(__name__)

LEAST_SECONDS = 1.0


class Sleep:
    """Measures how much longer than asked the calling thread slept; for one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._schedstat: int | None = None
        self._until: float | None = None
        self._ahead: float | None = None
        self._waited = 0.0

    def begin(self, seconds: float, *, during_event: bool = False) -> None:
        """Note that the thread is going to sleep; only during an event the wall clock is watched, too."""
        self._until = self._clock.monotonic() + seconds
        self._ahead = ahead(self._clock) if during_event else None
        self._waited = self._run_delay()

    def end(self) -> float:
        """Return the seconds for which the VM stood still during the sleep; 0 if that is less than 1 s."""
        if self._until is None:
            return 0.0
        late = self._clock.monotonic() - self._until
        if late >= LEAST_SECONDS:
            late -= max(self._run_delay() - self._waited, 0.0)
        return late if late >= LEAST_SECONDS else 0.0

    def step(self) -> float:
        """Return by how many seconds the wall clock was set forward during the sleep; 0 for less than 1 s."""
        if self._ahead is None:
            return 0.0
        step = ahead(self._clock) - self._ahead
        return step if step >= LEAST_SECONDS else 0.0

    def _run_delay(self) -> float:
        """Return the seconds for which this thread has waited for a processor; 0 where that is not known."""
        if sys.platform != "win32":
            with contextlib.suppress(OSError, IndexError, ValueError):
                # Kept open, because opening takes eight times as long as reading, once a second.
                if self._schedstat is None:
                    self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                # Nanoseconds (https://docs.kernel.org/scheduler/sched-stats.html).
                return int(os.pread(self._schedstat, 100, 0).split()[1]) / 1e9
        return 0.0

    def close(self) -> None:
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None
