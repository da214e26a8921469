"""The life cycle of an event: its states and its transitions.

A life belongs to an event and this VM. It begins when a document lists the event with this VM among its
``Resources`` (or, as a life of its own, without it), and ends when the event, or this VM in it, is gone.
"""

import contextlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from exporter.clock import Moment
from exporter.model.events import Affected, ScheduledEvent, lower, normal_name, same_resources

HISTORY = timedelta(days=90)
# Of the current lives together, as `weight` has it: twice that of the largest document in Azure's format.
MOST_CURRENT_BYTES = 2 * 2**20
# The shortest text takes four bytes of JSON with its comma, and 60 in memory. A long one with a single emoji
# takes four times as much as its JSON.
_VALUE_BYTES = 8
# Of the old and of the new value of a change, as kept in the state.
_LONGEST_TEXT = 1000
_MOST_ITEMS = 100


def weight(row: bytes) -> int:
    """Return what JSON counts for where bytes are limited; decoded, it takes up to four times as much."""
    return len(row) + _VALUE_BYTES * row.count(b",")


class Transition(StrEnum):
    """A change of state, in metric labels, log fields, span names and messages."""

    ADVISED = "advised"
    SCHEDULED = "scheduled"
    STARTED = "started"
    IMMINENT = "imminent"
    UPDATED = "updated"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    VANISHED = "vanished"
    APPROVED = "approved"
    HOOK_FAILED = "hook_failed"


ENDINGS = (Transition.COMPLETED, Transition.CANCELLED, Transition.VANISHED)
# Those by which a life begins, or goes on to its next phase.
PHASES = (Transition.ADVISED, Transition.SCHEDULED, Transition.STARTED)


class Change(msgspec.Struct, frozen=True):
    """One field of an `UPDATED` transition; the values are those of `ScheduledEvent`."""

    field: str
    old: Any
    new: Any

    @property
    def brief(self) -> "Change":
        """The change as it is stored and exported: texts cut to 1,000 characters, resources to 100."""
        return replace(self, old=_brief(self.old), new=_brief(self.new))

    def __post_init__(self) -> None:
        """Restore the types that JSON does not keep."""
        for name in ("old", "new"):
            msgspec.structs.force_setattr(self, name, _restored(self.field, getattr(self, name)))


