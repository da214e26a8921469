"""Whose spans they are: this VM, in the words of OpenTelemetry's semantic conventions.

Sources: the pages "Resource" > "Cloud", "Host", "Service" and "Azure" of the semantic conventions.
"""

import socket

from exporter import __version__
from exporter.config import PROGRAM
from exporter.imds import InstanceFacts


def resource_attributes(facts: InstanceFacts, instance: str | None) -> dict[str, str]:
    """Name program and VM, as far as IMDS has told; ``instance`` is this VM's name, where it is known."""
    name = instance or facts.name or socket.gethostname()
    # With what is no Unicode in it, which a command line may have, no span could be encoded.
    name = name.encode(errors="backslashreplace").decode()
    found = {
        "service.name": PROGRAM,
        "service.version": __version__,
        "service.instance.id": facts.vm_id or name,
        "cloud.provider": "azure",
        "cloud.platform": "azure.vm",
        "cloud.region": facts.location,
        "cloud.availability_zone": facts.zone,
        "cloud.account.id": facts.subscription_id,
        "cloud.resource_id": facts.resource_id,
        "host.id": facts.vm_id,
        "host.name": name,
        "host.type": facts.vm_size,
        "azure.resource_group.name": facts.resource_group_name,
        "azure.vm.scaleset.name": facts.vm_scale_set_name,
    }
    return {key: value for key, value in found.items() if value}
