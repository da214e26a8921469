"""What the simulated service says: its documents by API version.

Source: Azure's page "Scheduled Events for Linux VMs" (versions and fields).
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from email.utils import format_datetime
from typing import Any

import msgspec

from exporter.simulator.engine import Event

# The preview: names have a leading underscore, and the header is not asked for.
PREVIEW = "2017-03-01"
EVENTS_VERSIONS = (
    PREVIEW,
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)
_TYPE_SINCE = {"Preempt": "2017-11-01", "Terminate": "2019-01-01"}
_FIELD_SINCE = {"Description": "2019-04-01", "EventSource": "2019-08-01", "DurationInSeconds": "2020-07-01"}


def events_document(
    incarnation: int, events: Iterable[Event], version: str, wall: Callable[[float], datetime]
) -> bytes:
    """Write the document as an API version knows it; ``wall`` turns simulated times into aware ones.

    NotBefore is the start, rounded down to whole seconds: Started may never come before it. An Advisory has
    none, as nothing is scheduled yet.
    """
    known = (event for event in events if _TYPE_SINCE.get(event.plan.type, PREVIEW) <= version)
    listed = [_fields(event, version, wall) for event in known]
    return msgspec.json.encode({"DocumentIncarnation": incarnation, "Events": listed})


def _fields(event: Event, version: str, wall: Callable[[float], datetime]) -> dict[str, Any]:
    plan, scheduled = event.plan, event.status == "Scheduled"
    underscore = "_" if version == PREVIEW else ""
    fields: dict[str, Any] = {
        "EventId": event.event_id,
        "EventStatus": event.status,
        "EventType": plan.type,
        "ResourceType": "VirtualMachine",
        "Resources": [underscore + name for name in event.resources],
        "NotBefore": format_datetime(wall(event.starts), usegmt=True) if scheduled else "",
        "Description": event.description,
        "EventSource": plan.source,
        "DurationInSeconds": event.duration_in_seconds,
    }
    return {name: value for name, value in fields.items() if _FIELD_SINCE.get(name, PREVIEW) <= version}
