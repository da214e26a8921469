"""An event as the outside sees it: one shape for API, notifications, hooks and ``events --json``."""

from datetime import datetime

import msgspec

from exporter.events import Target
from exporter.lifecycle import TrackedEvent, Transition, TransitionRecord


class ApprovalView(msgspec.Struct, frozen=True):
    """What was decided about approving an event, by which rule, and why; None where nothing was."""

    state: str | None = None
    rule: str | None = None
    reason: str | None = None


class EventView(msgspec.Struct, frozen=True):
    """An event and its life so far; times are aware and in UTC, None where unknown.

    ``msgspec.json.encode`` turns it into the API's EVENT, with times as RFC 3339 ending in Z.
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
    first_seen: datetime
    started: datetime | None
    ended: datetime | None
    outcome: Transition | None
    transitions: tuple[TransitionRecord, ...]
    approval: ApprovalView = ApprovalView()


NO_APPROVAL = ApprovalView()


def event_view(tracked: TrackedEvent, target: Target, approval: ApprovalView = NO_APPROVAL) -> EventView:
    """Show an event: ``id`` is its first id, which stays the same for all its life."""
    event = tracked.event
    return EventView(
        id=tracked.ids[0],
        ids=tracked.ids,
        type=event.event_type,
        source=event.event_source,
        status=event.event_status,
        target=target,
        resources=event.resources,
        description=event.description,
        not_before=event.not_before,
        duration_seconds=event.duration_seconds,
        first_seen=tracked.first_seen,
        started=tracked.started,
        ended=tracked.ended,
        outcome=tracked.outcome,
        transitions=tracked.transitions,
        approval=approval,
    )
