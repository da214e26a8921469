"""The snapshot of the watch, the view of an event for API, messages and hooks, and what pages show besides.

The poller replaces the whole snapshot, so that neither the web server nor a scrape ever waits for it.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Literal, Protocol

import msgspec

from exporter.clock import Clock
from exporter.health import DegradedReason, Health
from exporter.model.events import (
    REBALANCE,
    SCHEDULED,
    STARTED,
    Affected,
    ScheduledEvent,
    unreadable_not_before,
)
from exporter.model.lifecycle import Life, Transition, TransitionRecord, without_changes
from exporter.model.vm import VirtualMachine

_PATIENCE_SECONDS = 60.0  # longer than any poll waits for IMDS


class Minute(msgspec.Struct, frozen=True):
    """Outcomes of the polls of one minute."""

    at: datetime
    succeeded: int = 0
    failed: int = 0
    reason: str = ""  # of the last failed one


class UnannouncedPause(msgspec.Struct, frozen=True):
    """A pause of this VM that ended ``at`` a time, while no event was Started for it."""

    at: datetime
    seconds: float


class Snapshot(msgspec.Struct, frozen=True):
    """The watch at one instant."""

    endpoint: str = ""
    api_version: str = ""  # in use for documents
    instance_api_version: str = ""  # of ``vm``
    instance: str | None = None  # None until this VM's name is known
    host: str = ""  # the name of the host, for what needs one before that
    vm: VirtualMachine | None = None  # None until IMDS has returned the facts about it
    up: bool = False  # whether the last poll gave a valid document
    ready: bool = False  # from the first valid document of this process on
    last_success: datetime | None = None
    incarnation: int | None = None
    last_error: str = ""  # why the last poll failed
    last_status: int = 0  # HTTP status of the last failed poll, 0 without an answer
    current: tuple[Life, ...] = ()  # by `urgency`; as last known while polls fail
    past: tuple[Life, ...] = ()  # newest first
    all_events: bool = False  # whether events of other VMs have series
    resources: bool = False  # whether single resources have series
    sampled_share: float = 0.0  # of the events whose spans are exported, 0 if none are
    poll_interval: float = 1.0  # seconds
    last_pause: UnannouncedPause | None = None  # the newest

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

    def under_way(self, since: datetime) -> list[Life]:
        """Return the events known to affect this VM that are Started, or that ended ``since`` a time."""
        started = [life for life in self.current if life.event.is_started]
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
    return tuple(sorted(lives, key=lambda life: urgency(life.event)))


class ApprovalView(msgspec.Struct, frozen=True):
    state: str | None = None  # None if there is none
    rule: str | None = None
    reason: str | None = None


class EventView(msgspec.Struct, frozen=True):
    """An event and its life so far; times are aware and in UTC, None if unknown or not observed.

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
    changed_to: str | None = None  # the new type, if a change of the type ended this life
    left: bool = False  # whether this life ended because the event, which goes on, does not list this VM
    transitions: tuple[TransitionRecord, ...] = ()
    approval: ApprovalView = ApprovalView()
    impact_seconds: float | None = None  # from started to ended, if both were watched
    paused_seconds: float | None = None  # for how long this VM was observed to pause meanwhile
    doubts: tuple[str, ...] = ()  # those of `ScheduledEvent`

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
    """A message to a target, or a run of a hook, that a transition of an event caused."""

    kind: Literal["message", "hook"]
    name: str
    transition: Transition | None
    state: str  # an `Outcome`, a `HookOutcome`, "pending" or "running"; "" if it ended without any
    at: datetime | None  # when it ended


class NodeView(msgspec.Struct, frozen=True):
    """The Node of this VM in Kubernetes."""

    name: str
    cordoned: bool | None
    drain: str  # progress or result, or ""


class TargetView(msgspec.Struct, frozen=True):
    """The delivery of messages to a target since the start, or since its address changed."""

    name: str
    pending: int = 0
    delivers: bool | None = None  # whether the last attempt succeeded, None before the first one
    last_delivery: datetime | None = None
    last_failure: datetime | None = None
    last_error: str = ""


class ConfigurationView(msgspec.Struct, frozen=True):
    """The configuration in use."""

    file: str | None  # None without one
    state_directory: str
    approval: str  # the mode
    hooks: tuple[str, ...]  # names
    tracing: bool
    otlp: tuple[str, ...] = ()  # signals


class Demonstration(msgspec.Struct, frozen=True):
    """A demo, in which time passes ``speed`` times as fast since ``began``."""

    notice: str  # what the page says about it
    speed: float
    began: datetime


class Views(Protocol):
    """What the web application and a scrape show of the running exporter; `Pipeline` has them."""

    health: Health
    clock: Clock

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def configuration(self) -> ConfigurationView: ...

    @property
    def polls(self) -> Sequence[Minute]:
        """Outcomes of the last hour's polls, by minute."""

    @property
    def node_name(self) -> str:
        """The name of the Node, or ""."""

    @property
    def node(self) -> NodeView | None: ...

    def targets(self) -> tuple[TargetView, ...]:
        """Return the delivery to each target, and to each Alertmanager."""

    def pending(self) -> Mapping[str, int]:
        """Return the number of messages and alerts that wait, by target."""

    def approval(self, life: Life) -> ApprovalView: ...

    def work(self, lives: Collection[str]) -> Mapping[str, Sequence[WorkView]]:
        """Return messages and hook runs by the key of an event's life."""

    def out_of_service(self) -> str:
        """Return the reason why this VM should get no new work, or ""."""


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
        left=life.left,
        # The API, hooks and templates do not get the changes; the message about an update has them.
        transitions=without_changes(life.transitions),
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
