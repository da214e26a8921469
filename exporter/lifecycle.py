"""The life of an event, decided purely: what is known, plus a document, plus the time, gives transitions.

Nothing here reads a clock, a disk or a network, so that every rule can be tested, and is, with sequences of
documents nobody would think of.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from exporter.events import SCHEDULED, STARTED, Document, ScheduledEvent, same_resources
from exporter.succession import successors

HISTORY = timedelta(days=90)
# Azure lists a handful of events. A source that renews ids or contents at every poll, as a mock server may,
# must fill neither memory nor disk, nor the receivers of messages.
MOST_PAST = 10_000
MOST_TRANSITIONS = 1000
MOST_IDS = 100
# Azure switches the service off after 24 hours without a request; incarnations start again from a low number,
# so that "the very next incarnation" proves nothing any more.
SWITCH_OFF = timedelta(hours=24)
# A start seen this long after the last document makes no useful impact. Some seconds are to be expected: a VM
# that is frozen cannot poll.
START_TOLERANCE = timedelta(seconds=30)


class Transition(StrEnum):
    """A change of state: a metric label, a log field, a span's name and a message's subject alike."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    UPDATED = "updated"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    VANISHED = "vanished"
    APPROVED = "approved"


ENDINGS = (Transition.COMPLETED, Transition.CANCELLED, Transition.VANISHED)


class TransitionRecord(msgspec.Struct, frozen=True):
    """That a transition happened, and when."""

    transition: Transition
    at: datetime


class TrackedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event with its life so far, from any number of documents.

    ``event`` is the newest content; ``ids`` has all its ids as Azure wrote them, the first one first (see
    `exporter.succession`). ``started`` is when it was first seen Started; ``start_missed`` tells that this
    may have been long after the fact. ``ended`` and ``outcome`` are None while a document lists it.
    ``announced`` is the newest NotBefore that was given: Azure blanks it once the event has started.
    """

    event: ScheduledEvent
    ids: tuple[str, ...]
    first_seen: datetime
    started: datetime | None = None
    ended: datetime | None = None
    outcome: Transition | None = None
    transitions: tuple[TransitionRecord, ...] = ()
    start_missed: bool = False
    announced: datetime | None = None

    @property
    def key(self) -> str:
        """What the event is known by for all its life: its first id, folded."""
        return self.ids[0].lower()

    def has(self, transition: Transition) -> bool:
        """Tell whether that transition has happened."""
        return any(record.transition is transition for record in self.transitions)


class Change(msgspec.Struct, frozen=True):
    """One field of an `UPDATED` transition; the values are those of `ScheduledEvent`."""

    field: str
    old: Any
    new: Any


class Occurrence(msgspec.Struct, frozen=True):
    """A transition that just happened, with the event as it is after it.

    ``impact`` is how long the event was Started, where both moments were watched.
    """

    tracked: TrackedEvent
    transition: Transition
    at: datetime
    changes: tuple[Change, ...] = ()
    impact: timedelta | None = None

    @property
    def notice(self) -> timedelta | None:
        """Give NotBefore minus first seen, for the transition that announces the event."""
        if self.transition is not Transition.SCHEDULED or self.tracked.event.not_before is None:
            return None
        return max(self.tracked.event.not_before - self.tracked.first_seen, timedelta(0))


class Known(msgspec.Struct, frozen=True):
    """All that is remembered between two documents; the mappings go by `TrackedEvent.key`, oldest first."""

    incarnation: int | None = None
    last_success: datetime | None = None
    current: dict[str, TrackedEvent] = {}
    past: dict[str, TrackedEvent] = {}


class Step(msgspec.Struct, frozen=True):
    """What one document did: the new `Known`, what happened, and what of it has to be written down."""

    known: Known
    occurrences: tuple[Occurrence, ...]
    changed: tuple[TrackedEvent, ...]
    forgotten: tuple[str, ...]
    new_incarnation: bool

    @property
    def writes(self) -> bool:
        """Tell whether there is anything to write: an unchanged document costs the disk nothing."""
        return bool(self.changed or self.forgotten or self.new_incarnation)


def advance(known: Known, document: Document, now: datetime, *, unbroken: bool) -> Step:
    """Take one valid document into account.

    Of what is past the newest 10,000 events are kept; an event's contents may change a thousand times, and
    what changes after that is shown, and is no transition.

    ``unbroken`` tells whether the poll before it succeeded too, in this process; without it, the moment at
    which something ended was missed, and so is how long it lasted.

    An event that goes on under a new id (see `exporter.succession`) goes on living here.
    """
    index = _index(known)
    matched: dict[str, ScheduledEvent] = {}
    fresh: list[ScheduledEvent] = []
    for event in document.events:
        key = index.get(event.key)
        if key is None:
            fresh.append(event)
        elif key not in matched or event.key != key:
            matched[key] = event
    spared = {index.get(defect.event_id.lower()) for defect in document.defects if defect.lost}
    gone = [t for key, t in known.current.items() if key not in matched and key not in spared]
    heritable = (t.event for t in gone if len(t.ids) < MOST_IDS)
    heirs = {index[key]: event for key, event in successors(heritable, fresh).items()}
    inherited = {event.key for event in heirs.values()}
    matched |= heirs
    walk = _Walk(known, document, now, unbroken=unbroken)
    for key, event in matched.items():
        walk.observe(_find(known, key) or _new(event, now), event)
    for event in fresh:
        if event.key not in inherited:
            walk.observe(_new(event, now), event)
    for tracked in gone:
        if tracked.key not in heirs:
            walk.end(tracked)
    return walk.step()


def approve(known: Known, key: str, at: datetime) -> Step | None:
    """Take into account that this exporter approved an event; None where nothing is new about that."""
    before = _find(known, key)
    if before is None or before.has(Transition.APPROVED):
        return None
    record = TransitionRecord(Transition.APPROVED, at)
    after = msgspec.structs.replace(before, transitions=(*before.transitions, record))
    where = "current" if key in known.current else "past"
    changed = {**getattr(known, where), key: after}
    occurrence = Occurrence(after, Transition.APPROVED, at)
    return Step(
        msgspec.structs.replace(known, **{where: changed}), (occurrence,), (after,), (), new_incarnation=False
    )


class _Walk:
    """One document's effects, collected event by event."""

    def __init__(self, known: Known, document: Document, now: datetime, *, unbroken: bool) -> None:
        self._known = known
        self._document = document
        self._now = now
        self._unbroken = unbroken
        self._cancellable = _is_cancellable(known, document, now)
        self._current = dict(known.current)
        self._past = dict(known.past)
        self._changed: list[TrackedEvent] = []
        self._occurrences: list[Occurrence] = []

    def observe(self, before: TrackedEvent, event: ScheduledEvent) -> None:
        """Take in what the document says of an event that it lists."""
        transition, changes = _transition(before, event)
        starts = transition is Transition.STARTED
        after = msgspec.structs.replace(
            before,
            event=event,
            ids=before.ids if _bears(before, event.key) else (*before.ids, event.event_id),
            started=self._now if starts else before.started,
            start_missed=self._is_blind() if starts else before.start_missed,
            ended=None,
            outcome=None,
            announced=event.not_before or before.announced,
        )
        after = self._happen(after, transition, changes)
        if after != _find(self._known, after.key):
            self._changed.append(after)
        self._past.pop(after.key, None)
        self._current[after.key] = after

    def end(self, before: TrackedEvent) -> None:
        """Take in that an event is gone."""
        outcome = self._outcome(before)
        after = msgspec.structs.replace(before, ended=self._now, outcome=outcome)
        after = self._happen(after, None if before.has(outcome) else outcome, ())
        self._changed.append(after)
        del self._current[after.key]
        self._past[after.key] = after

    def step(self) -> Step:
        """Give all that happened."""
        oldest = self._now - HISTORY
        surplus = len(self._past) - MOST_PAST
        forgotten = tuple(
            key
            for number, (key, t) in enumerate(self._past.items())
            if number < surplus or (t.ended is not None and t.ended < oldest)
        )
        for key in forgotten:
            del self._past[key]
        known = Known(self._document.incarnation, self._now, self._current, self._past)
        new_incarnation = self._document.incarnation != self._known.incarnation
        return Step(known, tuple(self._occurrences), tuple(self._changed), forgotten, new_incarnation)

    def _is_blind(self) -> bool:
        """Tell whether what is seen now may have happened long ago; what precedes all watching is not."""
        before = self._known.last_success
        if self._unbroken or before is None:
            return False
        return abs(self._now - before) > START_TOLERANCE

    def _outcome(self, tracked: TrackedEvent) -> Transition:
        if tracked.started is not None:
            return Transition.COMPLETED
        if self._cancellable and tracked.event.event_status == SCHEDULED:
            return Transition.CANCELLED
        return Transition.VANISHED

    def _happen(
        self, tracked: TrackedEvent, transition: Transition | None, changes: tuple[Change, ...]
    ) -> TrackedEvent:
        if transition is None:
            return tracked
        record = TransitionRecord(transition, self._now)
        tracked = msgspec.structs.replace(tracked, transitions=(*tracked.transitions, record))
        impact = self._impact(tracked) if transition is Transition.COMPLETED else None
        self._occurrences.append(Occurrence(tracked, transition, self._now, changes, impact))
        return tracked

    def _impact(self, tracked: TrackedEvent) -> timedelta | None:
        if tracked.started is None or tracked.start_missed or not self._unbroken:
            return None
        return max(self._now - tracked.started, timedelta(0))


