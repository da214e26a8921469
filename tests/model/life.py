"""The life of an event as the documentation describes it, in the plainest way.

All lives are kept, each with its whole story, and every question is answered by going through that again.
`advance` changes nothing that it is given, so states can be kept, compared and continued in several ways.
Nothing of the product is used.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from tests.model.histories import Step
from tests.model.reading import ADVICE, NO_TYPE, Document, Event, plain_name, read, same_name

ENDINGS = ("completed", "cancelled", "vanished")
ORDER = (ENDINGS, ("started",), ("updated",), ("imminent",), ("scheduled",), ("advised",))

THRESHOLDS = tuple(timedelta(seconds=seconds) for seconds in (600, 60))

WATCHED = timedelta(seconds=30)
FOLDED = timedelta(seconds=60)
SWITCHED_OFF = timedelta(hours=24)
_ENDED = ("completed", "canceled")  # The statuses that end a life.
_JOINED = "joined"  # How a life for others ends when this VM joins: without a word.

Changes = tuple[tuple[str, object, object], ...]


class Moment(NamedTuple):
    """A change of what is known of an event, and the transition that it was, if it was one."""

    at: datetime
    event: Event
    transition: str | None = None
    changes: Changes = ()


class Life(NamedTuple):
    """A life; ``unsure`` if it began while this VM's name was unknown, and it still is.

    ``changed_to`` is the new type, if it ended by a change of the type. ``apart`` has the ids that turned out
    to be another event's. ``instance`` is this VM's name when it began.
    """

    ids: tuple[str, ...]
    number: int
    target: str
    unsure: bool
    story: tuple[Moment, ...] = ()
    started: datetime | None = None
    changed_to: str | None = None
    apart: tuple[str, ...] = ()
    instance: str | None = None

    @property
    def own_ids(self) -> list[str]:
        return [i for i in self.ids if i not in self.apart]

    @property
    def event(self) -> Event:
        return self.story[-1].event

    @property
    def type(self) -> str:
        return self.story[0].event.type

    @property
    def transitions(self) -> list[Moment]:
        return [moment for moment in self.story if moment.transition not in (None, _JOINED)]

    @property
    def over(self) -> bool:
        return bool(self.story) and self.story[-1].transition in (*ENDINGS, _JOINED)

    @property
    def silent(self) -> bool:
        return self.has(_JOINED)

    def has(self, *transitions: str) -> bool:
        return any(moment.transition in transitions for moment in self.story)


class State(NamedTuple):
    """All lives, over or not, in the order in which they began, and the poll that gave the last document."""

    lives: tuple[Life, ...] = ()
    document: Document | None = None
    at: datetime | None = None
    boot: int | None = None


class Poll(NamedTuple):
    """A poll that gave a valid document.

    ``instance`` is None while this VM does not know its name; ``watching`` says whether the process that
    polls took in the document before this one, too.
    """

    document: Document
    at: datetime
    instance: str | None
    watching: bool
    boot: int


class Told(NamedTuple):
    transition: str
    life: Life
    changes: Changes = ()
    impact: timedelta | None = None


def follow(steps: Iterable[Step]) -> Iterator[tuple[State, list[Told]]]:
    state, watching = State(), False
    for step in steps:
        watching = watching and not step.restart
        try:
            document = read(step.body)
        except ValueError:
            state, told = pass_time(state, step.at)
            yield state, told
            continue
        state, told = advance(state, Poll(document, step.at, step.instance, watching, step.boot))
        watching = True
        yield state, told


def advance(state: State, poll: Poll) -> tuple[State, list[Told]]:
    state = state._replace(lives=tuple(_split(life, poll.document) for life in state.lives))
    heirs = _heirs(state, poll)
    lives = [life if life.over else _go_on(life, heirs, state, poll) for life in state.lives]
    listed = [event for event in poll.document.events.values() if event is not None]
    # Current lives are followed first, then past ones: new ones may have the same first id.
    current = {i for life in state.lives if not life.over for i in life.own_ids}
    current |= {event.id for event in heirs.values()}
    known = {i for life in lives for i in life.own_ids}
    for event in sorted(listed, key=lambda event: (event.id not in current, event.id not in known)):
        if not any(event.id in life.own_ids for life in lives if not life.over):
            earlier = [life for life in lives if event.id in life.own_ids or heirs.get(life.ids) == event]
            begun = _begin(event, earlier[-1] if earlier else None, lives, state, poll)
            lives += [begun] if begun else []
    lives = [_by_now(life, poll.at) for life in lives]
    told = []
    for index, life in enumerate(lives):
        before = len(state.lives[index].transitions) if index < len(state.lives) else 0
        told += [_told(life, moment, poll) for moment in life.transitions[before:]]
    told.sort(key=lambda each: [each.transition in words for words in ORDER].index(True))
    return State(tuple(lives), poll.document, poll.at, poll.boot), told


def _split(life: Life, document: Document) -> Life:
    """Return a life without the ids that the document lists beside a newer one of it."""
    listed = [i for i in life.own_ids if document.events.get(i)]
    return life._replace(apart=(*life.apart, *listed[:-1]))


def pass_time(state: State, now: datetime) -> tuple[State, list[Told]]:
    """Return the state after an answer that is not a document, and the reports."""
    lives = tuple(_by_now(life, now) for life in state.lives)
    told = [Told("imminent", life) for life in lives if life not in state.lives]
    return state._replace(lives=lives), told


def _by_now(life: Life, now: datetime) -> Life:
    event = life.event
    if life.over or event.kind != "scheduled" or event.not_before is None:
        return life
    left, ahead = event.not_before - now, _notice(life)
    if not any(left <= threshold < ahead for threshold in THRESHOLDS):
        return life
    return life._replace(story=(*life.story, Moment(now, event, "imminent")))


def _notice(life: Life) -> timedelta:
    """Return the notice at the last report that the start is near, or the longest announced since."""
    announced, notice = None, None
    for moment in life.story:
        if moment.event.not_before is None:
            continue
        if moment.event.kind == "scheduled":
            left = moment.event.not_before - moment.at
            if notice is None or moment.transition == "imminent":
                notice = left
            elif moment.event.not_before != announced:
                notice = max(notice, left)
        announced = moment.event.not_before
    assert notice is not None
    return notice


def _told(life: Life, moment: Moment, poll: Poll) -> Told:
    impact = None
    if moment.transition == "completed" and poll.watching and life.started:
        took = poll.at - life.started
        impact = took if took >= timedelta(0) else None
    life = life._replace(story=life.story[: life.story.index(moment) + 1])
    return Told(moment.transition or "", life, moment.changes, impact)


def _heirs(state: State, poll: Poll) -> dict[tuple[str, ...], Event]:
    """Return the events that continue under a new id, by the ids they had."""
    events = poll.document.events
    if not poll.watching or not _watched(state, poll):
        return {}
    dropped = [life for life in state.lives if not life.over and not any(i in events for i in life.own_ids)]
    known = [i for life in state.lives for i in life.ids]
    brought = [e for e in events.values() if e and e.status == "started" and e.id not in known]
    heirs = _alike(dropped, brought, _nature)
    own_dropped = [life for life in dropped if life.ids not in heirs and _hits(life.event, poll)]
    own_brought = [event for event in brought if event not in heirs.values() and _hits(event, poll)]
    heirs |= _alike(own_dropped, own_brought, lambda event: (event.type, event.source))
    renewable = [
        life.ids
        for life in dropped
        if life.event.status == "scheduled"
        or (life.event.status == "started" and _very_next(state, poll.document))
    ]
    return {ids: event for ids, event in heirs.items() if ids in renewable}


def _alike(
    dropped: Iterable[Life], brought: Iterable[Event], nature: Callable[[Event], object]
) -> dict[tuple[str, ...], Event]:
    """Return the new event for each life, where no other is like either."""
    heirs = {}
    for life in dropped:
        rivals = [other for other in dropped if nature(other.event) == nature(life.event)]
        alike = [event for event in brought if nature(event) == nature(life.event)]
        if len(rivals) == len(alike) == 1:
            heirs[life.ids] = alike[0]
    return heirs


def _watched(state: State, poll: Poll) -> bool:
    return state.at is not None and abs(poll.at - state.at) <= WATCHED


def _hits(event: Event, poll: Poll) -> bool:
    return _target(event, poll.instance) == "self"


def _nature(event: Event) -> tuple[str, str, list[str]]:
    return event.type, event.source, sorted(map(plain_name, event.resources))


def _very_next(state: State, document: Document) -> bool:
    if state.document is None or state.document.incarnation is None or document.incarnation is None:
        return False
    return document.incarnation == state.document.incarnation + 1


def _go_on(life: Life, heirs: Mapping[tuple[str, ...], Event], state: State, poll: Poll) -> Life:
    event = heirs.get(life.ids) or _entry(life.own_ids, poll.document)
    if event:
        return _listed(life, event, state, poll)
    if any(i in poll.document.events for i in life.own_ids):
        return life
    return _with(life, poll, life.event, _gone(life, state, poll))


def _entry(ids: Iterable[str], document: Document) -> Event | None:
    """Return an event in a document, by the newest of its ids if it lists several."""
    readable = [event for i in ids if (event := document.events.get(i))]
    return readable[-1] if readable else None


def _gone(life: Life, state: State, poll: Poll) -> str:
    if life.has("started"):
        return "completed"
    if not life.has("scheduled") or life.type == ADVICE:
        return "vanished" if poll.document.incarnation is None else "cancelled"
    if poll.document.nameless:
        return "vanished"
    assert state.document is not None
    assert state.at is not None
    due = life.event.not_before is None or life.event.not_before <= poll.at
    if poll.boot != state.boot and due:
        return "vanished"
    listed = [event for i in life.own_ids if (event := state.document.events.get(i))]
    readable = any(event.status != "unknown" for event in listed)
    recent = abs(poll.at - state.at) < SWITCHED_OFF
    return "cancelled" if readable and recent and _very_next(state, poll.document) else "vanished"


def _listed(life: Life, event: Event, state: State, poll: Poll) -> Life:
    """Return the life after a document that lists its event: it continues, or this VM joins or leaves."""
    target = _target(event, poll.instance) or life.target
    # An event that is over cannot be joined.
    if target == life.target or (event.kind in _ENDED and life.target == "other"):
        if event.type == NO_TYPE:
            event = event._replace(type=life.event.type)
        if event.type != life.type:
            return _with(life, poll, life.event, "cancelled")._replace(changed_to=event.type)
        ids = _with_id(life.ids, event)
        return _seen(life._replace(ids=ids, unsure=life.unsure and poll.instance is None), event, state, poll)
    if target == "self":
        return _with(life, poll, life.event, _JOINED)
    if life.instance is not None and _target(event, life.instance) == "self":
        # The name has changed, not the event.
        return _with(life, poll, life.event, "vanished")
    hit = life.has("started") and not life.unsure
    return _with(life, poll, life.event, "completed" if hit else "cancelled")


def _target(event: Event, instance: str | None) -> str | None:
    """Return which VMs the event affects, or None while this VM's name is unknown."""
    if instance is None:
        return None
    mine = not event.resources or any(same_name(name, instance) for name in event.resources)
    return "self" if mine else "other"


