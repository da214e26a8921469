"""Random histories of documents, as IMDS might serve them at worst; each follows from its seed alone."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, NamedTuple

from tests.model.reading import ADVICE

NAME = "vm_0"
BEGINNING = datetime(2026, 3, 4, 22, 0, tzinfo=UTC)

_SPELLINGS = (NAME, "VM_0", "_vm_0", "_Vm_0")
_OTHERS = ("vm_1", "_VM_1", "vm_2", "__vm_0", "vm_00")
_TYPES = ("Freeze", "Reboot", "Freeze", "Reboot", "Preempt", ADVICE)
_SOURCES = ("Platform", "User")
_GAPS = (
    *(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 90, 600),
    *(29, 30, 31, 59, 60, 61, 300),  # around the limits of a watched start and of updates
    *(86_399, 86_400, 86_401, 172_800),  # around a day, after which IMDS is switched off
    *(-1, -45, -7200, -90_000),  # the clock is set back
)
_TIMES = ("soon", "", None, "Mon, 04 Mar 2026 22:15:00 GMT")
_DURATIONS = (-1, 0, 5, 9, None, "unknown")
_DESCRIPTIONS = ("", "", "Maintenance.", None)

Raw = dict[str, Any]


class Step(NamedTuple):
    """An answer of IMDS; ``restart``: the process that gets it did not get the one before; on which boot."""

    at: datetime
    body: bytes
    instance: str | None = NAME
    restart: bool = False
    boot: int = 0


def history(seed: int | str) -> list[Step]:
    chance = random.Random(f"{seed} history")
    azure = Azure(chance)
    names = chance.choices((_always, _sometimes), (3, 1))[0]
    now = BEGINNING
    boot = 0
    steps: list[Step] = []
    for _ in range(chance.randrange(3, 18)):
        now += timedelta(seconds=chance.choice(_GAPS))
        restart = chance.random() < 0.15
        boot += restart and chance.random() < 0.5
        steps.append(Step(now, azure.answer(), names(chance), restart, boot))
    return steps


def _always(chance: random.Random) -> str | None:
    return chance.choice(_SPELLINGS)


def _sometimes(chance: random.Random) -> str | None:
    return NAME if chance.random() < 0.5 else None


class Azure:
    """The events that there are, were and had another id, and how they are served."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._incarnation = chance.randrange(3)
        self._events: list[Raw] = []
        self._gone: list[Raw] = []
        self._served: list[tuple[int, list[Raw]]] = []
        self._ids = 0

    def answer(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.03:
            return chance.choice((b"", b"<html>", b"[]", b'{"DocumentIncarnation": 7, "Events": [{'))
        if self._served and chance.random() < 0.06:
            return self._written(*chance.choice(self._served))
        for _ in range(chance.choices((0, 1, 2, 3), (3, 8, 4, 1))[0]):
            self._change()
            self._incarnation += 1
        self._incarnation = chance.choices(
            (self._incarnation, max(0, self._incarnation - 1), self._incarnation + 1, 0), (30, 10, 2, 1)
        )[0]
        self._served.append((self._incarnation, [dict(event) for event in self._events]))
        return self._written(*self._served[-1])

    def _written(self, incarnation: int, events: list[Raw]) -> bytes:
        chance = self._chance
        items: list[object] = [self._spoilt(event) if chance.random() < 0.05 else event for event in events]
        if chance.random() < 0.02:
            items.insert(chance.randrange(len(items) + 1), chance.choice((17, None, "A", {}, {"EventId": 5})))
        document: Raw = {"DocumentIncarnation": incarnation, "Events": items}
        if chance.random() < 0.05:
            document["DocumentIncarnation"] = str(incarnation)
        elif chance.random() < 0.04:
            document["DocumentIncarnation"] = chance.choice(("many", None, 1.5, [], True, ""))
        elif chance.random() < 0.03:
            del document["DocumentIncarnation"]
        return json.dumps(document).replace('"1e999"', "1e999").encode()

    def _spoilt(self, event: Raw) -> Raw:
        """Return an event with a field that cannot be read, now and then without its id."""
        spoilt = event | self._chance.choice(
            (
                {"EventType": 17},
                {"EventType": None},
                {"DurationInSeconds": "1e999"},
                {"EventStatus": 17},
                {"EventStatus": ""},
                {"NotBefore": "tomorrow"},
            )
        )
        if self._chance.random() < 0.2:
            del spoilt["EventId"]
        return spoilt

    def _change(self) -> None:
        alive = 5 if self._events else 0
        kinds: dict[Callable[[], None], float] = {
            self._announce: 1 if len(self._events) > 3 else 6,
            self._return: 2 if self._gone else 0,
            self._go: alive,
            self._start: alive,
            self._renew: alive,
            self._update: alive,
            self._move: alive / 2,
            self._retype: alive / 2,
            self._say: alive / 2,
            self._respell: alive / 5,
            self._shuffle: alive / 5,
            self._double: alive / 8,
        }
        self._chance.choices(list(kinds), list(kinds.values()))[0]()

    def _pick(self) -> Raw:
        return self._chance.choice(self._events)

    def _new_id(self) -> str:
        self._ids += 1
        return self._chance.choice((f"Id-{self._ids}", f"ID-{self._ids}"))

    def _status(self, *extra: str) -> str:
        word = self._chance.choice(("Scheduled", "Scheduled", "Started", *extra))
        return self._chance.choice((word, word, word, word.lower(), word.upper()))

    def _time(self) -> str | None:
        at = BEGINNING + timedelta(minutes=self._chance.choice((0, 2, 3, 11, 12, 15, 30)))
        right = (format_datetime(at, usegmt=True), at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        return self._chance.choice((*right, *right, *_TIMES))

    def _resources(self) -> list[str]:
        mine = [self._chance.choice(_SPELLINGS)] if self._chance.random() < 0.7 else []
        others = self._chance.sample(_OTHERS, self._chance.choice((0, 0, 0, 1, 1, 2)))
        return self._chance.sample(mine + others, len(mine + others))

    def _announce(self) -> None:
        chance = self._chance
        event: Raw = {
            "EventId": self._new_id(),
            "EventType": chance.choice(_TYPES),
            "EventStatus": self._status("Advisory"),
            "EventSource": chance.choice(_SOURCES),
            "Resources": self._resources(),
            "NotBefore": self._time(),
            "DurationInSeconds": chance.choice(_DURATIONS),
            "Description": chance.choice(_DESCRIPTIONS),
        }
        if self._events and chance.random() < 0.4:
            alike = self._pick()
            event |= {name: alike[name] for name in ("EventType", "EventSource", "Resources")}
        for name in ("Resources", "NotBefore", "DurationInSeconds", "Description"):
            if chance.random() < 0.03:
                event[name] = None
        self._events.append(event)

    def _return(self) -> None:
        event = self._chance.choice(self._gone)
        if not any(other["EventId"].lower() == event["EventId"].lower() for other in self._events):
            self._events.append(dict(event))

    def _go(self) -> None:
        event = self._pick()
        self._events.remove(event)
        self._gone.append(event)

    def _start(self) -> None:
        self._pick().update(EventStatus=self._chance.choice(("Started", "Started", "started")), NotBefore="")

    def _renew(self) -> None:
        """Change the id of an event, as some servers do whenever its status changes."""
        event = self._pick()
        self._gone.append(dict(event))
        event |= {
            "EventId": self._new_id(),
            "EventStatus": self._status("Started", "Started"),
            "NotBefore": "",
        }

    def _update(self) -> None:
        event, chance = self._pick(), self._chance
        for _ in range(chance.choice((1, 1, 2))):
            name, value = chance.choice(
                (
                    ("NotBefore", self._time()),
                    ("DurationInSeconds", chance.choice(_DURATIONS)),
                    ("Description", chance.choice(_DESCRIPTIONS)),
                    ("Resources", list(dict.fromkeys([*(event["Resources"] or ()), "vm_3"]))),
                    ("EventSource", chance.choice(_SOURCES)),
                    ("EventType", chance.choice(_TYPES)),
                )
            )
            event[name] = value

    def _move(self) -> None:
        self._pick()["Resources"] = self._resources()

    def _retype(self) -> None:
        self._pick()["EventType"] = self._chance.choice(_TYPES)

    def _say(self) -> None:
        self._pick()["EventStatus"] = self._status("Advisory", "Completed", "Canceled", "Cancelled", "Paused")

    def _respell(self) -> None:
        """Write an id or names in other letters; they stay the same."""
        event = self._pick()
        event["EventId"] = event["EventId"].swapcase()
        event["Resources"] = [name.swapcase() for name in event["Resources"] or ()][::-1]

    def _shuffle(self) -> None:
        self._chance.shuffle(self._events)

    def _double(self) -> None:
        """List an event a second time, in other words, or one that has another id by now beside it."""
        event = self._chance.choice(self._events + self._gone)
        self._events.append(event | {"EventStatus": self._status(), "Resources": self._resources()})
