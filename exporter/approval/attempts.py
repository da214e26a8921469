"""What failed so far of approving an event, and when it is tried again."""

import math

from exporter.clock import Clock
from exporter.work import Backoff

_LONGEST_RETRY_SECONDS = 20.0


class FailedAttempts:
    """Attempts to approve an event that failed so far; ``try_at`` is on the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        # Without chance: of an event's VMs one leads, so that they do not try in step.
        self.backoff = Backoff(
            clock, early=math.inf, early_longest=_LONGEST_RETRY_SECONDS, chance=lambda: 0.0
        )
        self.rule = ""
        self.try_at = 0.0
        self.problem = ""
        self.given_up = False

    @property
    def reason(self) -> str:
        """Return what is wrong."""
        return f"given up, as NotBefore has passed: {self.problem}" if self.given_up else self.problem
