"""What a pause of this VM is put down to: the events that were under way then."""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from exporter.clock import Clock
from exporter.model.jobs import Pause
from exporter.model.lifecycle import TrackedEvent
from exporter.model.views import Snapshot

log = logging.getLogger(__name__)


class Interruptions:
    """Takes in what `exporter.watch.pauses` notices."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        count: Callable[[str, float], None],
        clock: Clock,
        *,
        report: Callable[[Pause], None],
    ) -> None:
        """Prepare; ``count`` is called with an event's type and the seconds of a pause."""
        self._snapshot = snapshot
        self._count = count
        self._clock = clock
        self._report = report

    def paused(self, seconds: float) -> None:
        """Count a pause for every type of event that was Started, report it, and log it."""
        events = self._under_way(seconds)
        for event_type in sorted({tracked.event.event_type for tracked in events}):
            self._count(event_type, seconds)
        if events:
            self._report(Pause(tuple(tracked.key for tracked in events), seconds))
        log.info("pause", extra={"seconds": seconds, **_facts(events)})

    def set_forward(self, seconds: float) -> None:
        """Log that the wall clock was set forward during an event: all that some pauses leave to be seen."""
        log.info("clock set forward", extra={"seconds": seconds, **_facts(self._under_way(seconds))})

    def _under_way(self, seconds: float) -> list[TrackedEvent]:
        # The poll after a pause may have found its event gone before the pause is told of.
        return self._snapshot().under_way(since=self._clock.now() - timedelta(seconds=seconds + 1))


def _facts(events: Sequence[TrackedEvent]) -> dict[str, object]:
    return {
        "event_ids": [tracked.event.event_id for tracked in events],
        "event_types": [tracked.event.event_type for tracked in events],
        "announced_seconds": [tracked.event.duration_seconds for tracked in events],
    }
