"""The facts about the simulated VM, as ``/metadata/instance`` has them.

Source: Azure's page "Azure Instance Metadata Service" (fields, the versions that brought them, formats).
"""

import uuid
from typing import Any

INSTANCE_VERSIONS = (
    "2017-03-01",
    "2017-04-02",
    "2017-08-01",
    "2017-10-01",
    "2017-12-01",
    "2018-02-01",
    "2018-04-02",
    "2018-10-01",
    "2019-02-01",
    "2019-03-11",
    "2019-04-30",
    "2019-06-01",
    "2019-06-04",
    "2019-08-01",
    "2019-08-15",
    "2019-11-01",
    "2020-06-01",
    "2020-07-15",
    "2020-09-01",
    "2020-10-01",
    "2020-12-01",
    "2021-01-01",
    "2021-02-01",
    "2021-03-01",
    "2021-05-01",
    "2021-10-01",
    "2021-11-01",
    "2021-11-15",
    "2021-12-13",
    "2023-07-01",
)
_FIRST = INSTANCE_VERSIONS[0]
_SINCE = {
    "azEnvironment": "2018-10-01",
    "location": "2017-04-02",
    "name": "2017-04-02",
    "offer": "2017-04-02",
    "osProfile": "2020-07-15",
    "osType": "2017-04-02",
    "platformFaultDomain": "2017-04-02",
    "platformUpdateDomain": "2017-04-02",
    "priority": "2020-12-01",
    "provider": "2018-10-01",
    "publisher": "2017-04-02",
    "resourceGroupName": "2017-08-01",
    "resourceId": "2019-03-11",
    "sku": "2017-04-02",
    "subscriptionId": "2017-08-01",
    "tags": "2017-08-01",
    "tagsList": "2019-06-04",
    "vmId": "2017-04-02",
    "vmScaleSetName": "2017-12-01",
    "vmSize": "2017-04-02",
    "zone": "2017-12-01",
}


def facts(vm_name: str, version: str = INSTANCE_VERSIONS[-1]) -> dict[str, Any]:
    """Return the facts about a VM of that name, as a version knows them: made up, the same at every start."""
    document = _facts(vm_name)
    compute = document["compute"]
    known = {name: value for name, value in compute.items() if _SINCE.get(name, _FIRST) <= version}
    return document | {"compute": known}


def lookup(document: Any, path: str) -> Any:
    """Return what stands at a path such as ``compute/name`` or ``network/interface/0``.

    Raises:
        LookupError: there is nothing.
    """
    for name in filter(None, path.split("/")):
        if isinstance(document, list) and name.isdecimal():
            document = document[int(name)]
        elif isinstance(document, dict):
            document = document[name]
        else:
            raise LookupError(name)
    return document


def as_text(found: Any) -> str:
    """Write a value, or list the names below it, as ``format=text`` does."""
    if isinstance(found, str):
        return found
    inner = found.items() if isinstance(found, dict) else enumerate(found)
    return "\n".join(f"{name}{'' if isinstance(value, str) else '/'}" for name, value in inner)


def _facts(vm_name: str) -> dict[str, Any]:
    prefix, _, number = vm_name.rpartition("_")
    scale_set = prefix if number.isdigit() else ""
    domain = str(int(number) % 5) if scale_set else "0"
    subscription = str(uuid.uuid5(uuid.NAMESPACE_URL, "simulator/subscription"))
    names = (
        ("virtualMachineScaleSets", scale_set, "virtualMachines", number)
        if scale_set
        else ("virtualMachines", vm_name)
    )
    path = ("subscriptions", subscription, "resourceGroups", "demo", "providers", "Microsoft.Compute", *names)
    compute = {
        "azEnvironment": "AzurePublicCloud",
        "location": "westeurope",
        "name": vm_name,
        "offer": "0001-com-ubuntu-server-jammy",
        "osProfile": {"computerName": _computer_name(vm_name, scale_set, number)},
        "osType": "Linux",
        "platformFaultDomain": domain,
        "platformUpdateDomain": domain,
        "priority": "Regular",
        "provider": "Microsoft.Compute",
        "publisher": "canonical",
        "resourceGroupName": "demo",
        "resourceId": "/" + "/".join(path),
        "sku": "22_04-lts-gen2",
        "subscriptionId": subscription,
        "tags": "environment:demo",
        "tagsList": [{"name": "environment", "value": "demo"}],
        "vmId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"simulator/{vm_name}")),
        "vmScaleSetName": scale_set,
        "vmSize": "Standard_D2s_v5",
        "zone": "1",
    }
    address = {"privateIpAddress": "10.0.0.4", "publicIpAddress": ""}
    network = {
        "interface": [
            {
                "ipv4": {"ipAddress": [address], "subnet": [{"address": "10.0.0.0", "prefix": "24"}]},
                "ipv6": {"ipAddress": []},
                "macAddress": "000D3A000004",
            }
        ]
    }
    return {"compute": compute, "network": network}


def _computer_name(vm_name: str, scale_set: str, number: str) -> str:
    """Return a host name as Azure forms it: instances of a uniform scale set are numbered in base 36."""
    if not scale_set:
        return vm_name
    digits, left = "", int(number)
    while left:
        left, digit = divmod(left, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"{scale_set.lower()}{digits:0>6}"