def _restored(field: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if field == "not_before" and isinstance(value, str):
        with contextlib.suppress(ValueError):
            time = datetime.fromisoformat(value)
            return time if time.tzinfo else value
    return value


def _brief(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    return value[:_MOST_ITEMS] if isinstance(value, tuple) else value


class TransitionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transition that happened, and when it was noticed."""

    transition: Transition
    at: datetime
    hook: str = ""  # for `Transition.HOOK_FAILED`: its name
    run: int = 0  # for `Transition.HOOK_FAILED`: the number in this life of the transition that it ran for
    changes: tuple[Change, ...] = ()  # of an update while the life lasts, as `Change.brief`, if they fit


def without_changes(records: tuple[TransitionRecord, ...]) -> tuple[TransitionRecord, ...]:
    return tuple(replace(record, changes=()) if record.changes else record for record in records)


class Life(msgspec.Struct, frozen=True, omit_defaults=True):
    """One life of an event.

    A change of the event's type ends a life and begins the next.
    """

    event: ScheduledEvent  # its newest content
    ids: tuple[str, ...]  # all that it has had, as Azure wrote them, the first one first
    first_seen: datetime
    foreign_ids: tuple[str, ...] = ()  # those that turned out to be another event's, in lower case
    begun: Moment | None = None  # when it began, for what waits from then on; set anew on another boot
    number: int = 1  # among the lives of the event
    affects: Affected | None = None  # None if it began, and has stayed, while the VM's name was unknown
    started: datetime | None = None  # None if the start was not watched
    ended: datetime | None = None  # None while it lasts
    outcome: Transition | None = None  # None while it lasts
    impact_seconds: float | None = None  # from started to ended, if both were watched
    paused_seconds: float | None = None  # for how long this VM was observed to pause during it
    transitions: tuple[TransitionRecord, ...] = ()
    announced: datetime | None = None  # the newest NotBefore, which Azure clears at the start
    last_reported: ScheduledEvent | None = None  # what was last reported, while newer content waits
    unread: bool = False  # whether the newest document lists the event, but it could not be read
    hooks_wait: bool = False  # whether it came into its phase while the VM's name was unknown
    name_was_unknown: bool = False  # whether it began while the VM's name was unknown
    instance: str | None = None  # the VM's name when it began; kept in reports if the VM gets another one
    notice_left: float | None = None  # the seconds by which `Transition.IMMINENT` was last decided
    changed_to: str | None = None  # the new type, if a change of the type ended it
    left: bool = False  # whether it ended because its event, which goes on, does not list this VM

    @property
    def key(self) -> str:
        """The event's first id in lower case, with the number of this life from the second on."""
        first = lower(self.ids[0])
        return first if self.number == 1 else f"{first}#{self.number}"

    @property
    def identity(self) -> str:
        """What identifies this VM in the ids of the spans of this life; "" for the name of the host.

        It is the name with which the life began: all its spans have the same root, although the VM may get a
        name, or another one, meanwhile.
        """
        return normal_name(self.instance) if self.instance and not self.name_was_unknown else ""

    @property
    def weight(self) -> int:
        """What the life counts for, as it is stored."""
        return weight(msgspec.json.encode(self))

    @property
    def target(self) -> Affected:
        """Which VMs it affects; this VM while its name is unknown."""
        return self.affects or Affected.SELF

    def ids_with(self, event: ScheduledEvent) -> tuple[str, ...]:
        """Return the ids of this life, including that of an event that continues it."""
        is_known = any(event_id.lower() == event.key for event_id in self.ids)
        return self.ids if is_known else (*self.ids, event.event_id)

    def since(self, transition: Transition) -> datetime | None:
        """Return when a transition of this life was noticed."""
        return next((record.at for record in self.transitions if record.transition is transition), None)

    def with_record(self, record: TransitionRecord) -> "Life":
        return replace(self, transitions=(*self.transitions, record))

    def has(self, *transitions: Transition) -> bool:
        """Return whether one of these transitions has happened in this life."""
        return any(record.transition in transitions for record in self.transitions)


class Occurrence(msgspec.Struct, frozen=True):
    """A transition that just happened, with the event after it; ``detail`` describes the cause."""

    life: Life
    transition: Transition
    at: datetime
    changes: tuple[Change, ...] = ()
    detail: str = ""

    @property
    def notice(self) -> timedelta | None:
        """NotBefore minus first seen, for the transition that announces the event."""
        if self.transition is not Transition.SCHEDULED or self.life.event.not_before is None:
            return None
        return max(self.life.event.not_before - self.life.first_seen, timedelta(0))

    @property
    def impact(self) -> timedelta | None:
        """Time from started to ended, for the end of an event if both were observed."""
        seconds = self.life.impact_seconds
        ended = self.transition is Transition.COMPLETED and seconds is not None
        return timedelta(seconds=seconds or 0.0) if ended else None


class WatchState(msgspec.Struct, frozen=True):
    """The state between two documents; the mappings are by `Life.key`, oldest first."""

    incarnation: int | None = None
    last_success: datetime | None = None
    boot: str = ""  # on which the newest document was read, "" if that is unknown
    current: dict[str, Life] = {}
    past: dict[str, Life] = {}

    def life(self, key: str) -> Life | None:
        return self.current.get(key) or self.past.get(key)

    def replaced(self, *lives: Life) -> "WatchState":
        """Return this with newer content of lives that are known already."""
        newer = {life.key: life for life in lives}
        current, past = (
            {key: newer.get(key, life) for key, life in mapping.items()}
            for mapping in (self.current, self.past)
        )
        return replace(self, current=current, past=past)

    @property
    def room(self) -> int:
        """The bytes that the current lives may still grow by; while it is negative, they are full."""
        return MOST_CURRENT_BYTES - sum(life.weight for life in self.current.values())

    @property
    def has_unreported(self) -> bool:
        """Whether a change waits to be reported, even if the document does not change."""
        return any(life.last_reported is not None for life in self.current.values())


class Step(msgspec.Struct, frozen=True):
    """What a document, a report or the time causes: the new state, the transitions, and what to write."""

    state: WatchState
    occurrences: tuple[Occurrence, ...] = ()
    awaited: tuple[Occurrence, ...] = ()  # the phases for which hooks waited until this VM's name was known
    changed: tuple[Life, ...] = ()
    forgotten: tuple[str, ...] = ()  # the keys of lives
    replaced: Mapping[str, str] = {}  # those that ended without a transition, with what takes their place
    new_incarnation: bool = False

    @property
    def writes(self) -> bool:
        """Whether there is anything to write; for an unchanged document there is not."""
        return bool(self.changed or self.forgotten or self.new_incarnation)


def phase_of(event: ScheduledEvent) -> Transition:
    """Return the transition with which a life of the event begins now."""
    if event.is_started:
        return Transition.STARTED
    return Transition.SCHEDULED if event.is_scheduled else Transition.ADVISED


def changes_between(old: ScheduledEvent, new: ScheduledEvent) -> tuple[Change, ...]:
    """Return the changes of an event that an update reports."""
    return tuple(
        Change(name, before, after)
        for name in ("not_before", "duration_seconds", "resources", "description")
        if (before := getattr(old, name)) != (after := getattr(new, name))
        and (name != "resources" or not same_resources(before, after))
    )


def phase_reached(life: Life) -> Occurrence:
    """Return the transition by which a life came into the phase that it is in, with the life as it was."""
    numbers = [
        number for number, record in enumerate(life.transitions, start=1) if record.transition in PHASES
    ]
    record = life.transitions[numbers[-1] - 1]
    return Occurrence(
        replace(life, transitions=life.transitions[: numbers[-1]]), record.transition, record.at
    )


def step_of(state: WatchState, *occurrences: Occurrence) -> Step:
    """Return the step of transitions that no document shows."""
    lives = tuple(occurrence.life for occurrence in occurrences)
    return Step(state.replaced(*lives), occurrences, changed=lives)
