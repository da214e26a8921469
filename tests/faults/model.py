"""What must have happened, worked out from the documents that were handed out, not from the product.

Nobody outside can tell whether a program that was killed, or stopped, right after an answer has still taken
it in, and whether what it noted while its disk was out of order is there after a kill. So there are several
possible worlds; what the exporter tells of itself at a quiet moment must be one of them.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tests.faults.truth import VM, Document, Event

ENDINGS = ("completed", "cancelled", "vanished")
View = dict[str, list[str]]  # transitions by the event's first id, in small letters


class Told(msgspec.Struct, frozen=True):
    """A transition; ``mine``: the event hit this VM then; those of one ``step`` came together."""

    id: str
    transition: str
    mine: bool
    step: int


class Life(msgspec.Struct, frozen=True):
    """An event as it is known: its ids in small letters, the first one first, and all that happened to it."""

    ids: tuple[str, ...]
    event: Event
    happened: tuple[Told, ...] = ()
    listed: bool = True

    def has(self, *transitions: str) -> bool:
        """Tell whether one of these has happened."""
        return any(told.transition in transitions for told in self.happened)


class State(msgspec.Struct, frozen=True):
    """What one who took in certain documents knows, by first id."""

    incarnation: int | None = None
    lives: dict[str, Life] = {}

    @property
    def view(self) -> View:
        """Give what happened to each event."""
        return {key: [told.transition for told in life.happened] for key, life in self.lives.items()}

    @property
    def future(self) -> frozenset[object]:
        """Give what matters to what can still happen."""
        return frozenset(
            (life.ids, life.event, life.listed, tuple(told.transition for told in life.happened))
            for life in self.lives.values()
        )

    @property
    def told(self) -> list[Told]:
        """List all that happened."""
        return [told for life in self.lives.values() for told in life.happened]


class World(msgspec.Struct, frozen=True):
    """A possible world.

    ``on_disk`` has what a restart may find instead of ``state``, while the disk is in doubt; ``lost`` what
    happened, and may have been told, but was forgotten by a kill in that time.
    """

    state: State = State()
    on_disk: tuple[State, ...] = ()
    lost: frozenset[Told] = frozenset()

    def saw(self, document: Document) -> "World":
        """Give the world after a document."""
        after = advance(self.state, document)
        if after == self.state:
            return self
        options = (*self.on_disk, after) if self.on_disk and after not in self.on_disk else self.on_disk
        return msgspec.structs.replace(self, state=after, on_disk=options)

    def disk_fails(self) -> "World":
        """Give the world in which from now on nothing is certainly written."""
        return self if self.on_disk else msgspec.structs.replace(self, on_disk=(self.state,))

    def disk_is_well(self) -> "World":
        """Give the world in which all is written."""
        return msgspec.structs.replace(self, on_disk=())

    def restarts(self) -> Iterator["World"]:
        """Give the worlds that may be after a restart."""
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


def advance(state: State, document: Document) -> State:
    """Take a document into account, as the README's words on transitions say."""
    step = 1 + max((told.step for told in state.told), default=0)
    by_id = {i: key for key, life in state.lives.items() for i in life.ids}
    by_id |= {i: key for key, life in state.lives.items() if life.listed for i in life.ids}
    listed: dict[str, Event] = {}
    fresh: list[Event] = []
    for event in document.events:
        key = by_id.get(event.id.lower())
        if key is None:
            fresh.append(event)
        else:
            listed[key] = event
    gone = [key for key, life in state.lives.items() if life.listed and key not in listed]
    heirs = _heirs([state.lives[key] for key in gone], fresh)
    lives = dict(state.lives)
    for key, event in (listed | heirs).items():
        lives[key] = _seen(lives[key], event, step)
    for event in fresh:
        if event not in heirs.values():
            first = event.id.lower()
            lives[first] = _seen(Life((first,), event), event, step)
    in_sequence = state.incarnation is not None and document.incarnation == state.incarnation + 1
    for key in gone:
        if key not in heirs:
            lives[key] = _ended(lives[key], step, in_sequence=in_sequence)
    return State(document.incarnation, lives)


def _nature(event: Event) -> tuple[str, str, tuple[str, ...]]:
    return event.type, event.source, tuple(sorted(map(_name, event.resources)))


def _heirs(gone: Sequence[Life], fresh: Sequence[Event]) -> dict[str, Event]:
    """Find events that go on under a new id: one Scheduled goes, one alike comes, which is Started."""
    left = [life for life in gone if life.event.status == "Scheduled"]
    came = [event for event in fresh if event.status == "Started"]
    found = {}
    for life in left:
        nature = _nature(life.event)
        alike = [event for event in came if _nature(event) == nature]
        if len(alike) == 1 and sum(_nature(other.event) == nature for other in left) == 1:
            found[life.ids[0]] = alike[0]
    return found


def _seen(before: Life, event: Event, step: int) -> Life:
    ids = before.ids if event.id.lower() in before.ids else (*before.ids, event.id.lower())
    after = msgspec.structs.replace(before, ids=ids, event=event, listed=True)
    if event.status == "Started" and not before.has("started"):
        return _with(after, "started", step)
    if event.status == "Scheduled" and not before.has("scheduled", "started"):
        return _with(after, "scheduled", step)
    if event.status == before.event.status and _facts(event) != _facts(before.event):
        return _with(after, "updated", step)
    return after


def _ended(before: Life, step: int, *, in_sequence: bool) -> Life:
    outcome = "vanished"
    if before.has("started"):
        outcome = "completed"
    elif in_sequence:
        outcome = "cancelled"
    after = msgspec.structs.replace(before, listed=False)
    return after if before.has(outcome) else _with(after, outcome, step)


def _with(life: Life, transition: str, step: int) -> Life:
    told = Told(life.ids[0], transition, hits(life.event), step)
    return msgspec.structs.replace(life, happened=(*life.happened, told))


def _facts(event: Event) -> tuple[object, ...]:
    return event.not_before, event.duration, sorted(map(_name, event.resources)), event.description


def hits(event: Event) -> bool:
    """Tell whether an event is about this VM; one that names none may be."""
    return not event.resources or VM in map(_name, event.resources)


def _name(name: str) -> str:
    return name.removeprefix("_").lower()
