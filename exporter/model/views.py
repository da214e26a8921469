"""The snapshot of the watch, and the view of an event for API, messages and hooks.

The poller replaces the whole snapshot, so that neither the web server nor a scrape ever waits for it.
"""

from datetime import datetime
from typing import Literal

import msgspec

from exporter.model.events import STARTED, ScheduledEvent, Target, unreadable_not_before
from exporter.model.lifecycle import TrackedEvent, Transition, TransitionRecord
from exporter.model.vm import VirtualMachine

# Longer than any poll waits for IMDS.
_PATIENCE_SECONDS = 60.0


class Minute(msgspec.Struct, frozen=True):
    """Outcomes of the polls of one minute; ``reason`` is that of the last failed one."""

    at: datetime
    succeeded: int = 0
    failed: int = 0
    reason: str = ""


class Snapshot(msgspec.Struct, frozen=True):
    """The watch at one instant.

    ``up`` is true if the last poll gave a valid document; while it did not, ``current`` stays as last known.
    ``instance`` is None until this VM's name is known, ``vm`` until IMDS has returned the facts about it.
    ``ready`` is true from the first valid document of this process on. ``current`` and ``past`` are newest
    first. ``all_events`` and ``resources`` are settings of ``metrics``: whether events of other VMs, and
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
        """Return whether polling seems to hang: no poll has ended for too long after a success."""
        if not self.up or self.last_success is None:
            return False
        return (now - self.last_success).total_seconds() > _PATIENCE_SECONDS + 2 * self.poll_interval

    def under_way(self, since: datetime | None = None) -> list[TrackedEvent]:
        """Return the events known to affect this VM that are Started, or were at any time ``since`` then."""
        if self.instance is None:
            return []
        started = [tracked for tracked in self.current if tracked.event.event_status == STARTED]
        if since is not None:
            started += [
                t for t in self.past if t.has(Transition.STARTED) and t.ended is not None and t.ended >= since
            ]
        return [tracked for tracked in started if tracked.target is Target.SELF]

    def has_series(self, tracked: TrackedEvent) -> bool:
        """Return whether the event gets its own series, and its transitions are counted and traced."""
        return self.all_events or tracked.target is Target.SELF


class ApprovalView(msgspec.Struct, frozen=True):
    """The state of an event's approval, with rule and reason; None if there is none."""

    state: str | None = None
    rule: str | None = None
    reason: str | None = None


class EventView(msgspec.Struct, frozen=True):
    """An event and its life so far; times are aware and in UTC, None if unknown or not observed.

    ``impact_seconds`` is the time from started to ended if both were watched; ``paused_seconds`` is how long
    this VM was observed to pause meanwhile; ``doubts`` are those of `ScheduledEvent`.

    ``msgspec.json.encode`` converts it to the API's EVENT, with times in RFC 3339 ending in Z.
    """

    id: str
    ids: tuple[str, ...]
    type: str
    source: str
    status: str
    target: Target
    resources: tuple[str, ...]
    description: str
    not_before: datetime | None
    duration_seconds: int | None
    first_seen: datetime | None
    started: datetime | None
    ended: datetime | None
    outcome: Transition | None
    transitions: tuple[TransitionRecord, ...]
    approval: ApprovalView = ApprovalView()
    impact_seconds: float | None = None
    paused_seconds: float | None = None
    doubts: tuple[str, ...] = ()

    @property
    def not_before_unreadable(self) -> bool:
        """Whether there is a NotBefore in an unknown format."""
        return unreadable_not_before(self.doubts)

    def since(self, transition: Transition) -> datetime | None:
        """Return when a transition of this life was noticed; None if it was not."""
        return next((record.at for record in self.transitions if record.transition is transition), None)


class WorkView(msgspec.Struct, frozen=True):
    """A message to a target, or a run of a hook, that a transition of an event caused.

    ``state`` is the value of an `Outcome` or a `HookOutcome`, or ``pending``, or ``running``; "" if it ended
    without any. ``at`` is when it ended.
    """

    kind: Literal["message", "hook"]
    name: str
    transition: Transition | None
    state: str
    at: datetime | None


NO_APPROVAL = ApprovalView()


def event_view(tracked: TrackedEvent, approval: ApprovalView = NO_APPROVAL) -> EventView:
    """Return the view of a life of an event; ``id`` is the event's first id, which stays the same."""
    return msgspec.structs.replace(
        listed_view(tracked.event, tracked.target),
        id=tracked.ids[0],
        ids=tracked.ids,
        first_seen=tracked.first_seen,
        started=tracked.started,
        ended=tracked.ended,
        outcome=tracked.outcome,
        transitions=tracked.transitions,
        approval=approval,
        impact_seconds=tracked.impact_seconds,
        paused_seconds=tracked.paused_seconds,
    )


def listed_view(event: ScheduledEvent, target: Target) -> EventView:
    """Return the view of an event as listed in a document, without its life."""
    return EventView(
        id=event.event_id,
        ids=(event.event_id,),
        type=event.event_type,
        source=event.event_source,
        status=event.event_status,
        target=target,
        resources=event.resources,
        description=event.description,
        not_before=event.not_before,
        duration_seconds=event.duration_seconds,
        first_seen=None,
        started=None,
        ended=None,
        outcome=None,
        transitions=(),
        doubts=event.doubts,
    )
