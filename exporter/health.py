"""Active problems of the exporter; each change is logged once."""

import logging
import threading
from datetime import datetime
from enum import StrEnum

import msgspec

from exporter.clock import Clock
from exporter.timefmt import format_duration

log = logging.getLogger(__name__)

_MOST_SKEW_SECONDS = 60.0


class DegradedReason(StrEnum):
    """The kind of a problem: label of the metric `degraded`, log field, and text on the page.

    That polls fail, ``IMDS_FAILING`` or ``IMDS_FORBIDDEN``, follows from the snapshot, and is not reported to
    `Health`; only that the facts about the VM are forbidden is.
    """

    IMDS_FAILING = "imds_failing"
    IMDS_FORBIDDEN = "imds_forbidden"
    STATE_UNWRITABLE = "state_unwritable"
    STATE_CORRUPT = "state_corrupt"
    INVALID_EVENT = "invalid_event"
    INSTANCE_UNKNOWN = "instance_unknown"
    INSTANCE_NAME_DIFFERS = "instance_name_differs"
    RELOAD_FAILED = "reload_failed"
    NOTIFICATIONS_FAILING = "notifications_failing"
    TRACING_FAILING = "tracing_failing"
    OTLP_FAILING = "otlp_failing"
    KUBERNETES_FAILING = "kubernetes_failing"
    CLOCK_SKEW = "clock_skew"


class Problem(msgspec.Struct, frozen=True):
    reason: DegradedReason
    message: str
    since: datetime
    subject: str = ""  # such as a target's name: it distinguishes problems of one kind

    @property
    def identity(self) -> tuple[DegradedReason, str]:
        """What stays the same while the message changes."""
        return self.reason, self.subject


class Health:
    """The active problems; thread-safe. Each start and each end is logged once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._problems: dict[tuple[DegradedReason, str], Problem] = {}

    def report(self, reason: DegradedReason, message: str, subject: str = "") -> None:
        """Report a problem, or the newest message of one."""
        with self._lock:
            problem = self._problems.get((reason, subject))
            if problem is not None and problem.message == message:
                return
            since = problem.since if problem else self._clock.now()
            self._problems[reason, subject] = Problem(reason, message, since, subject)
        log.warning("degraded", extra={"reason": reason.value, "problem": message})

    def clear(self, reason: DegradedReason, subject: str = "") -> None:
        with self._lock:
            problem = self._problems.pop((reason, subject), None)
        if problem is not None:
            log.info("recovered", extra={"reason": reason.value, "problem": problem.message})

    def check_clock(self, offset: float, other: str, effect: str, subject: str = "") -> None:
        """Report that this VM's clock is ahead of another one by over a minute, or behind it, or clear that.

        ``offset`` is in seconds, negative if it is behind. ``effect`` says what that leads to.
        """
        # The clock of a demo runs faster than any other.
        if abs(offset) <= _MOST_SKEW_SECONDS or self._clock.speed != 1:
            self.clear(DegradedReason.CLOCK_SKEW, subject)
            return
        # To the minute, so that a clock that drifts is logged rarely.
        minutes = format_duration(round(abs(offset) / 60) * 60.0)
        direction = "ahead of" if offset > 0 else "behind"
        problem = f"the clock of this VM is {minutes} {direction} that of {other}: {effect}"
        self.report(DegradedReason.CLOCK_SKEW, f"{problem}; set up NTP or chrony", subject)

    def problems(self) -> tuple[Problem, ...]:
        """Return the active problems, oldest first."""
        with self._lock:
            return tuple(self._problems.values())
