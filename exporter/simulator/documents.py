"""The documents of IMDS by API version: scheduled events and instance metadata.

Sources: Azure's pages "Scheduled Events for Linux VMs" and "Azure Instance Metadata Service" (fields, the
versions that introduced them, formats).
"""

import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from email.utils import format_datetime
from typing import Any

import msgspec

from exporter.config import API_VERSIONS
from exporter.simulator.engine import Event

PREVIEW = "2017-03-01"  # the preview version: names have a leading underscore, and the header is not required
EVENTS_VERSIONS = (PREVIEW, *API_VERSIONS[1:])
_TYPE_SINCE = {
    "Preempt": "2017-11-01",
    "Terminate": "2019-01-01",
    "SpotRebalanceRecommendation": "2024-07-09",
}
_FIELD_SINCE = {"Description": "2019-04-01", "EventSource": "2019-08-01", "DurationInSeconds": "2020-07-01"}

INSTANCE_VERSIONS = (
    "2017-03-01", "2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01", "2018-02-01", "2018-04-02",
    "2018-10-01", "2019-02-01", "2019-03-11", "2019-04-30", "2019-06-01", "2019-06-04", "2019-08-01",
    "2019-08-15", "2019-11-01", "2020-06-01", "2020-07-15", "2020-09-01", "2020-10-01", "2020-12-01",
    "2021-01-01", "2021-02-01", "2021-03-01", "2021-05-01", "2021-10-01", "2021-11-01", "2021-11-15",
    "2021-12-13", "2023-07-01",
)  # fmt: skip


def events_document(
    incarnation: int, events: Iterable[Event], version: str, wall: Callable[[float], datetime]
) -> bytes:
    """Return the document of an API version; ``wall`` converts simulated times to aware datetimes.

    NotBefore is the start, rounded down to whole seconds, because an event never starts before it. An
    Advisory has none, as nothing is scheduled yet.
    """
    supported = (event for event in events if _TYPE_SINCE.get(event.plan.type, PREVIEW) <= version)
    listed = [_fields(event, version, wall) for event in supported]
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


def instance_document(vm_name: str, version: str = max(INSTANCE_VERSIONS)) -> dict[str, Any]:
    """Return made-up instance metadata for a VM of that name, the same at every start."""
    brought = _compute_by_version(vm_name)
    supported = [facts for since, facts in brought.items() if since <= version]
    compute = {name: value for facts in supported for name, value in facts.items()}
    address = {"privateIpAddress": "10.0.0.4", "publicIpAddress": ""}
    interface = {
        "ipv4": {"ipAddress": [address], "subnet": [{"address": "10.0.0.0", "prefix": "24"}]},
        "ipv6": {"ipAddress": []},
        "macAddress": "000D3A000004",
    }
    return {"compute": dict(sorted(compute.items())), "network": {"interface": [interface]}}


def _compute_by_version(vm_name: str) -> dict[str, dict[str, Any]]:
    prefix, _, number = vm_name.rpartition("_")
    scale_set = prefix if number.isascii() and number.isdigit() else ""
    domain = str(int(number) % 5) if scale_set else "0"
    subscription = str(uuid.uuid5(uuid.NAMESPACE_URL, "simulator/subscription"))
    group = f"/subscriptions/{subscription}/resourceGroups/demo/providers/Microsoft.Compute"
    member = f"virtualMachineScaleSets/{scale_set}/virtualMachines/{number}"
    return {
        "2017-04-02": {
            "location": "westeurope",
            "name": vm_name,
            "offer": "0001-com-ubuntu-server-jammy",
            "osType": "Linux",
            "platformFaultDomain": domain,
            "platformUpdateDomain": domain,
            "publisher": "canonical",
            "sku": "22_04-lts-gen2",
            "vmId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"simulator/{vm_name}")),
            "vmSize": "Standard_D2s_v5",
        },
        "2017-08-01": {
            "resourceGroupName": "demo",
            "subscriptionId": subscription,
            "tags": "environment:demo",
        },
        "2017-12-01": {"vmScaleSetName": scale_set, "zone": "1"},
        "2018-10-01": {"azEnvironment": "AzurePublicCloud", "provider": "Microsoft.Compute"},
        "2019-03-11": {"resourceId": f"{group}/{member if scale_set else f'virtualMachines/{vm_name}'}"},
        "2019-06-04": {"tagsList": [{"name": "environment", "value": "demo"}]},
        "2020-07-15": {"osProfile": {"computerName": _computer_name(vm_name, scale_set, number)}},
        "2020-12-01": {"priority": "Regular"},
    }


def _computer_name(vm_name: str, scale_set: str, number: str) -> str:
    """Return a host name as Azure forms it: instances of a uniform scale set are numbered in base 36."""
    if not scale_set:
        return vm_name
    digits, left = "", int(number)
    while left:
        left, digit = divmod(left, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"{scale_set.lower()}{digits:0>6}"


def lookup(document: Any, path: str) -> Any:
    """Return the part at a path such as ``compute/name`` or ``network/interface/0``, or raise LookupError."""
    for name in filter(None, path.split("/")):
        if isinstance(document, list) and name.isascii() and name.isdecimal():
            document = document[int(name)]
        elif isinstance(document, dict):
            document = document[name]
        else:
            raise LookupError(name)
    return document


def as_text(part: Any) -> str:
    """Return a value, or the names below it, as ``format=text`` does."""
    if isinstance(part, str):
        return part
    inner = part.items() if isinstance(part, dict) else enumerate(part)
    return "\n".join(f"{name}{'' if isinstance(value, str) else '/'}" for name, value in inner)
