"""How often IMDS is asked: never beyond its rate limit, and less often while it fails."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable

from exporter.clock import Clock
from exporter.errors import ImdsError, PollOutcome

# IMDS answers 429 to more than 5 requests a second and VM. Requests do not all travel equally fast: a margin.
_REQUESTS = 5
_WINDOW_SECONDS = 1.05

_SHORTEST_SECONDS = 0.2
_FIRST_MINUTE = 60.0
_LONGEST_IN_FIRST_MINUTE = 10.0
_LONGEST = 30.0


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


def next_delay(failures: int, failing_for: float, interval: float, chance: float) -> float:
    """Return the seconds to pause after the latest of ``failures`` failures in a row.

    The pause doubles with every failure, and ``chance`` (0 to 1) varies it so that a fleet does not come back
    in step. It is at most 10 s while ``failing_for`` (seconds) is under a minute, and at most 30 s after
    that. Within these bounds it is at least the poll ``interval`` and 0.2 s.
    """
    shortest = max(interval, _SHORTEST_SECONDS)
    longest = _LONGEST_IN_FIRST_MINUTE if failing_for < _FIRST_MINUTE else _LONGEST
    pause = min(shortest * 2.0 ** min(failures, 10), longest)
    return min(max(pause * (0.5 + chance / 2), shortest), longest)


class Backoff:
    """The pauses between polls; used by one thread. ``interval`` is in seconds, from start to start."""

    def __init__(self, interval: float, *, clock: Clock, chance: Callable[[], float] = random.random) -> None:
        self._interval = interval
        self._clock = clock
        self._chance = chance
        self._failures = 0
        self._failing_since = 0.0

    def after(self, success: bool, took: float) -> float:
        """Return the seconds to pause after a poll that took ``took`` seconds.

        After a success the next poll starts ``interval`` after the start of this one, or in 0.2 s if that is
        later; after a failure `next_delay` applies.
        """
        if success:
            self._failures = 0
            return max(self._interval - took, _SHORTEST_SECONDS)
        now = self._clock.monotonic()
        if self._failures == 0:
            self._failing_since = now
        self._failures += 1
        return next_delay(self._failures, now - self._failing_since, self._interval, self._chance())
