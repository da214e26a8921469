"""The model's decoder of IMDS's answers, independent of the product."""

import functools
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

_MEANING = ("scheduled", "started", "completed", "canceled")
NO_TYPE = "Unknown"
ADVICE = "SpotRebalanceRecommendation"


class Event(NamedTuple):
    """An event as one document lists it; the id and the status are in small letters."""

    id: str
    type: str
    status: str
    source: str = ""
    resources: tuple[str, ...] = ()
    not_before: datetime | None = None
    duration_seconds: int | None = None
    description: str = ""

    @property
    def kind(self) -> str:
        """Return one of the four statuses that mean something, or "other"; advice does not start."""
        is_advice = self.type == ADVICE and self.status in ("scheduled", "started")
        return self.status if self.status in _MEANING and not is_advice else "other"


class Document(NamedTuple):
    """A document; an event that cannot be read is None if its id is known, and else only ``nameless``."""

    incarnation: int | None
    events: Mapping[str, Event | None]
    nameless: bool = False


def read(body: bytes) -> Document:
    """Return the document; of two events with one id the last readable one holds.

    Raises:
        ValueError: the body is not a document.
    """
    content = json.loads(body)
    items = content.get("Events") if isinstance(content, dict) else None
    if items is None:
        raise ValueError("not a document")
    events: dict[str, Event | None] = {}
    nameless = False
    for item in items:
        found = item.get("EventId") if isinstance(item, dict) else None
        if isinstance(found, str) and found:
            earlier = events.pop(found.lower(), None)
            events[found.lower()] = _event(item) or earlier
        else:
            nameless = True
    return Document(_incarnation(content.get("DocumentIncarnation")), events, nameless)


def _incarnation(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _event(item: dict[str, Any]) -> Event | None:
    if item.get("DurationInSeconds") == math.inf:
        return None
    kind = item.get("EventType")
    status = item.get("EventStatus")
    status = status.lower() if isinstance(status, str) and status.strip() else "unknown"
    duration = item.get("DurationInSeconds")
    return Event(
        id=item["EventId"].lower(),
        type=kind if isinstance(kind, str) and kind.strip() else NO_TYPE,
        status=status.replace("cancelled", "canceled"),
        source=item.get("EventSource") or "",
        resources=tuple(item.get("Resources") or ()),
        not_before=_time(item.get("NotBefore") or ""),
        duration_seconds=duration if isinstance(duration, int) and duration >= 0 else None,
        description=item.get("Description") or "",
    )


@functools.cache
def _time(text: str) -> datetime | None:
    """Return the time; blank and unreadable ones are None, the weekday means nothing."""
    for form, part in (("%Y-%m-%dT%H:%M:%SZ", text), ("%d %b %Y %H:%M:%S GMT", text.partition(", ")[2])):
        try:
            return datetime.strptime(part, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None


def same_name(left: str, right: str) -> bool:
    return plain_name(left) == plain_name(right)


def plain_name(name: str) -> str:
    """Return a name without what does not count in it: its case and one leading underscore."""
    return name.removeprefix("_").lower()
