"""What the readers see: one immutable picture of the whole watch, swapped whole by the poller.

The web server and the metrics read it and nothing else, so that no reader ever waits for the poller.
"""

from datetime import datetime

import msgspec

from exporter.model.events import STARTED, Target
from exporter.model.lifecycle import TrackedEvent, Transition
from exporter.model.vm import VirtualMachine

# A poll that waits for IMDS has failed long before.
_PATIENCE_SECONDS = 60.0


class Minute(msgspec.Struct, frozen=True):
    """How the polls of one minute ended; ``reason`` is the outcome of the last that failed."""

    at: datetime
    succeeded: int = 0
    failed: int = 0
    reason: str = ""


class Snapshot(msgspec.Struct, frozen=True):
    """The watch at one instant.

    ``up`` is true if the last poll gave a valid document; while it did not, ``current`` stays as last
    known. ``instance`` is None until this VM knows its own name, ``vm`` until IMDS has told the facts about
    it. ``ready`` holds from the first valid document of this process on. ``current`` and ``past`` are newest
    first. ``all_events`` and ``resources`` are the settings of ``metrics``: whether events of other VMs, and
    single resources, have series. ``poll_interval`` is in seconds.
    """

    endpoint: str = ""
    instance: str | None = None
    vm: VirtualMachine | None = None
    up: bool = False
    ready: bool = False
    last_success: datetime | None = None
    incarnation: int | None = None
    last_error: str = ""
    current: tuple[TrackedEvent, ...] = ()
    past: tuple[TrackedEvent, ...] = ()
    all_events: bool = False
    resources: bool = False
    poll_interval: float = 1.0

    def stands_still(self, now: datetime) -> bool:
        """Return whether polling seems to hang: after a success, no poll has ended for too long."""
        if not self.up or self.last_success is None:
            return False
        return (now - self.last_success).total_seconds() > _PATIENCE_SECONDS + 2 * self.poll_interval

    def under_way(self, since: datetime | None = None) -> list[TrackedEvent]:
        """List the events known to affect this VM that are Started, or have been ``since`` then."""
        if self.instance is None:
            return []
        started = [tracked for tracked in self.current if tracked.event.event_status == STARTED]
        if since is not None:
            started += [
                t for t in self.past if t.has(Transition.STARTED) and t.ended is not None and t.ended >= since
            ]
        return [tracked for tracked in started if tracked.target is Target.SELF]

    def has_series(self, tracked: TrackedEvent) -> bool:
        """Return whether the event gets series of its own, and its transitions are counted and traced."""
        return self.all_events or tracked.target is Target.SELF
