"""What a pause of this VM is put down to: the events that were under way then."""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from exporter.clock import Clock
from exporter.model.lifecycle import TrackedEvent
from exporter.model.snapshot import Snapshot

log = logging.getLogger(__name__)


class Counts(Protocol):
    """What is needed of `exporter.metrics.Metrics`."""

    def paused(self, event_type: str, seconds: float) -> None:
        """Count a pause that was noticed while an event of this type was Started."""
        ...


class Interruptions:
    """Takes in what `exporter.watch.pauses` notices."""

    def __init__(self, snapshot: Callable[[], Snapshot], counts: Counts, clock: Clock) -> None:
        self._snapshot = snapshot
        self._counts = counts
        self._clock = clock

    def paused(self, seconds: float) -> None:
        """Count a pause for every type of event that was Started, and log it beside what was announced."""
        events = self._under_way(seconds)
        for event_type in sorted({tracked.event.event_type for tracked in events}):
            self._counts.paused(event_type, seconds)
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
