"""The step that a document causes, as a pure function of the state, the document and the time.

First its events are matched with the known lives. An event may continue under another id
(succession): Microsoft's mock server of Scheduled Events changes the id at every status. Then lives begin, go
on and end.

Finally, events that are about to start become imminent: their remaining notice falls to a threshold of
``events.imminent``. Each threshold counts once per life, and again if NotBefore is postponed beyond it.
`Life.notice_left` has the notice by which that was last decided, so that neither a restart nor a step of the
clock repeats it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from exporter.clock import Moment
from exporter.model.documents import Document
from exporter.model.events import (
    CANCELED,
    COMPLETED,
    SCHEDULED,
    STARTED,
    UNKNOWN,
    Affected,
    ScheduledEvent,
    lower,
    normal_name,
)
from exporter.model.lifecycle import (
    HISTORY,
    MOST_CURRENT_BYTES,
    PHASES,
    Change,
    Life,
    Occurrence,
    Step,
    Transition,
    TransitionRecord,
    WatchState,
    changes_between,
    phase_of,
    phase_reached,
    step_of,
    weight,
    without_changes,
)
from exporter.model.messages import rank


def notice_left(event: ScheduledEvent, now: datetime) -> float | None:
    """Return the seconds to NotBefore, negative once it has passed; None if nothing is scheduled."""
    if not event.is_scheduled or event.not_before is None:
        return None
    return (event.not_before - now).total_seconds()


def with_notice(before: Life | None, after: Life, now: datetime) -> Life:
    """Return the life after a document, with the notice by which it becomes imminent."""
    left = notice_left(after.event, now)
    if left is None:
        return after
    if before is not None and before.notice_left is not None:
        is_moved = after.event.not_before != before.announced
        left = max(before.notice_left, left) if is_moved else before.notice_left
    return replace(after, notice_left=left)


def imminent(lives: Sequence[Life], now: datetime, thresholds: Sequence[float]) -> Iterator[Life]:
    """Yield the lives whose notice has fallen to one of these thresholds, in seconds; each only once."""
    for life in lives if thresholds else ():
        left = notice_left(life.event, now)
        ahead = [threshold for threshold in thresholds if _is_ahead(life, threshold)]
        if left is not None and ahead and max(ahead) >= left:
            yield replace(life, notice_left=left)


def next_imminent(state: WatchState, thresholds: Sequence[float]) -> datetime | None:
    """Return when the next event becomes imminent; None if none will."""
    times = (
        life.event.not_before - timedelta(seconds=threshold)
        for life in state.current.values()
        if life.event.is_scheduled and life.event.not_before is not None
        for threshold in thresholds
        if _is_ahead(life, threshold)
    )
    return min(times, default=None)


def pass_time(state: WatchState, now: datetime, thresholds: Sequence[float], *, late: bool) -> Step | None:
    """Return the step that the time alone causes, without a document; None if it causes none.

    Unless ``late``, events whose NotBefore has passed are left out.
    """
    record = TransitionRecord(Transition.IMMINENT, now)
    occurrences = [
        Occurrence(life.with_record(record), Transition.IMMINENT, now)
        for life in imminent((*state.current.values(),), now, thresholds)
        if late or (life.notice_left or 0.0) > 0
    ]
    return step_of(state, *sorted(occurrences, key=rank)) if occurrences else None


def _is_ahead(life: Life, threshold: float) -> bool:
    return life.notice_left is not None and life.notice_left > threshold


MOST_IDS = 100  # a source that renews the id of an event at every poll must not fill the memory


class Listing(msgspec.Struct, frozen=True):
    """A document's events, matched with the lives known before it.

    What one document lists under two ids are two events: of the ``divided`` lives, only the newest id stays.
    """

    continued: Mapping[str, ScheduledEvent]  # the events whose lives continue, by `Life.key`
    unread: tuple[Life, ...]  # those whose event is listed but cannot be read
    gone: tuple[Life, ...]
    returning: tuple[tuple[Life, ScheduledEvent], ...]  # the events with a known past life
    fresh: tuple[ScheduledEvent, ...]
    divided: tuple[Life, ...]  # those of which the document lists several ids


def listing_of(state: WatchState, document: Document, instance: str | None, *, may_renew: bool) -> Listing:
    """Match the events of a document with the lives that are known; ``instance`` is this VM's name.

    Lives continue under another id only if they ``may_renew`` it.
    """
    listed_ids = {event.key for event in document.events}
    lives = {life.key: life for life in (*state.past.values(), *state.current.values())}
    divided = [life for life in lives.values() if len(_own_ids(life).keys() & listed_ids) > 1]
    lives |= {life.key: _with_newest(life, listed_ids) for life in divided}
    owners = _by_id(lives.values())
    listed: dict[str, tuple[Life, ScheduledEvent]] = {}
    fresh: list[ScheduledEvent] = []
    for event in document.events:
        life = owners.get(event.key)
        if life is None:
            fresh.append(event)
        else:
            listed[life.key] = life, event
    lost = {defect.event_id.lower() for defect in document.defects if defect.lost} | document.left_out
    unread = {
        life.key: life
        for event_id, life in owners.items()
        if event_id in lost and life.ended is None and life.key not in listed
    }
    gone = [lives[key] for key in state.current if key not in listed and key not in unread]
    dropped = [life for life in gone if len(life.ids) < MOST_IDS] if may_renew else []
    heirs = _heirs(dropped, fresh, instance, is_next=is_next_incarnation(state, document))
    inherited = {event.key for event in heirs.values()}
    return Listing(
        continued=heirs | {key: event for key, (life, event) in listed.items() if life.ended is None},
        unread=tuple(unread.values()),
        gone=tuple(life for life in gone if life.key not in heirs),
        returning=tuple(pair for pair in listed.values() if pair[0].ended is not None),
        fresh=tuple(event for event in fresh if event.key not in inherited),
        divided=tuple(lives[life.key] for life in divided),
    )


def is_next_incarnation(state: WatchState, document: Document) -> bool:
    return state.incarnation is not None and document.incarnation == state.incarnation + 1


def _own_ids(life: Life) -> dict[str, None]:
    """Return the ids of a life's event in lower case, the newest one last."""
    return dict.fromkeys(event_id for event_id in map(lower, life.ids) if event_id not in life.foreign_ids)


