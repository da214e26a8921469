"""Makers of events, documents and messages, as Azure writes them and as the exporter holds them."""

import json
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

from exporter.model.documents import Defect, Document
from exporter.model.events import SCHEDULED, STARTED, Affected, ScheduledEvent
from exporter.model.lifecycle import ENDINGS, Change, Transition, TransitionRecord
from exporter.model.messages import Message
from exporter.model.views import EventView
from exporter.model.vm import VirtualMachine
from tests.clocks import NOW

FREEZE_ID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
REBOOT_ID = "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"
NOT_BEFORE = NOW + timedelta(minutes=15)
SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
WEB_VM = VirtualMachine(
    name="web_0",
    vm_id="0b9a2c54-5a8f-4b0e-9d4e-7f1f4f6f1c01",
    resource_id=(
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg_web/providers/Microsoft.Compute"
        "/virtualMachineScaleSets/web/virtualMachines/0"
    ),
    resource_group="rg_web",
    subscription_id=SUBSCRIPTION,
    location="westeurope",
    zone="2",
    scale_set="web",
    size="Standard_D4s_v5",
    environment="AzurePublicCloud",
    computer_name="web000000",
    node="aks-web-12345678-vmss000000",
    priority="Regular",
    tags={"owner": "ops"},
)


class _Absent:
    """The type of `ABSENT`."""


ABSENT = _Absent()
"""Given as a field's value to `raw_event`, leaves the field out."""


def raw_event(**fields: Any) -> dict[str, Any]:
    """Return a Freeze as Azure writes it in API version 2020-07-01, with other values where given."""
    values = {
        "EventId": FREEZE_ID,
        "EventStatus": "Scheduled",
        "EventType": "Freeze",
        "ResourceType": "VirtualMachine",
        "Resources": ["WestNO_0", "WestNO_1"],
        "NotBefore": format_datetime(NOT_BEFORE, usegmt=True),
        "Description": "Virtual machine is being paused.",
        "EventSource": "Platform",
        "DurationInSeconds": 5,
    }
    return {name: value for name, value in (values | fields).items() if value is not ABSENT}


def body(*events: Any, incarnation: Any = 1) -> bytes:
    """Return an answer's body that lists these events, each anything that JSON can hold."""
    return json.dumps({"DocumentIncarnation": incarnation, "Events": list(events)}).encode()


def scheduled(**fields: Any) -> ScheduledEvent:
    values: dict[str, Any] = {
        "event_id": FREEZE_ID,
        "event_type": "Freeze",
        "event_status": SCHEDULED,
        "resources": ("WestNO_0", "WestNO_1"),
        "not_before": NOT_BEFORE,
        "duration_seconds": 5,
        "description": "Virtual machine is being paused.",
        "event_source": "Platform",
        "resource_type": "VirtualMachine",
    }
    return ScheduledEvent(**(values | fields))


def started(**fields: Any) -> ScheduledEvent:
    """Return the same event once it has started: Azure blanks its NotBefore."""
    return scheduled(**({"event_status": STARTED, "not_before": None} | fields))


def document(*events: ScheduledEvent, incarnation: int = 1, defects: tuple[Defect, ...] = ()) -> Document:
    return Document(incarnation, events, defects)


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
        "description": "The host is being repaired.",
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
    vm: VirtualMachine = VirtualMachine(),  # noqa: B008  # immutable
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
    event = view(**(life | fields))
    return Message("oncall", REBOOT_ID.lower(), 1, transition, NOW, instance, event, changes, detail, vm)
