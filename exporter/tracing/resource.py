"""The resource that spans describe: this VM and this program, in OpenTelemetry's semantic conventions.

Sources: the pages "Resource" > "Cloud", "Host" and "Service" and the registry's page "Azure"; the name of the
scale set is that of the Collector's Azure detector, because the conventions have none.
"""

import socket

from exporter import __version__
from exporter.config import PROGRAM
from exporter.model.vm import VirtualMachine

# The version of the semantic conventions that has all the names below.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"


def resource_attributes(facts: VirtualMachine, instance: str | None) -> dict[str, str]:
    """Return what is known of program and VM; ``instance`` is the configured name of this VM."""
    name = instance or facts.name or socket.gethostname()
    # A name from the command line may have bytes that are not Unicode, which cannot be encoded.
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
        "host.type": facts.size,
        "azure.resource_group.name": facts.resource_group,
        "azure.vm.scaleset.name": facts.scale_set,
    }
    return {key: value for key, value in found.items() if value}
