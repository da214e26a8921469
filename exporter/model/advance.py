"""The effects of a document, as a pure function of the known state, the document and the time."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from exporter.clock import Moment
from exporter.model.documents import Document
from exporter.model.events import CANCELED, COMPLETED, UNKNOWN, ScheduledEvent, Target
from exporter.model.imminent import imminent, with_notice
from exporter.model.lifecycle import (
    ENDINGS,
    HISTORY,
    Change,
    Known,
    Life,
    Occurrence,
    Step,
    Transition,
    TransitionRecord,
    changes_between,
    due_hooks,
    phase_of,
)
from exporter.model.listing import Listing, is_next_incarnation, listing_of
from exporter.model.messages import severity
from exporter.model.order import rank

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
# Content that keeps changing, or a type that does so without becoming graver, is reported at most this often
# per event.
UPDATE_INTERVAL = timedelta(seconds=60)
# The statuses of events that are over in Event Grid and Resource Graph.
_ENDING_STATUSES = {COMPLETED: Transition.COMPLETED, CANCELED: Transition.CANCELLED}


def advance(  # noqa: PLR0913  # all but three by name
    known: Known,
    document: Document,
    now: datetime,
    *,
    instance: str | None,
    watching: bool,
    named: bool = False,
    thresholds: Sequence[float] = (),
    moment: Moment | None = None,
) -> Step:
    """Return the effects of one valid document.

    ``instance`` is this VM's name, None while it is unknown. ``watching`` is true if this process processed
    the document before this one: otherwise the time at which an event ended is unknown. ``named`` is true if
    the name was known then: otherwise hooks may have been deferred. ``thresholds`` are those of `imminent`.
    ``moment`` is now, for lives that begin.
    While ``known.has_untold``, it is to be called for an unchanged document, too.

    Another type ends the life of an event and begins a new one. After such a change a graver type does so at
    once, any other after a minute; meanwhile the event is shown as it is.

    The newest past lives are kept, 1.5 MiB of them. After 1,000 transitions of a life, or while the current
    lives are full (see `Known.is_full`), changes of its event are shown, but are not transitions. Full lives
    do not wait either: an event that cannot be read ends, and a change of its type is reported at once.
    """
    walk = _Walk(known, document, now, instance, watching=watching, moment=moment)
    walk.take_in(listing_of(known, document, instance))
    walk.pass_time(thresholds)
    return walk.step(named=named)


class _Walk:
    """Collects the effects of one document, life by life."""

    def __init__(
        self,
        known: Known,
        document: Document,
        now: datetime,
        instance: str | None,
        *,
        watching: bool,
        moment: Moment | None,
    ) -> None:
        self._known = known
        self._document = document
        self._now = now
        self._instance = instance
        self._watching = watching
        self._moment = moment
        self._is_full = known.is_full
        self._current = dict(known.current)
        self._past = dict(known.past)
        self._removed: set[str] = set()
        self._touched: dict[str, None] = {}
        self._occurrences: list[Occurrence] = []

    def take_in(self, found: Listing) -> None:
        """Start, continue or end the life of each event."""
        for life in found.unread:
            if self._is_full:
                self._end(life, Transition.VANISHED)
            else:
                self._keep(replace(life, unread=True))
        for life in found.gone:
            self._end(life, self._outcome(life))
        for key, event in found.continued.items():
            self._continue(self._known.current[key], event)
        for former, event in found.returning:
            self._begin(event, former)
        for event in found.fresh:
            self._begin(event)

    def pass_time(self, thresholds: Sequence[float]) -> None:
        """Record the events that have become imminent."""
        for life in imminent((*self._current.values(),), self._now, thresholds):
            self._keep(self._record(life, Transition.IMMINENT))

    def step(self, *, named: bool) -> Step:
        # Where one life of an event ends and another begins, the hooks of the end run first.
        hookable = sorted(self._hookable(named=named), key=lambda one: one.transition not in ENDINGS)
        surplus = _surplus_of(self._past, self._now)
        for key in surplus:
            del self._past[key]
        forgotten = (*self._removed, *surplus)
        changed = tuple(
            life
            for key in self._touched
            if (life := self._life(key)) is not None and life != self._known.life(key)
        )
        known = Known(self._document.incarnation, self._now, self._current, self._past)
        return Step(
            known,
            tuple(sorted(self._occurrences, key=rank)),
            tuple(hookable),
            changed,
            forgotten,
            new_incarnation=self._document.incarnation != self._known.incarnation,
        )

    def _begin(self, event: ScheduledEvent, former: Life | None = None, *, retyped: bool = False) -> None:
        """Start a life, unless the event is over; ``former`` is the previous life of the same event."""
        if event.event_status in _ENDING_STATUSES:
            return
        life = Life(
            event,
            (event.event_id,) if former is None else former.ids_with(event),
            first_seen=self._now,
            begun=self._moment,
            number=1 if former is None else former.number + 1,
            affects=None if self._instance is None else event.target(self._instance),
            announced=event.not_before,
            nameless=self._instance is None,
            instance=self._instance,
            retyped=retyped,
        )
        # An id may look like the key of another life.
        while (key := life.key) in self._current or key in self._past or key in self._removed:
            life = replace(life, number=life.number + 1)
        self._happen(with_notice(None, life, self._now), phase_of(event))

    def _continue(self, before: Life, event: ScheduledEvent) -> None:
        """Apply the newest content of an event to its life; this VM may join or leave the event."""
        affects = before.affects if self._instance is None else event.target(self._instance)
        outcome, told = _ENDING_STATUSES.get(event.event_status), before.untold or before.event
        changes_side = affects is not None and affects is not before.target
        # An event that is over cannot be joined.
        if changes_side and (outcome is None or before.target is Target.SELF):
            self._leave(before)
            self._begin(event, before)
            return
        if event.event_type == UNKNOWN:
            # One that cannot be read is in doubt, and not another plan.
            event = replace(event, event_type=before.event.event_type)
        if outcome is not None:
            self._end(replace(before, event=event, untold=told), outcome)
            return
        transition = _status_transition(before, event)
        is_retyped = event.event_type != before.event_type
        if is_retyped and (transition is not None or self._is_full or self._is_due(before, event)):
            self._end(before, Transition.CANCELLED, changed_to=event.event_type)
            self._begin(event, before, retyped=True)
            return
        after = replace(
            before,
            event=event,
            ids=before.ids_with(event),
            affects=affects,
            unread=False,
            announced=event.not_before or before.announced,
            # A delay counts from when an event was first shown as it is.
            begun=before.begun if event.event_type == before.event.event_type else self._moment,
        )
        after = with_notice(before, after, self._now)
        if is_retyped:
            self._keep(replace(after, untold=told))
        elif transition is not None:
            self._happen(replace(after, untold=None), transition)
        elif event.is_started != told.is_started:
            # Azure clears NotBefore at the start, and sets it again if an event returns to Scheduled.
            self._keep(replace(after, untold=None))
        else:
            self._update(told, after)

    def _is_due(self, life: Life, event: ScheduledEvent) -> bool:
        """Return whether a change of the type is reported now: a graver type, or none changed just before."""
        told = life.untold or life.event
        new, old = (severity(phase_of(one), one.event_type).weight for one in (event, told))
        return new > old or not life.retyped or abs(self._now - life.first_seen) >= UPDATE_INTERVAL

    def _leave(self, before: Life) -> None:
        """End a life because this VM left the event, or, without a transition, because it joined."""
        del self._current[before.key]
        if before.target is Target.OTHER:
            self._removed.add(before.key)
            return
        # An event that was announced as this VM's only because the name was unknown never happened to it.
        happened = before.affects is not None and before.has(Transition.STARTED)
        self._end(before, Transition.COMPLETED if happened else Transition.CANCELLED)

    def _update(self, told: ScheduledEvent, after: Life) -> None:
        """Record an update with all changes since the last one, unless that was less than a minute ago."""
        changes = changes_between(told, after.event)
        if not changes or self._is_full or len(after.transitions) >= MOST_TRANSITIONS:
            self._keep(replace(after, untold=None))
            return
        updates = (r.at for r in reversed(after.transitions) if r.transition is Transition.UPDATED)
        last = next(updates, None)
        if last is not None and abs(self._now - last) < UPDATE_INTERVAL:
            self._keep(replace(after, untold=told))
        else:
            self._happen(replace(after, untold=None), Transition.UPDATED, changes)

    def _happen(self, life: Life, transition: Transition, changes: tuple[Change, ...] = ()) -> None:
        """Record a transition of a life that continues."""
        if transition is Transition.STARTED and self._is_watched():
            life = replace(life, started=self._now)
        self._keep(self._record(life, transition, changes))

    def _end(self, before: Life, outcome: Transition, *, changed_to: str | None = None) -> None:
        impact = None
        is_whole = outcome is Transition.COMPLETED and not before.is_retyping
        if is_whole and before.started is not None and self._watching:
            seconds = (self._now - before.started).total_seconds()
            # If the clock was set back meanwhile, how long it took is not known.
            impact = seconds if seconds >= 0 else None
        after = replace(
            before.reported,
            ended=self._now,
            outcome=outcome,
            impact_seconds=impact,
            untold=None,
            unread=False,
            changed_to=changed_to,
        )
        self._current.pop(after.key, None)
        self._keep(self._record(after, outcome))

    def _keep(self, life: Life) -> None:
        key = life.key
        (self._current if life.ended is None else self._past)[key] = life
        self._touched[key] = None

    def _life(self, key: str) -> Life | None:
        return self._current.get(key) or self._past.get(key)

    def _record(self, life: Life, transition: Transition, changes: tuple[Change, ...] = ()) -> Life:
        records = (*life.transitions, TransitionRecord(transition, self._now))
        life = replace(
            life, transitions=records, hooked=life.hooked if self._instance is None else len(records)
        )
        self._occurrences.append(Occurrence(life, transition, self._now, changes))
        return life

    def _is_watched(self) -> bool:
        before = self._known.last_success
        return before is not None and abs(self._now - before) <= WATCHED

    def _outcome(self, life: Life) -> Transition:
        """Return the outcome of an event that the document no longer lists."""
        if life.has(Transition.STARTED):
            return Transition.COMPLETED
        is_advice = life.reported.event.is_advice or not life.has(Transition.SCHEDULED)
        if is_advice and self._document.incarnation is not None:
            return Transition.CANCELLED
        before = self._known.last_success
        recent = before is not None and abs(self._now - before) < SWITCH_OFF
        nameless = any(defect.lost and not defect.event_id for defect in self._document.defects)
        follows = is_next_incarnation(self._known, self._document)
        is_readable = not life.unread and life.event.event_status != UNKNOWN
        proven = follows and recent and not nameless and is_readable
        return Transition.CANCELLED if proven else Transition.VANISHED

    def _hookable(self, *, named: bool) -> Iterator[Occurrence]:
        """Yield the transitions for which hooks are to be queued now, and mark them as queued."""
        if self._instance is None:
            return
        changes = {(one.life.key, len(one.life.transitions)): one.changes for one in self._occurrences}
        happened = dict.fromkeys(key for key, _ in changes)
        for key in happened if named else (*self._current, *self._past):
            life, before = self._life(key), self._known.life(key)
            queued = before.hooked if before is not None else 0
            if life is None or queued == len(life.transitions):
                continue
            # An end needs no hook if none has run for the event.
            if queued or life.ended is None:
                life = replace(life, hooked=len(life.transitions))
                self._keep(life)
                for due in due_hooks(life, queued):
                    yield replace(due, changes=changes.get((key, len(due.life.transitions)), ()))


def _surplus_of(past: dict[str, Life], now: datetime) -> list[str]:
    """Return the keys of past lives that are too old, or too much; ``past`` is oldest first."""
    oldest = now - HISTORY
    room = MOST_PAST_BYTES
    surplus = []
    for key, life in reversed(past.items()):
        room -= life.weight
        if room < 0 or (life.ended is not None and life.ended < oldest):
            surplus.append(key)
    return surplus


def _status_transition(before: Life, event: ScheduledEvent) -> Transition | None:
    if event.is_started and not before.has(Transition.STARTED):
        return Transition.STARTED
    if event.is_scheduled and not before.has(Transition.SCHEDULED, Transition.STARTED):
        return Transition.SCHEDULED
    return None