def _new(event: ScheduledEvent, now: datetime) -> TrackedEvent:
    return TrackedEvent(event, (event.event_id,), first_seen=now)


def _find(known: Known, key: str) -> TrackedEvent | None:
    return known.current.get(key) or known.past.get(key)


def _transition(before: TrackedEvent, event: ScheduledEvent) -> tuple[Transition | None, tuple[Change, ...]]:
    if event.event_status == STARTED and not before.has(Transition.STARTED):
        return Transition.STARTED, ()
    if event.event_status == SCHEDULED and not (
        before.has(Transition.SCHEDULED) or before.has(Transition.STARTED)
    ):
        return Transition.SCHEDULED, ()
    statuses = {before.event.event_status, event.event_status}
    if not before.transitions or (STARTED in statuses and len(statuses) > 1):
        return None, ()
    if len(before.transitions) >= MOST_TRANSITIONS:
        return None, ()
    changes = _changes(before.event, event)
    return (Transition.UPDATED, changes) if changes else (None, ())


def _changes(old: ScheduledEvent, new: ScheduledEvent) -> tuple[Change, ...]:
    changes = []
    if old.not_before != new.not_before:
        changes.append(Change("not_before", old.not_before, new.not_before))
    if old.duration_seconds != new.duration_seconds:
        changes.append(Change("duration_seconds", old.duration_seconds, new.duration_seconds))
    if not same_resources(old.resources, new.resources):
        changes.append(Change("resources", old.resources, new.resources))
    if old.description != new.description:
        changes.append(Change("description", old.description, new.description))
    return tuple(changes)


def _is_cancellable(known: Known, document: Document, now: datetime) -> bool:
    """Tell whether nothing can have happened between the two documents that was not seen."""
    if known.incarnation is None or known.last_success is None:
        return False
    nameless = any(defect.lost and not defect.event_id for defect in document.defects)
    recent = abs(now - known.last_success) < SWITCH_OFF
    return document.incarnation == known.incarnation + 1 and recent and not nameless


def _index(known: Known) -> dict[str, str]:
    """Map every id an event ever had, folded, to the event's key; listed events win over gone ones."""
    return {
        known_id.lower(): key
        for tracked_by_key in (known.past, known.current)
        for key, tracked in tracked_by_key.items()
        for known_id in tracked.ids
    }


def _bears(tracked: TrackedEvent, key: str) -> bool:
    return any(known_id.lower() == key for known_id in tracked.ids)
