"""The facts about this VM from IMDS.

Source: Azure's page "Azure Instance Metadata Service", `/metadata/instance`.
"""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from exporter.errors import ImdsError, PollOutcome, cause
from exporter.model.events import LONGEST_NAME

# Of a label. Azure's limits of resource ids and tags are lower, and Azure allows 50 tags.
_LONGEST_TEXT = 500
_MOST_TAGS = 50
# By `azEnvironment`.
_PORTALS = {
    "AzurePublicCloud": "https://portal.azure.com",
    "AzureUSGovernmentCloud": "https://portal.azure.us",
    "AzureChinaCloud": "https://portal.azure.cn",
}


class VirtualMachine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts about this VM; "" if IMDS has none."""

    name: str = ""  # as in the ``Resources`` of events
    vm_id: str = ""
    resource_id: str = ""
    resource_group: str = ""
    subscription_id: str = ""
    location: str = ""
    zone: str = ""
    scale_set: str = ""
    size: str = ""
    fault_domain: str = ""
    computer_name: str = ""
    environment: str = ""
    priority: str = ""  # Regular or Spot
    node: str = ""  # its name in Kubernetes, which IMDS does not know
    tags: dict[str, str] = {}

    def with_tags(self, names: Iterable[str]) -> "VirtualMachine":
        """Return the facts with these tags alone; Azure does not distinguish case in names of tags."""
        tags = {name.casefold(): value for name, value in self.tags.items()}
        return replace(self, tags={name: tags.get(name.casefold(), "") for name in names})

    @property
    def portal_url(self) -> str:
        """The VM's page in Azure's portal; "" if its resource id or its cloud is unknown."""
        portal = _PORTALS.get(self.environment or "AzurePublicCloud")
        return f"{portal}/#resource{quote(self.resource_id)}" if portal and self.resource_id else ""


class _InstanceAnswer(msgspec.Struct):
    compute: dict[str, Any] | None = None


def decode_instance(body: bytes) -> VirtualMachine:
    """Return the facts in a response of IMDS, or raise ImdsError if it has no usable ones."""
    try:
        answer = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"), type=_InstanceAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"not a valid document about this VM: {cause(error)}"
        raise ImdsError(PollOutcome.INVALID_DOCUMENT, message) from error
    compute = answer.compute or {}
    profile = compute.get("osProfile")
    vm = VirtualMachine(
        name=_text(compute.get("name")),
        vm_id=_text(compute.get("vmId")),
        resource_id=_text(compute.get("resourceId")),
        resource_group=_text(compute.get("resourceGroupName")),
        subscription_id=_text(compute.get("subscriptionId")),
        location=_text(compute.get("location")),
        zone=_text(compute.get("zone")),
        scale_set=_text(compute.get("vmScaleSetName")),
        size=_text(compute.get("vmSize")),
        fault_domain=_text(compute.get("platformFaultDomain")),
        computer_name=_text(profile.get("computerName")) if isinstance(profile, dict) else "",
        environment=_text(compute.get("azEnvironment")),
        priority=_text(compute.get("priority")),
        tags=_tags(compute.get("tagsList"), compute.get("tags")),
    )
    if len(vm.name) > LONGEST_NAME:
        message = f"compute.name has {len(vm.name)} characters; {LONGEST_NAME} are possible"
        raise ImdsError(PollOutcome.INVALID_DOCUMENT, message)
    return vm


def tag_label(name: str) -> str:
    """Return the label of metrics for a tag."""
    return f"tag_{re.sub('[^a-zA-Z0-9_]', '_', name)}"


def _tags(listed: object, joined: object) -> dict[str, str]:
    """Return the tags of a list, or else of a text like ``name:value;name:value``."""
    if isinstance(listed, list):
        pairs = [(tag.get("name"), tag.get("value")) for tag in listed if isinstance(tag, dict)]
    else:
        pairs = [tag.partition(":")[::2] for tag in joined.split(";")] if isinstance(joined, str) else []
    return {_text(name): _text(value) for name, value in pairs[:_MOST_TAGS] if _text(name)}


def _text(value: object) -> str:
    """Return numbers as text, because fault domains have been both, and "" for anything else."""
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
