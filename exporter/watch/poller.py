"""The loop that polls: once per interval, and less often while IMDS fails."""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec.structs import replace

from exporter.clock import Clock
from exporter.config import Config
from exporter.errors import PollOutcome
from exporter.imds.client import ImdsClient, PollPauses
from exporter.inbox import Inbox
from exporter.model.views import Minute
from exporter.watch.pauses import Sleep
from exporter.watch.watch import Watch
from exporter.work import Loop, Watchdog

log = logging.getLogger(__name__)

# The thread counts as hanging if it does not run for this long after its pause.
_PAUSE_GRACE_SECONDS = 60.0
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
        known = {minute.at: minute for minute in tuple(self._minutes)}
        newest = now.replace(second=0, microsecond=0)
        times = (newest - timedelta(minutes=ago) for ago in range(_MINUTES - 1, -1, -1))
        return tuple(known.get(at, Minute(at)) for at in times)


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
        # Before it IMDS has asked for no request.
        self._retry_at = -math.inf
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
        """Record findings, and poll if due; return the seconds until the next poll."""
        self._note_sleep()
        self._take_over()
        if self._client is None:
            raise RuntimeError("configure() comes before start()")
        self._watchdog.expect("poller", "the poll", self._client.longest_poll)
        delay = self._work(self._client)
        self._watchdog.expect("poller", "the pause between two polls", delay + _PAUSE_GRACE_SECONDS)
        self._sleep.begin(delay, during_event=self._watch.is_eventful)
        return delay

    def _note_sleep(self) -> None:
        paused, set_forward = self._sleep.end(), self._sleep.step()
        if paused:
            self._watch.paused(paused)
        if set_forward:
            self._watch.clock_set(set_forward)

    def _work(self, client: ImdsClient) -> float:
        self._watch.record_findings()
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
