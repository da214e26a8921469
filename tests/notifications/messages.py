from datetime import timedelta
from typing import Any

from exporter.model.events import SCHEDULED, STARTED, Affected
from exporter.model.lifecycle import ENDINGS, Change, Transition, TransitionRecord
from exporter.model.messages import Message
from exporter.model.views import EventView
from tests.builders import NOT_BEFORE, REBOOT_ID
from tests.clocks import NOW

DESCRIPTION = "The host is being repaired."


def view(**fields: Any) -> EventView:
    """Return a Reboot of vm_0 and vm_1 in 15 minutes, with other values where given."""
    values: dict[str, Any] = {
        "id": REBOOT_ID,
        "ids": (REBOOT_ID,),
        "type": "Reboot",
        "source": "Platform",
        "status": SCHEDULED,
        "target": Affected.SELF,
        "resources": ("vm_0", "vm_1"),
        "description": DESCRIPTION,
        "not_before": NOT_BEFORE,
        "duration_seconds": 9,
        "first_seen": NOW,
        "started": None,
        "ended": None,
        "outcome": None,
        "transitions": (TransitionRecord(Transition.SCHEDULED, NOW),),
    }
    return EventView(**(values | fields))


def message(
    transition: Transition = Transition.SCHEDULED,
    *,
    instance: str | None = "vm_0",
    changes: tuple[Change, ...] = (),
    detail: str = "",
    **fields: Any,
) -> Message:
    """Return the message of a transition at NOW; the event has the life that leads there."""
    life: dict[str, Any] = {}
    if transition is Transition.STARTED:
        life = {"status": STARTED, "not_before": None, "started": NOW}
    if transition is Transition.ADVISED:
        life = {"status": "Advisory"}
    if transition in ENDINGS:
        life = {"first_seen": NOW - timedelta(minutes=20), "ended": NOW, "outcome": transition}
    if transition is Transition.COMPLETED:
        started = NOW - timedelta(seconds=598)
        life |= {"status": STARTED, "not_before": None, "started": started, "impact_seconds": 598.0}
    return Message(
        "oncall", REBOOT_ID.lower(), 1, transition, NOW, instance, view(**(life | fields)), changes, detail
    )
