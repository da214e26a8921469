"""A model of the expected transitions, from the served documents, independent of the product.

From outside it is unknown whether a program that was killed, or stopped, right after an answer has still
taken it in, and whether what it noted while its disk was out of order is there after a kill. So there are
several possible worlds; what the exporter tells of itself at a quiet moment must be one of them.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tests.faults.truth import Document, Event

ENDINGS = ("completed", "cancelled", "vanished")
# What Azure may write of an event that is over.
OVER = {"completed": "completed", "canceled": "cancelled", "cancelled": "cancelled"}
# The lives of each event, by its first id in small letters: its target, and its transitions in order. Those
# that depend on more than the documents are left out.
View = dict[str, list[tuple[str, ...]]]
UNCERTAIN = ("updated", "approved", "hook_failed")


class Told(msgspec.Struct, frozen=True):
    """A transition in the life of that number; ``mine``: it affects this VM.

    Those of one ``step`` came together. ``updated`` stands for all changes within a life: they may be told
    together, and up to a minute later.
    """

    id: str
    life: int
    transition: str
    mine: bool
    step: int


class Life(msgspec.Struct, frozen=True):
    """A life of an event: its ids in small letters, the first one first, and all that happened in it."""

    number: int
    ids: tuple[str, ...]
    event: Event
    mine: bool
    happened: tuple[Told, ...] = ()
    listed: bool = True

    @property
    def transitions(self) -> tuple[str, ...]:
        """The names of what happened."""
        return tuple(told.transition for told in self.happened)

    def has(self, *transitions: str) -> bool:
        """Return whether one of these has happened."""
        return any(transition in transitions for transition in self.transitions)


class State(msgspec.Struct, frozen=True):
    """The state after certain documents: each event's lives, oldest first, by its first id."""

    incarnation: int | None = None
    lives: dict[str, tuple[Life, ...]] = {}

    @property
    def view(self) -> View:
        """The transitions of each event."""
        return {
            key: view(("self" if life.mine else "other", life.transitions) for life in lives)
            for key, lives in self.lives.items()
        }

    @property
    def future(self) -> frozenset[object]:
        """What matters to what can still happen."""
        newest = [lives[-1] for lives in self.lives.values()]
        return frozenset(
            (life.ids, life.event, life.mine, life.transitions) if life.listed else life.ids
            for life in newest
        )

    @property
    def told(self) -> list[Told]:
        """All that happened."""
        return [told for lives in self.lives.values() for life in lives for told in life.happened]


class World(msgspec.Struct, frozen=True):
    """A possible world.

    ``on_disk`` has what a restart may find instead of ``state``, while the disk is in doubt; ``lost`` what
    happened, and may have been told, but was forgotten by a kill in that time.
    """

    state: State = State()
    on_disk: tuple[State, ...] = ()
    lost: frozenset[Told] = frozenset()

    def saw(self, document: Document) -> "World":
        """Return the world after a document."""
        after = advance(self.state, document)
        if after == self.state:
            return self
        options = (*self.on_disk, after) if self.on_disk and after not in self.on_disk else self.on_disk
        return msgspec.structs.replace(self, state=after, on_disk=options)

    def disk_fails(self) -> "World":
        """Return the world in which from now on nothing is certainly written."""
        return self if self.on_disk else msgspec.structs.replace(self, on_disk=(self.state,))

    def disk_is_well(self) -> "World":
        """Return the world in which all is written."""
        return msgspec.structs.replace(self, on_disk=())

    def restarts(self) -> Iterator["World"]:
        """Return the worlds that may be after a restart."""
        for state in (self.state, *self.on_disk):
            kept = set(state.told)
            lost = {msgspec.structs.replace(told, step=0) for told in self.state.told if told not in kept}
            yield World(state, (), self.lost | lost)


def merged(worlds: Iterable[World]) -> list[World]:
    """Make one of those that differ in nothing but what a restart may find."""
    found: dict[object, World] = {}
    for world in worlds:
        known = world.state.incarnation, frozenset(world.state.lives.items()), world.lost
        other = found.get(known, world)
        more = [state for state in world.on_disk if state not in other.on_disk]
        found[known] = msgspec.structs.replace(other, on_disk=(*other.on_disk, *more))
    return list(found.values())


def view(lives: Iterable[tuple[str, Iterable[str]]]) -> list[tuple[str, ...]]:
    """Return what a `View` has of one event's lives; their order is that of the clock, which may be wrong."""
    return sorted((target, *(t for t in transitions if t not in UNCERTAIN)) for target, transitions in lives)