def _begin(
    event: Event, earlier: Life | None, lives: Iterable[Life], state: State, poll: Poll
) -> Life | None:
    ids = _with_id(earlier.ids if earlier else (), event)
    apart = earlier.apart if earlier else ()
    event = _entry([i for i in ids if i not in apart], poll.document) or event
    if event.kind in _ENDED:
        return None
    # Lives of two events may have the same first id.
    number = 1 + max((life.number for life in lives if life.ids[0] == ids[0]), default=0)
    target = _target(event, poll.instance) or "self"
    return _seen(
        Life(ids, number, target, poll.instance is None, apart=apart, instance=poll.instance),
        event,
        state,
        poll,
    )


def _with_id(ids: tuple[str, ...], event: Event) -> tuple[str, ...]:
    return ids if event.id in ids else (*ids, event.id)


def _seen(life: Life, event: Event, state: State, poll: Poll) -> Life:
    """Return the life after its event was read, with the transition that this is, if any."""
    if event.kind in _ENDED:
        return _with(life, poll, event, "completed" if event.kind == "completed" else "cancelled")
    transition = _by_status(life, event)
    if transition == "started":
        life = life._replace(started=poll.at if _watched(state, poll) else None)
    if transition is not None:
        return _with(life, poll, event, transition)
    if not life.story:
        return _with(life, poll, event, "advised")
    told = _last_told(life)
    changes = () if _starts_or_falls_back(told, event) else _changes(told, event)
    if changes and not _held_back(life, poll.at):
        return _with(life, poll, event, "updated", changes)
    return life if event == life.event else _with(life, poll, event, None)


