"""Azure's side: events that appear, change, start and end, and their documents; seeded."""

import json
import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec

VM = "vm_0"
TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
WHO: tuple[list[str], ...] = (
    [VM],
    [VM],
    [VM, "vm_1"],
    ["vm_1", VM],
    ["vm_1"],
    [],
    ["_VM_0"],
    ["VM_0", "vm_2"],
)
MOST_EVENTS = 10
FAILING = "the drain will fail"
OVER = ("Completed", "Canceled", "Cancelled")
_PENDING = ("advisory", "scheduled", "started")
_ENDED = tuple(status.lower() for status in OVER)
_DESCRIPTIONS = ("", "", "Host server is undergoing maintenance.", f"{FAILING} \u2028 \u00fc \U0001f600")


class Event(msgspec.Struct, frozen=True):
    """One event as a document lists it; ``not_before`` is as it is written there."""

    id: str
    type: str
    status: str
    source: str
    resources: tuple[str, ...]
    not_before: str
    description: str
    duration: int | None

    @property
    def state(self) -> str:
        """The status in small letters: Azure's case is not significant."""
        return self.status.lower()

    @property
    def names(self) -> tuple[str, ...]:
        """The resources as they are compared."""
        return tuple(name.removeprefix("_").lower() for name in self.resources)

    @property
    def mine(self) -> bool:
        """Whether it affects this VM; one that names none may."""
        return not self.resources or VM in self.names

    def written(self) -> dict[str, object]:
        """Return it as Azure writes it."""
        return {
            "EventId": self.id,
            "EventType": self.type,
            "EventStatus": self.status,
            "ResourceType": "VirtualMachine",
            "Resources": list(self.resources),
            "NotBefore": self.not_before,
            "Description": self.description,
            "EventSource": self.source,
            "DurationInSeconds": -1 if self.duration is None else self.duration,
        }


class Document(msgspec.Struct, frozen=True):
    """One document."""

    incarnation: int
    events: tuple[Event, ...] = ()

    @property
    def body(self) -> bytes:
        """Return it as IMDS sends it."""
        events = [event.written() for event in self.events]
        return json.dumps({"DocumentIncarnation": self.incarnation, "Events": events}).encode()


