"""How long ago a life began, or an approval was given: steps of the wall clock make nothing come earlier."""

from collections.abc import Iterable
from datetime import datetime

from exporter.clock import Clock
from exporter.model.lifecycle import Known, TrackedEvent
from exporter.state.jobs import Approval

_HOUR = 3600.0


class Ages:
    """Counts by the monotonic clock within this process, and by the wall clock what came before it."""

    def __init__(self, clock: Clock, known: Known) -> None:
        """Prepare at the start of the process; ``known`` is what the process before it left."""
        self._clock = clock
        self._started_at = clock.now()
        self._started = clock.monotonic()
        self._inherited = frozenset(known.current)
        self._begun: dict[str, float] = {}
        self._approved: dict[str, float] = {}

    def note(self, current: Iterable[TrackedEvent]) -> None:
        """Note when lives begin; call it whenever the current ones change."""
        now = self._clock.monotonic()
        self._begun = {
            life.key: self._begun.get(life.key, now) for life in current if life.key not in self._inherited
        }

    def of_life(self, life: TrackedEvent) -> float:
        """Return for how many seconds a life has lasted; 0 for one that was not noted."""
        if life.key in self._inherited:
            return self._since_before(life.first_seen)
        now = self._clock.monotonic()
        return now - self._begun.get(life.key, now)

    def note_approval(self, key: str) -> None:
        """Note that a life is approved now."""
        self._approved[key] = self._clock.monotonic()

    def count_recent(self, approvals: Iterable[Approval], *, but: str) -> int:
        """Count the approvals of the last hour, but for one, by its key."""
        now = self._clock.monotonic()
        ages = (
            now - self._approved[one.key] if one.key in self._approved else self._since_before(one.decided)
            for one in approvals
            if one.key != but
        )
        return sum(age < _HOUR for age in ages)

    def _since_before(self, at: datetime) -> float:
        """Return the seconds since a moment before this process."""
        before = max((self._started_at - at).total_seconds(), 0.0)
        return before + self._clock.monotonic() - self._started
