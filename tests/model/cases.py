"""Short histories, and the reports of model and product about them."""

import json
from datetime import timedelta
from typing import Any

from tests.model.compare import difference, report
from tests.model.histories import BEGINNING, NAME, Step
from tests.model.life import Told, follow

EARLIER = "Wed, 04 Mar 2026 22:15:00 GMT"


def event(name: str = "A", status: str = "Scheduled", **fields: Any) -> dict[str, Any]:
    return {
        "EventId": name,
        "EventStatus": status,
        "EventType": "Reboot",
        "EventSource": "Platform",
        "Resources": [NAME],
        "NotBefore": EARLIER,
        "DurationInSeconds": 5,
        "Description": "",
    } | fields


def poll(seconds: float, incarnation: object, *events: object, **fields: Any) -> Step:
    """Return an answer that comes this long after the beginning."""
    text = json.dumps({"DocumentIncarnation": incarnation, "Events": events})
    # A number for which there is no value makes its event unreadable.
    body = text.replace('"1e999"', "1e999").encode()
    return Step(BEGINNING + timedelta(seconds=seconds), body, **fields)


def told_of(*steps: Step) -> list[list[Told]]:
    """Return the reports about each answer, which are the same for model and product."""
    found = difference(steps)
    assert found is None, report(steps, found)
    return [told for _, told in follow(steps)]


def story(*steps: Step) -> str:
    """Return the reports of each answer: transition, id, number of the life if not the first, target."""
    return " | ".join(", ".join(map(_word, told)) or "-" for told in told_of(*steps))


def last(*steps: Step) -> str:
    return story(*steps).rpartition(" | ")[2]


def _word(told: Told) -> str:
    number = f"/{told.life.number}" if told.life.number > 1 else ""
    return f"{told.transition} {told.life.ids[0]}{number}" + (" other" if told.life.target == "other" else "")


OTHERS = ["vm_1"]
A, STARTED = event(), event(status="Started", NotBefore="")
FOR_OTHERS = event(Resources=OTHERS)
UNREADABLE = event(DurationInSeconds="1e999")
