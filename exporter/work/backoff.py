"""Pauses between attempts while something fails."""

import random
from collections.abc import Callable

from exporter.clock import Clock


class Backoff:
    """The pauses after failures in a row; used by one thread. All times are in seconds.

    The pause starts at ``first`` and doubles with every failure. It is at most ``early_longest`` while the
    failures have lasted for less than ``early``, and at most ``longest`` after that. ``chance`` (0 to 1)
    takes up to half of it off, so that a fleet does not come back in step; within these bounds it is at
    least ``first``.
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
        self._failing_since = 0.0
        self.failures = 0

    def succeeded(self) -> None:
        """Start over."""
        self.failures = 0

    def failed(self, took: float = 0.0) -> float:
        """Return the pause after one more failure; ``took`` is how long the attempt lasted.

        Early on, pause and attempt together last ``early_longest`` at most, or ``took`` and ``first``.
        """
        now = self._clock.monotonic()
        if not self.failures:
            self._failing_since = now
        self.failures += 1
        early = now - self._failing_since < self._early
        longest = self._early_longest if early else self._longest
        pause = min(self._first * 2.0 ** min(self.failures - 1, 20), longest - took if early else longest)
        return max(pause * (1 - self._chance() / 2), min(self._first, longest))
