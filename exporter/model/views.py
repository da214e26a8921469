"""The snapshot of the watch, and the view of an event for API, messages and hooks.

The poller replaces the whole snapshot, so that neither the web server nor a scrape ever waits for it.
"""

import math
from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Literal

import msgspec

from exporter.health import DegradedReason
from exporter.model.events import (
    REBALANCE,
    SCHEDULED,
    STARTED,
    Affected,
    ScheduledEvent,
    unreadable_not_before,
)
from exporter.model.lifecycle import Life, Transition, TransitionRecord
from exporter.model.vm import VirtualMachine

# Longer than any poll waits for IMDS.
_PATIENCE_SECONDS = 60.0


class Minute(msgspec.Struct, frozen=True):
    """Outcomes of the polls of one minute; ``reason`` is that of the last failed one."""

    at: datetime
    succeeded: int = 0
    failed: int = 0
    reason: str = ""


class UnannouncedPause(msgspec.Struct, frozen=True):
    """A pause of this VM that ended ``at`` a time, while no event was Started for it."""

    at: datetime
    seconds: float


class Snapshot(msgspec.Struct, frozen=True):
    """The watch at one instant.

    ``up`` is true if the last poll gave a valid document; while it did not, ``current`` stays as last known.
    ``instance`` is None until this VM's name is known, ``vm`` until IMDS has returned the facts about it.
    ``ready`` is true from the first valid document of this process on. ``current`` is sorted by `urgency`,
    ``past`` newest first. ``all_events`` and ``resources`` are settings of ``metrics``: whether events of
    other VMs, and single resources, have series. ``poll_interval`` is in seconds.
    ``last_error`` is why the last poll failed, ``last_status`` the HTTP status of that answer, 0 without one.
    ``last_pause`` is the newest pause of this VM that no event announced. ``instance_api_version`` is that of
    ``vm``.
    """

    endpoint: str = ""
    api_version: str = ""
    instance_api_version: str = ""
    instance: str | None = None
    vm: VirtualMachine | None = None
    up: bool = False
    ready: bool = False
    last_success: datetime | None = None
    incarnation: int | None = None
    last_error: str = ""
    last_status: int = 0
    current: tuple[Life, ...] = ()
    past: tuple[Life, ...] = ()
    all_events: bool = False
    resources: bool = False
    poll_interval: float = 1.0
    last_pause: UnannouncedPause | None = None

    @property
    def poll_problem(self) -> DegradedReason | None:
        """The kind of problem for which the last poll failed, None if it did not."""
        if not self.last_error:
            return None
        is_forbidden = self.last_status == HTTPStatus.FORBIDDEN
        return DegradedReason.IMDS_FORBIDDEN if is_forbidden else DegradedReason.IMDS_FAILING

    def stands_still(self, now: datetime, speed: float = 1.0) -> bool:
        """Return whether polling seems to hang: no poll has ended for too long after a success."""
        if not self.up or self.last_success is None:
            return False
        return (now - self.last_success).total_seconds() / speed > _PATIENCE_SECONDS + 2 * self.poll_interval

    def under_way(self, since: datetime | None = None) -> list[Life]:
        """Return the events known to affect this VM that are Started, or that ended ``since`` a time."""
        started = [life for life in self.current if life.event.is_started]
        if since is not None:
            ended = [life for life in self.past if life.ended is not None and life.ended >= since]
            started += [life for life in ended if life.has(Transition.STARTED)]
        return [life for life in started if life.affects is Affected.SELF]

    def has_series(self, life: Life) -> bool:
        """Return whether the event gets its own series, and its transitions are counted and traced."""
        return self.all_events or life.target is Affected.SELF


def urgency(event: ScheduledEvent) -> tuple[bool, float]:
    """Return the sort key of an event: Started first, then the soonest NotBefore, then those without one."""
    if event.is_started or event.not_before is None:
        return not event.is_started, math.inf
    return True, event.not_before.timestamp()


def by_urgency(lives: Iterable[Life]) -> tuple[Life, ...]:
    """Return lives sorted by `urgency`."""
    return tuple(sorted(lives, key=lambda life: urgency(life.event)))


class ApprovalView(msgspec.Struct, frozen=True):
    """The state of an event's approval, with rule and reason; None if there is none."""

    state: str | None = None
    rule: str | None = None
    reason: str | None = None


class EventView(msgspec.Struct, frozen=True):
    """An event and its life so far; times are aware and in UTC, None if unknown or not observed.

    ``impact_seconds`` is the time from started to ended if both were watched; ``paused_seconds`` is how long
    this VM was observed to pause meanwhile; ``changed_to`` is the new type of an event whose life a change of
    its type ended; ``doubts`` are those of `ScheduledEvent`.

    ``msgspec.json.encode`` converts it to the API's EVENT, with times in RFC 3339 ending in Z.
    """

    id: str
    ids: tuple[str, ...]
    type: str
    source: str
    status: str
    target: Affected
    resources: tuple[str, ...]
    description: str
    not_before: datetime | None
    duration_seconds: int | None
    first_seen: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    outcome: Transition | None = None
    changed_to: str | None = None
    transitions: tuple[TransitionRecord, ...] = ()
    approval: ApprovalView = ApprovalView()
    impact_seconds: float | None = None
    paused_seconds: float | None = None
    doubts: tuple[str, ...] = ()

    @property
    def is_scheduled(self) -> bool:
        return self.status == SCHEDULED and self.type != REBALANCE

    @property
    def is_started(self) -> bool:
        return self.status == STARTED and self.type != REBALANCE

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


class NodeView(msgspec.Struct, frozen=True):
    """The Node of this VM in Kubernetes; ``drain`` is the progress or the result of its drain, or ""."""

    name: str
    cordoned: bool | None
    drain: str


class TargetView(msgspec.Struct, frozen=True):
    """The delivery of messages to a target since the start, or since its address changed.

    ``delivers`` is whether the last attempt succeeded, None before the first one.
    """

    name: str
    pending: int = 0
    delivers: bool | None = None
    last_delivery: datetime | None = None
    last_failure: datetime | None = None
    last_error: str = ""


class ConfigurationView(msgspec.Struct, frozen=True):
    """The configuration in use; ``file`` is None without one. ``hooks`` are names, ``otlp`` signals."""

    file: str | None
    state_directory: str
    approval: str
    hooks: tuple[str, ...]
    tracing: bool
    otlp: tuple[str, ...] = ()


NO_APPROVAL = ApprovalView()


def event_view(life: Life, approval: ApprovalView = NO_APPROVAL) -> EventView:
    """Return the view of a life of an event; ``id`` is the event's first id, which stays the same."""
    return msgspec.structs.replace(
        listed_view(life.event, life.target),
        id=life.ids[0],
        ids=life.ids,
        first_seen=life.first_seen,
        started=life.started,
        ended=life.ended,
        outcome=life.outcome,
        changed_to=life.changed_to,
        transitions=life.transitions,
        approval=approval,
        impact_seconds=life.impact_seconds,
        paused_seconds=life.paused_seconds,
    )


def listed_view(event: ScheduledEvent, target: Affected) -> EventView:
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
        doubts=event.doubts,
    )