def _with_newest(life: Life, listed: Collection[str]) -> Life:
    """Return a life to which the newest of the ``listed`` ids belongs, and none of the others."""
    *others, _ = (event_id for event_id in _own_ids(life) if event_id in listed)
    return replace(life, foreign_ids=(*life.foreign_ids, *others))


def _by_id(lives: Iterable[Life]) -> dict[str, Life]:
    """Return the newest of these lives by every id that is its event's, in lower case."""
    ascending = sorted(lives, key=lambda life: life.number)
    return {event_id: life for life in ascending for event_id in _own_ids(life)}


def _heirs(
    dropped: Sequence[Life], fresh: Iterable[ScheduledEvent], instance: str | None, *, is_next: bool
) -> dict[str, ScheduledEvent]:
    """Return the new events that continue lives, by `Life.key`.

    A life continues under a new id if exactly one event is gone, and exactly one Started event is new, with
    the same type and source, and the same resources or this VM in both. The one that is gone was Scheduled,
    or it was Started and the document has the very next incarnation.
    """
    brought = [event for event in fresh if event.event_status == STARTED]
    heirs = _pairs(dropped, brought, same_resources=True)
    if instance is not None:
        taken = {event.key for event in heirs.values()}
        dropped_own = [life for life in dropped if life.key not in heirs and _is_own(life.event, instance)]
        brought_own = [event for event in brought if event.key not in taken and _is_own(event, instance)]
        heirs |= _pairs(dropped_own, brought_own, same_resources=False)
    statuses = (SCHEDULED, STARTED) if is_next else (SCHEDULED,)
    renewed = {life.key for life in dropped if life.event.event_status in statuses}
    return {key: event for key, event in heirs.items() if key in renewed}


def _is_own(event: ScheduledEvent, instance: str) -> bool:
    return event.target(instance) is Affected.SELF


def _pairs(
    dropped: Iterable[Life], brought: Iterable[ScheduledEvent], *, same_resources: bool
) -> dict[str, ScheduledEvent]:
    """Return the new event for each life, where exactly one of both is of the same nature."""
    lives, events = defaultdict(list), defaultdict(list)
    for life in dropped:
        lives[_nature(life.event, same_resources)].append(life)
    for event in brought:
        events[_nature(event, same_resources)].append(event)
    return {
        own.pop().key: events[nature].pop()
        for nature, own in lives.items()
        if len(own) == len(events[nature]) == 1
    }