def advance(state: State, document: Document) -> State:
    """Process a document by the transitions in docs/events.md."""
    step = 1 + max((told.step for told in state.told), default=0)
    is_next = state.incarnation is not None and document.incarnation == state.incarnation + 1
    listed, fresh = _sorted(state, document)
    gone = [key for key, lives in state.lives.items() if lives[-1].listed and key not in listed]
    heirs = _heirs([state.lives[key][-1] for key in gone], fresh, is_next=is_next)
    lives = dict(state.lives)
    for key, event in (listed | heirs).items():
        lives[key] = _seen(lives[key], event, step)
    for key in gone:
        if key not in heirs:
            lives[key] = _ended(lives[key], _outcome(lives[key][-1], is_next=is_next), step)
    for event in fresh:
        if event not in heirs.values():
            lives[event.id.lower()] = (_begun(event, 1, (), step),)
    return State(document.incarnation, lives)


def _sorted(state: State, document: Document) -> tuple[dict[str, Event], list[Event]]:
    """Return the known events in a document, and the new ones."""
    keys = {i: key for key, lives in state.lives.items() for i in lives[-1].ids}
    ranks = {i: rank for lives in state.lives.values() for rank, i in enumerate(lives[-1].ids)}
    listed, fresh = {}, []
    # Of an event that is listed under several ids the newest holds.
    for event in sorted(document.events, key=lambda e: ranks.get(e.id.lower(), 0)):
        key = keys.get(event.id.lower())
        if key is not None:
            listed[key] = event
        elif event.state not in OVER:
            fresh.append(event)
    return listed, fresh


def _heirs(gone: Sequence[Life], fresh: Sequence[Event], *, is_next: bool) -> dict[str, Event]:
    """Find events that go on under a new id: one goes, and one alike comes, which is Started."""
    came = [event for event in fresh if event.state == "started"]
    found = {}
    for life in gone:
        nature = _nature(life.event)
        alike = [event for event in came if _nature(event) == nature]
        alone = len(alike) == 1 and sum(_nature(other.event) == nature for other in gone) == 1
        if alone and (life.event.state == "scheduled" or (life.event.state == "started" and is_next)):
            found[life.ids[0]] = alike[0]
    return found


def _nature(event: Event) -> tuple[str, str, tuple[str, ...]]:
    return event.type, event.source, tuple(sorted(event.names))


def _begun(event: Event, number: int, ids: tuple[str, ...], step: int) -> Life:
    transition = event.state if event.state in ("scheduled", "started") else "advised"
    return _with(Life(number, _with_id(ids, event), event, event.mine), transition, step)


def _seen(lives: tuple[Life, ...], event: Event, step: int) -> tuple[Life, ...]:
    """Return an event's lives after it was listed."""
    before = lives[-1]
    if not before.listed:
        over = event.state in OVER
        return lives if over else (*lives, _begun(event, before.number + 1, before.ids, step))
    if before.mine and not event.mine:
        ended = _ended(lives, "completed" if before.has("started") else "cancelled", step)
        if event.state in OVER:
            return ended
        return *ended, _begun(event, before.number + 1, before.ids, step)
    if event.state in OVER:
        return _ended(lives, OVER[event.state], step)
    if event.mine and not before.mine:
        # The life for others ends without a transition.
        return *lives[:-1], _begun(event, before.number + 1, before.ids, step)
    after = msgspec.structs.replace(before, ids=_with_id(before.ids, event), event=event)
    if event.state == "started" and not before.has("started"):
        after = _with(after, "started", step)
    elif event.state == "scheduled" and not before.has("scheduled", "started"):
        after = _with(after, "scheduled", step)
    elif event.state != before.event.state and "started" in (event.state, before.event.state):
        pass  # what changes with such a status is not told
    elif _facts(event) != _facts(before.event):
        after = after if after.has("updated") else _with(after, "updated", step)
    return *lives[:-1], after


def _with_id(ids: tuple[str, ...], event: Event) -> tuple[str, ...]:
    return ids if event.id.lower() in ids else (*ids, event.id.lower())


def _outcome(life: Life, *, is_next: bool) -> str:
    if life.has("started"):
        return "completed"
    return "cancelled" if is_next or not life.has("scheduled") else "vanished"


def _ended(lives: tuple[Life, ...], outcome: str, step: int) -> tuple[Life, ...]:
    return *lives[:-1], msgspec.structs.replace(_with(lives[-1], outcome, step), listed=False)


def _with(life: Life, transition: str, step: int) -> Life:
    told = Told(life.ids[0], life.number, transition, life.mine, step)
    return msgspec.structs.replace(life, happened=(*life.happened, told))


def _facts(event: Event) -> tuple[object, ...]:
    return event.not_before, event.duration, sorted(event.names), event.description
