"""How often IMDS is asked: never beyond its rate limit, and less often while it fails."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable

from exporter.clock import Clock
from exporter.errors import ImdsError, PollOutcome
from exporter.work import Backoff

# IMDS answers 429 to more than 5 requests a second and VM. Requests do not all travel equally fast: a margin.
_REQUESTS = 5
_WINDOW_SECONDS = 1.05

_SHORTEST_SECONDS = 0.2


class RateLimiter:
    """Allows 5 requests a second, in the order in which they were asked for; shared by threads.

    ``wait`` sleeps for a number of seconds; if it returns early, the request is given up.
    """

    def __init__(self, clock: Clock, wait: Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._slots: deque[float] = deque(maxlen=_REQUESTS)

    def wait(self) -> None:
        """Wait until a request may be sent.

        Raises:
            ImdsError: the wait was interrupted; the reason is ``THROTTLED``.
        """
        with self._lock:
            slot = self._clock.monotonic()
            if len(self._slots) == _REQUESTS:
                slot = max(slot, self._slots[0] + _WINDOW_SECONDS)
            self._slots.append(slot)
        # Some systems' clocks tick coarsely enough for a full sleep to seem a little short.
        for _ in range(3):
            left = slot - self._clock.monotonic()
            if left <= 0:
                return
            self._wait(left)
        if self._clock.monotonic() < slot:
            raise ImdsError(
                PollOutcome.THROTTLED, "not sent: interrupted while keeping to 5 requests a second"
            )


class PollPauses:
    """The pauses between polls; used by one thread. ``interval`` is in seconds, from start to start.

    After failures they grow to at most 10 s during the first minute, and to at most 30 s after that.
    """

    def __init__(self, interval: float, *, clock: Clock, chance: Callable[[], float] = random.random) -> None:
        self._interval = interval
        self._backoff = Backoff(
            clock,
            first=max(interval, _SHORTEST_SECONDS),
            early=60.0,
            early_longest=10.0,
            longest=30.0,
            chance=chance,
        )

    def after(self, success: bool, took: float) -> float:
        """Return the seconds to pause after a poll that took ``took`` seconds.

        After a success the next poll starts ``interval`` after the start of this one, or in 0.2 s if that is
        later.
        """
        if not success:
            return self._backoff.failed()
        self._backoff.succeeded()
        return max(self._interval - took, _SHORTEST_SECONDS)
