"""The loop that polls: once per interval, and less often while IMDS fails.

It also detects pauses of the VM, by how much later than asked its thread wakes up. A pause is visible if the
guest's monotonic clock continues during it. It cannot be detected:

- A pause during which the guest's clocks stop, too. Azure's documentation of time synchronisation says that
  after a pause of 28 seconds the VM's clock is 28 seconds behind until the host's time service corrects it
  (https://learn.microsoft.com/azure/virtual-machines/linux/time-sync). A step forward of the wall clock
  follows, which NTP and administrators cause, too.
- The reason why this process stopped. SIGSTOP, a frozen cgroup, a debugger, and memory that has to be read
  back from a slow disk look the same. The time for which the thread waits for a processor is known to Linux,
  and does not count.
- A pause while a request to IMDS is under way, and that part of a pause that falls into the sleep between two
  polls: each is measured up to the length of the sleep too short.
"""

import contextlib
import logging
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec.structs import replace

from exporter.clock import Clock
from exporter.config import Config
from exporter.errors import PollOutcome
from exporter.imds.client import ImdsClient, PollPauses
from exporter.model.views import Minute
from exporter.watch.watch import Watch
from exporter.work import Inbox, Loop, Watchdog

log = logging.getLogger(__name__)

LEAST_SECONDS = 1.0


class Sleep:
    """Measures how much longer than asked the calling thread slept; for one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._schedstat: int | None = None
        self._until: float | None = None
        self._waited = 0.0

    def begin(self, seconds: float) -> None:
        """Record that the thread is going to sleep."""
        self._until = self._clock.monotonic() + seconds
        self._waited = self._run_delay()

    def end(self) -> float:
        """Return the seconds for which the VM stood still during the sleep; 0 if that is less than 1 s."""
        if self._until is None:
            return 0.0
        late = self._clock.monotonic() - self._until
        if late >= LEAST_SECONDS:
            late -= max(self._run_delay() - self._waited, 0.0)
        return late if late >= LEAST_SECONDS else 0.0

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


_PAUSE_GRACE_SECONDS = 60.0  # the thread counts as hanging if it does not run for this long after its pause
_MINUTES = 60


class Polls:
    """Outcomes of the last hour's polls, by minute; one thread writes, any may read."""

    def __init__(self) -> None:
        self._minutes: deque[Minute] = deque(maxlen=_MINUTES)

    def count(self, outcome: PollOutcome, at: datetime) -> None:
        begun = at.replace(second=0, microsecond=0)
        if not self._minutes or self._minutes[-1].at != begun:
            self._minutes.append(Minute(begun))
        last = self._minutes[-1]
        if outcome is PollOutcome.SUCCESS:
            fresh = replace(last, succeeded=last.succeeded + 1)
        else:
            fresh = replace(last, failed=last.failed + 1, reason=outcome.value)
        self._minutes[-1] = fresh

    def last_hour(self, now: datetime) -> tuple[Minute, ...]:
        """Return sixty minutes, oldest first; those in which the exporter did not run have no polls."""
        minutes = {minute.at: minute for minute in tuple(self._minutes)}
        newest = now.replace(second=0, microsecond=0)
        times = (newest - timedelta(minutes=ago) for ago in range(_MINUTES - 1, -1, -1))
        return tuple(minutes.get(at, Minute(at)) for at in times)


class Poller:
    """Polls on its own thread; ``died`` is called there if an unexpected error ends it."""

    def __init__(
        self, watch: Watch, inbox: Inbox, clock: Clock, watchdog: Watchdog, *, died: Callable[[], None]
    ) -> None:
        self._watch = watch
        self._clock = clock
        self._watchdog = watchdog
        self._died = died
        self._lock = threading.Lock()
        self._next: tuple[Config, ImdsClient] | None = None
        self._client: ImdsClient | None = None
        self._sleep = Sleep(clock)
        self._due = -math.inf
        self._retry_at = -math.inf  # before it IMDS has asked for no request
        self.polls = Polls()
        self._loop = Loop("poller", self._step, failed=self._die)
        inbox.connect(self._loop)

    def configure(self, config: Config, client: ImdsClient) -> None:
        """Set the configuration and the client for the next polls, and poll now."""
        with self._lock:
            replaced, self._next = self._next, (config, client)
        if replaced is not None:
            replaced[1].close()
        self._loop.wake()

    def start(self) -> None:
        """Start polling; call `configure` first."""
        self._loop.start()

    def stop(self, timeout: float) -> bool:
        """Stop polling; return whether the thread ended within ``timeout`` seconds."""
        self._loop.stop()
        ended = self._loop.join(timeout)
        if ended and self._client is not None:
            self._client.close()
        self._sleep.close()
        return ended

    def _step(self) -> float:
        """Record reports, and poll if due; return the seconds until the next poll."""
        self._record_sleep()
        self._take_over()
        if self._client is None:
            raise RuntimeError("configure() comes before start()")
        self._watchdog.expect("the poll", self._client.longest_poll)
        delay = self._work(self._client)
        self._watchdog.expect("the pause between two polls", delay + _PAUSE_GRACE_SECONDS)
        self._sleep.begin(delay)
        return delay

    def _record_sleep(self) -> None:
        paused = self._sleep.end()
        if paused:
            self._watch.paused(paused)

    def _work(self, client: ImdsClient) -> float:
        self._watch.record_reports()
        started = self._clock.monotonic()
        left = self._due - started
        if left > 0 and (not self._watch.look() or started < self._retry_at):
            return min(left, self._watch.patience)
        error = self._watch.poll(client)
        # A reload during the poll may forbid them.
        if error is None and self._next is None:
            self._watch.approve()
        ended = self._clock.monotonic()
        self.polls.count(PollOutcome.SUCCESS if error is None else error.reason, self._clock.now())
        delay = self._pauses.after(error, ended - started)
        self._due = ended + delay
        self._retry_at = ended + error.retry_after if error else -math.inf
        return min(delay, self._watch.patience)

    def _take_over(self) -> None:
        with self._lock:
            given, self._next = self._next, None
        if given is None:
            return
        if self._client is not None:
            self._client.close()
        config, self._client = given
        self._watch.configure(config, self._client)
        self._pauses = PollPauses(config.imds.poll_interval, clock=self._clock)
        self._due = -math.inf

    def _die(self, error: Exception) -> None:
        log.error("poller failed", exc_info=error)
        self._loop.stop()
        self._died()