def _nature(event: ScheduledEvent, with_resources: bool) -> tuple[str, ...]:
    resources = sorted(map(normal_name, event.resources)) if with_resources else ()
    return event.event_type, event.event_source, *resources


# Azure lists a handful of events. A source that changes ids or contents at every poll, as a mock server may,
# must not fill memory and disk, nor flood the receivers of messages.
MOST_TRANSITIONS = 1000  # of one life
MOST_PAST_BYTES = 3 * 2**19  # of all past lives, as `weight` has it
# Azure switches the service off after 24 hours without a request; incarnations then restart from a low
# number, so consecutive incarnations no longer prove that nothing was missed.
SWITCH_OFF = timedelta(hours=24)
# Polls further apart than this do not show when something started. Some seconds are normal: a VM that is
# frozen cannot poll.
WATCHED = timedelta(seconds=30)
# Content that keeps changing is reported at most this often per event.
UPDATE_INTERVAL = timedelta(seconds=60)
# The statuses of events that are over in Event Grid and Resource Graph.
_ENDING_STATUSES = {COMPLETED: Transition.COMPLETED, CANCELED: Transition.CANCELLED}


def advance(  # noqa: PLR0913  # all but three by name
    state: WatchState,
    document: Document,
    now: datetime,
    *,
    instance: str | None,
    watching: bool,
    thresholds: Sequence[float] = (),
    moment: Moment | None = None,
) -> Step:
    """Return the step that one valid document causes.

    ``instance`` is this VM's name, None while it is unknown. ``watching`` is true if this process processed
    the document before this one: otherwise the time at which an event ended is unknown. ``thresholds`` are
    those of `imminent`. ``moment`` is now, for lives that begin, with the boot.
    While ``state.has_unreported``, it is to be called for an unchanged document, too.

    Another type ends the life of an event and begins a new one.

    The newest past lives are kept, 1.5 MiB of them. After 1,000 transitions of a life, or while the current
    lives are full (see `WatchState.room`), changes of its event are shown, but are not transitions. Full
    lives do not wait either: an event that cannot be read ends.
    """
    walk = _Walk(state, document, now, instance, watching=watching, moment=moment)
    walk.take_in(listing_of(state, document, instance, may_renew=walk.may_renew))
    walk.pass_time(thresholds)
    return walk.step()


