"""How the polls of the last hour ended, minute by minute, for the page."""

from collections import deque
from datetime import datetime, timedelta

from msgspec.structs import replace

from exporter.errors import PollOutcome
from exporter.model.views import Minute

_MINUTES = 60


class Polls:
    """Counts polls; one thread writes, any may read."""

    def __init__(self) -> None:
        self._minutes: deque[Minute] = deque(maxlen=_MINUTES)

    def count(self, outcome: PollOutcome, at: datetime) -> None:
        """Count a poll that ended at a time."""
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
        """Return sixty minutes, oldest first; without polls where the exporter did not run or stood still."""
        known = {minute.at: minute for minute in tuple(self._minutes)}
        newest = now.replace(second=0, microsecond=0)
        times = (newest - timedelta(minutes=ago) for ago in range(_MINUTES - 1, -1, -1))
        return tuple(known.get(at, Minute(at)) for at in times)