class Truth:
    """The documents in their order; `change` makes the next one."""

    def __init__(self, seed: int | str) -> None:
        self._chance = random.Random(f"{seed} events")
        self._now = datetime.now(UTC)
        self._incarnation = 1
        self._events: list[Event] = []
        self._gone: list[Event] = []
        self.documents = [Document(1)]

    @property
    def newest(self) -> Document:
        """The current document of IMDS."""
        return self.documents[-1]

    def change(self) -> Document:
        """Change something, and return the document that shows it."""
        kind = self._chance.choices(("one", "two", "reset"), (20, 3, 1))[0]
        for _ in range(2 if kind == "two" else 1):
            self._incarnation += 1
            self._one()
        if kind == "reset":
            self._incarnation = self._chance.randrange(3)
        return self._publish()

    def clear(self) -> Document:
        """End everything."""
        self._incarnation += 1
        self._gone += self._events
        self._events = []
        return self._publish()

    def _publish(self) -> Document:
        self.documents.append(Document(self._incarnation, tuple(self._events)))
        return self.newest

    def _one(self) -> None:
        kinds: dict[Callable[[], None], float] = {}
        if len(self._events) < MOST_EVENTS:
            kinds |= {self._announce: 10, self._strike: 1.5, self._advise: 1}
            if self._gone:
                kinds[self._return] = 1
        if self._those("scheduled"):
            kinds |= {self._start: 3, self._cancel: 3}
        if self._those("scheduled", "started"):
            kinds |= {self._renew: 2}
        if self._those("started"):
            kinds |= {self._end: 5, self._fall_back: 0.5}
        if self._those("advisory"):
            kinds |= {self._decide: 1.5}
        if self._those(*_PENDING):
            kinds |= {self._update: 5, self._spell: 0.7, self._join_or_leave: 4, self._finish: 1}
        if self._those(*_ENDED):
            kinds |= {self._sweep: 3, self._revive: 0.5}
        self._chance.choices(list(kinds), list(kinds.values()))[0]()

    def _those(self, *states: str) -> list[Event]:
        return [event for event in self._events if event.state in states]

    def _pick(self, *states: str) -> Event:
        return self._chance.choice(self._those(*states))

    def _replace(self, old: Event, **fields: object) -> None:
        self._events[self._events.index(old)] = msgspec.structs.replace(old, **fields)

    def _new_id(self) -> str:
        fresh = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        return self._chance.choice((fresh, fresh.upper()))

    def _not_before(self) -> str:
        at = self._now + timedelta(seconds=self._chance.randrange(900, 9000))
        return self._chance.choice((format_datetime(at, usegmt=True), at.strftime("%Y-%m-%dT%H:%M:%SZ")))

    def _announce(self) -> None:
        chance = self._chance
        event = Event(
            id=self._new_id(),
            type=chance.choices(TYPES, (4, 4, 2, 1, 1))[0],
            status="Scheduled",
            source=chance.choice(("Platform", "User")),
            resources=tuple(chance.choice(WHO)),
            not_before=self._not_before(),
            description=chance.choice(_DESCRIPTIONS),
            duration=chance.choice((None, 0, 5, 9, 30)),
        )
        self._events.append(event)

    def _strike(self) -> None:
        self._announce()
        self._replace(self._events[-1], status="Started", not_before="", source="Platform")

    def _advise(self) -> None:
        self._announce()
        self._replace(self._events[-1], status="Advisory")

    def _decide(self) -> None:
        """Schedule or withdraw what was only advised."""
        event = self._pick("advisory")
        status = self._chance.choice(("Scheduled", "Scheduled", "Started", ""))
        if status:
            self._replace(event, status=status)
        else:
            self._remove(event)

    def _start(self) -> None:
        self._replace(self._pick("scheduled"), status="Started", not_before="")

    def _cancel(self) -> None:
        self._remove(self._pick("scheduled"))

    def _end(self) -> None:
        self._remove(self._pick("started"))

    def _finish(self) -> None:
        """End an event by its status, and go on listing it."""
        event = self._pick(*_PENDING)
        status = self._chance.choice(OVER)
        self._replace(event, status=self._chance.choice((status, status.lower())))

    def _sweep(self) -> None:
        self._remove(self._pick(*_ENDED))

    def _revive(self) -> None:
        self._replace(self._pick(*_ENDED), status="Scheduled")

    def _remove(self, event: Event) -> None:
        self._events.remove(event)
        self._gone.append(event)

    def _update(self) -> None:
        event = self._pick(*_PENDING)
        fields: dict[str, object] = {
            "not_before": self._not_before(),
            "duration": (event.duration or 0) + 1,
            "description": event.description + ".",
            "resources": (*event.resources, f"vm_{len(event.resources) + 5}"),
        }
        name = self._chance.choice(list(fields))
        self._replace(event, **{name: fields[name]})

    def _join_or_leave(self) -> None:
        """Add this VM to the event, or remove it."""
        event = self._pick(*_PENDING)
        others = tuple(name for name in event.names if name != VM)
        self._replace(event, resources=(others or ("vm_1",)) if event.mine else (*others, VM))

    def _renew(self) -> None:
        """Start an event under a new id, as Microsoft's own mock server does."""
        event = self._pick("scheduled", "started")
        self._replace(event, id=self._new_id(), status="Started", not_before="")

    def _fall_back(self) -> None:
        self._replace(self._pick("started"), status="Scheduled", not_before=self._not_before())

    def _spell(self) -> None:
        """Write an id and a status in other letters."""
        event = self._pick(*_PENDING)
        status = self._chance.choice((event.status.lower(), event.status.upper(), event.status.title()))
        self._replace(event, id=event.id.swapcase(), status=status)

    def _return(self) -> None:
        event = self._chance.choice(self._gone[-5:])
        self._gone.remove(event)
        status = self._chance.choice(("Scheduled", "Started", event.status))
        self._events.append(msgspec.structs.replace(event, status=status))