def _by_status(life: Life, event: Event) -> str | None:
    if event.kind == "started" and not life.has("started"):
        return "started"
    return "scheduled" if event.kind == "scheduled" and not life.has("scheduled", "started") else None


def _with(life: Life, poll: Poll, event: Event, transition: str | None, changes: Changes = ()) -> Life:
    return life._replace(story=(*life.story, Moment(poll.at, event, transition, changes)))


def _last_told(life: Life) -> Event:
    """Return the event as last reported, or as it was when it last fell back from Started."""
    told = life.story[0].event
    for moment in life.story[1:]:
        if moment.transition not in (None, "imminent") or _starts_or_falls_back(told, moment.event):
            told = moment.event
    return told


def _starts_or_falls_back(before: Event, after: Event) -> bool:
    """Return whether the status alone changes to or from Started: changes with it are not reported."""
    return before.kind != after.kind and "started" in (before.kind, after.kind)


def _held_back(life: Life, now: datetime) -> bool:
    updates = [moment.at for moment in life.story if moment.transition == "updated"]
    return bool(updates) and abs(now - updates[-1]) < FOLDED


def _changes(old: Event, new: Event) -> Changes:
    fields = ("not_before", "duration_seconds", "resources", "description")
    return tuple((f, getattr(old, f), getattr(new, f)) for f in fields if not _same(f, old, new))


def _same(field: str, old: Event, new: Event) -> bool:
    if field == "resources":
        return sorted(map(plain_name, old.resources)) == sorted(map(plain_name, new.resources))
    return bool(getattr(old, field) == getattr(new, field))