class _Walk:
    """Builds the step that one document causes, life by life."""

    def __init__(
        self,
        state: WatchState,
        document: Document,
        now: datetime,
        instance: str | None,
        *,
        watching: bool,
        moment: Moment | None,
    ) -> None:
        self._state = state
        self._document = document
        self._now = now
        self._instance = instance
        self._watching = watching
        self._moment = moment
        room = state.room
        self.is_full = room < 0
        # The changes of updates must not fill the current lives.
        self._room_for_changes = room - MOST_CURRENT_BYTES // 2
        self._current = dict(state.current)
        self._past = dict(state.past)
        # The highest number of the lives that have the same first id, which may be those of two events.
        self._numbers: dict[str, int] = {}
        for life in (*state.past.values(), *state.current.values()):
            first = lower(life.ids[0])
            self._numbers[first] = max(life.number, self._numbers.get(first, 0))
        # The lives that ended without a transition, each with the one that takes its place.
        self._replaced: dict[str, str] = {}
        self._touched: dict[str, None] = {}  # the lives that may have changed
        self._occurrences: list[Occurrence] = []

    @property
    def may_renew(self) -> bool:
        """Whether an event may continue under another id: there was hardly a pause between the documents."""
        return self._watching and self._is_watched() and not self.is_full

    def take_in(self, listing: Listing) -> None:
        """Start, continue or end the life of each event."""
        for life in listing.divided:
            self._keep(life)
        for life in listing.unread:
            if self.is_full:
                self._end(life, Transition.VANISHED)
            else:
                self._keep(replace(life, unread=True))
        for life in listing.gone:
            self._end(life, self._outcome(life))
        for key, event in listing.continued.items():
            self._continue(self._current[key], event)
        for former, event in listing.returning:
            self._begin(event, former)
        for event in listing.fresh:
            self._begin(event)

    def pass_time(self, thresholds: Sequence[float]) -> None:
        """Record the events that have become imminent."""
        for life in imminent((*self._current.values(),), self._now, thresholds):
            self._keep(self._record(life, Transition.IMMINENT))

    def step(self) -> Step:
        awaited = tuple(self._awaited())
        surplus = _surplus_of(self._past, self._now)
        for key in surplus:
            del self._past[key]
        forgotten = (*self._replaced, *surplus)
        changed = tuple(
            life
            for key in self._touched
            if (life := self._life(key)) is not None and life != self._state.life(key)
        )
        boot = self._state.boot if self._moment is None else self._moment.boot
        state = WatchState(self._document.incarnation, self._now, boot, self._current, self._past)
        return Step(
            state,
            tuple(sorted(self._occurrences, key=rank)),
            awaited,
            changed,
            forgotten,
            self._replaced,
            new_incarnation=self._document.incarnation != self._state.incarnation,
        )

    def _begin(self, event: ScheduledEvent, former: Life | None = None) -> str:
        """Start a life, unless the event is over, and return its key; ``former`` is the life before it."""
        if event.event_status in _ENDING_STATUSES:
            return ""
        ids = (event.event_id,) if former is None else former.ids_with(event)
        life = Life(
            event,
            ids,
            foreign_ids=() if former is None else former.foreign_ids,
            first_seen=self._now,
            begun=self._moment,
            number=self._numbers.get(lower(ids[0]), 0) + 1,
            affects=None if self._instance is None else event.target(self._instance),
            announced=event.not_before,
            name_was_unknown=self._instance is None,
            instance=self._instance,
        )
        # An id may look like the key of another life.
        while (key := life.key) in self._current or key in self._past or key in self._state.current:
            life = replace(life, number=life.number + 1)
        self._numbers[lower(ids[0])] = life.number
        self._happen(with_notice(None, life, self._now), phase_of(event))
        return key

    def _continue(self, before: Life, event: ScheduledEvent) -> None:
        """Apply the newest content of an event to its life; this VM may join or leave the event."""
        affects = before.affects if self._instance is None else event.target(self._instance)
        outcome, told = _ENDING_STATUSES.get(event.event_status), before.last_reported or before.event
        changes_side = affects is not None and affects is not before.target
        # An event that is over cannot be joined.
        if changes_side and (outcome is None or before.target is Affected.SELF):
            self._change_side(before, event)
            return
        if event.event_type == UNKNOWN:
            # One that cannot be read is in doubt, and not another plan.
            event = replace(event, event_type=before.event.event_type)
        if event.event_type != before.event.event_type:
            self._end(before, Transition.CANCELLED, changed_to=event.event_type)
            self._begin(event, before)
            return
        if outcome is not None:
            self._end(replace(before, event=event), outcome)
            return
        transition = _status_transition(before, event)
        after = replace(
            before,
            event=event,
            ids=before.ids_with(event),
            affects=affects,
            unread=False,
            announced=event.not_before or before.announced,
        )
        after = with_notice(before, after, self._now)
        if transition is not None:
            self._happen(replace(after, last_reported=None), transition)
        elif event.is_started != told.is_started:
            # Azure clears NotBefore at the start, and sets it again if an event returns to Scheduled.
            self._keep(replace(after, last_reported=None))
        else:
            self._update(told, after)

    def _change_side(self, before: Life, event: ScheduledEvent) -> None:
        """End a life because this VM left the event, or, without a transition, joined it; begin another."""
        if before.target is Affected.OTHER:
            del self._current[before.key]
            self._replaced[before.key] = self._begin(event, before)
            return
        # An event that was announced as this VM's only because the name was unknown never happened to it.
        happened = before.affects is not None and before.has(Transition.STARTED)
        outcome = Transition.COMPLETED if happened else Transition.CANCELLED
        if before.instance is not None and event.target(before.instance) is Affected.SELF:
            # It is the configured name that has changed.
            outcome = Transition.VANISHED
        self._end(before, outcome, left=True)
        self._begin(event, before)

    def _update(self, told: ScheduledEvent, after: Life) -> None:
        """Record an update with all changes since the last one, unless that was less than a minute ago."""
        changes = changes_between(told, after.event)
        if not changes or self.is_full or len(after.transitions) >= MOST_TRANSITIONS:
            self._keep(replace(after, last_reported=None))
            return
        updates = (r.at for r in reversed(after.transitions) if r.transition is Transition.UPDATED)
        last = next(updates, None)
        if last is not None and abs(self._now - last) < UPDATE_INTERVAL:
            self._keep(replace(after, last_reported=told))
        else:
            self._happen(replace(after, last_reported=None), Transition.UPDATED, changes)

    def _happen(self, life: Life, transition: Transition, changes: tuple[Change, ...] = ()) -> None:
        """Record a transition of a life that continues."""
        if transition is Transition.STARTED and self._is_watched():
            life = replace(life, started=self._now)
        self._keep(self._record(life, transition, changes))

    def _end(
        self, before: Life, outcome: Transition, *, changed_to: str | None = None, left: bool = False
    ) -> None:
        impact = None
        if outcome is Transition.COMPLETED and before.started is not None and self._watching:
            seconds = (self._now - before.started).total_seconds()
            # If the clock was set back meanwhile, how long it took is not known.
            impact = seconds if seconds >= 0 else None
        after = replace(
            before,
            ended=self._now,
            outcome=outcome,
            impact_seconds=impact,
            last_reported=None,
            unread=False,
            changed_to=changed_to,
            left=left,
        )
        self._current.pop(after.key, None)
        ended = self._record(after, outcome)
        # The occurrence has the changes for the spans of this life, and nothing reads them any more.
        self._keep(replace(ended, transitions=without_changes(ended.transitions)))

    def _keep(self, life: Life) -> None:
        key = life.key
        (self._current if life.ended is None else self._past)[key] = life
        self._touched[key] = None

    def _life(self, key: str) -> Life | None:
        return self._current.get(key) or self._past.get(key)

    def _record(self, life: Life, transition: Transition, changes: tuple[Change, ...] = ()) -> Life:
        kept = tuple(change.brief for change in changes)
        size = weight(msgspec.json.encode(kept)) if kept else 0
        if size > self._room_for_changes:
            kept, size = (), 0
        self._room_for_changes -= size
        life = life.with_record(TransitionRecord(transition, self._now, changes=kept))
        if transition in PHASES:
            life = replace(life, hooks_wait=self._instance is None)
        self._occurrences.append(Occurrence(life, transition, self._now, changes))
        return life

    def _is_watched(self) -> bool:
        before = self._state.last_success
        return before is not None and abs(self._now - before) <= WATCHED

    def _outcome(self, life: Life) -> Transition:
        """Return the outcome of an event that the document no longer lists."""
        if life.has(Transition.STARTED):
            return Transition.COMPLETED
        is_advice = life.event.is_advice or not life.has(Transition.SCHEDULED)
        if is_advice and self._document.incarnation is not None:
            return Transition.CANCELLED
        before = self._state.last_success
        recent = before is not None and abs(self._now - before) < SWITCH_OFF
        # A reboot between the two documents may have been the event.
        not_before = life.event.not_before
        is_another_boot = self._moment is not None and self._moment.boot != self._state.boot
        is_missed = is_another_boot and (not_before is None or not_before <= self._now)
        is_one_unknown = any(defect.lost and not defect.event_id for defect in self._document.defects)
        follows = is_next_incarnation(self._state, self._document)
        is_readable = not life.unread and life.event.event_status != UNKNOWN
        proven = follows and recent and is_readable and not is_one_unknown and not is_missed
        return Transition.CANCELLED if proven else Transition.VANISHED

    def _awaited(self) -> Iterator[Occurrence]:
        """Yield the phases of events for which hooks have waited until now."""
        for life in tuple(self._current.values()) if self._instance is not None else ():
            if life.hooks_wait and life.affects is not None:
                self._keep(replace(life, hooks_wait=False))
                yield phase_reached(life)


def _surplus_of(past: dict[str, Life], now: datetime) -> list[str]:
    """Return the keys of past lives that are too old or exceed the limit; ``past`` is oldest first."""
    oldest = now - HISTORY
    room = MOST_PAST_BYTES
    surplus = []
    for key, life in reversed(past.items()):
        size = life.weight
        if size > room or (life.ended is not None and life.ended < oldest):
            surplus.append(key)
        else:
            room -= size
    return surplus


def _status_transition(before: Life, event: ScheduledEvent) -> Transition | None:
    if event.is_started and not before.has(Transition.STARTED):
        return Transition.STARTED
    if event.is_scheduled and not before.has(Transition.SCHEDULED, Transition.STARTED):
        return Transition.SCHEDULED
    return None
