"""Documents as large as they may be, and other ones at each poll."""

import itertools
import json
import string
from collections.abc import Callable
from typing import Any

from exporter.model.documents import MOST_EVENTS
from exporter.model.events import STARTED
from exporter.transport import BODY_LIMIT
from tests.builders import raw_event

# From the number of a document to its events.
Listed = Callable[[int], list[dict[str, Any]]]

NAMES = ["".join(letters) for letters in itertools.product(string.ascii_letters, repeat=2)]


def swinging(number: int) -> list[dict[str, Any]]:
    """Return events with many short names for one poll only, so that their changes wait to be reported."""
    large = range(4 * (number % 75), 4 * (number % 75) + 4)
    return [
        raw_event(EventId=str(n), Resources=["WestNO_0", *(NAMES * 7 if n in large else [])])
        for n in range(300)
    ]


def renewed(number: int) -> list[dict[str, Any]]:
    """Continue each event under another long id at every poll."""
    return [
        raw_event(EventId=f"{number}-{n}".ljust(250, "x"), EventType=f"T{n}", EventStatus=STARTED)
        for n in range(900)
    ]


def buried(number: int) -> list[dict[str, Any]]:
    """Return large new events, followed by only the ids of former ones."""
    new = [raw_event(EventId=f"{number}-{n}", Description="x" * 400) for n in range(MOST_EVENTS)]
    former = ((turn, n) for turn in range(max(number - 15, 0), number) for n in range(MOST_EVENTS))
    return [*new, *({"EventId": f"{turn}-{n}"} for turn, n in former)]


def wide(number: int) -> list[dict[str, Any]]:
    """Return events with the shortest names, other ones each time."""
    return [raw_event(EventId=f"{number}-{n}", Resources=["WestNO_0", *NAMES * 8]) for n in range(4)]


def long(number: int) -> list[dict[str, Any]]:
    """Return events whose texts all take four times as much in memory, other ones each time."""
    text = "\N{GRINNING FACE}" + "x" * 240
    fields = {"EventType": text, "EventStatus": text, "EventSource": text, "ResourceType": text}
    return [raw_event(EventId=f"{number}-{n}", Resources=[], **fields) for n in range(700)]


LARGEST: tuple[Listed, ...] = (wide, long, swinging, renewed, buried)


def largest(listed: Listed, number: int) -> bytes:
    """Return the document with a number, in as few bytes as it can be written."""
    found = {"DocumentIncarnation": number, "Events": listed(number)}
    document = json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()
    assert len(document) <= BODY_LIMIT
    return document
