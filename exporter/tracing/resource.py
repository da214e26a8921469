"""The resource that spans describe: this VM and this program, in OpenTelemetry's semantic conventions.

Sources: the pages "Resource" > "Cloud", "Host" and "Service" and the registry's page "Azure"; the name of the
scale set is that of the Collector's Azure detector, because the conventions have none.
"""

import logging
import socket
from collections.abc import Callable

from exporter import __version__
from exporter.clock import Clock
from exporter.config import PROGRAM
from exporter.errors import ImdsError
from exporter.imds import InstanceFacts

log = logging.getLogger(__name__)

# The version of the semantic conventions that has all the names below.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
_RETRY_SECONDS = 30.0


class CachedFacts:
    """The facts about this VM. IMDS is asked when they are first needed, and again later if that fails."""

    def __init__(self, ask: Callable[[], InstanceFacts], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._ask_at = clock.monotonic()
        self._facts: InstanceFacts | None = None

    def __call__(self) -> InstanceFacts:
        """Return the facts, all empty as long as IMDS does not answer."""
        if self._facts is None and self._clock.monotonic() >= self._ask_at:
            try:
                self._facts = self._ask()
            except ImdsError as error:
                log.debug("no facts about this VM", extra={"error": str(error)})
                self._ask_at = self._clock.monotonic() + _RETRY_SECONDS
        return self._facts or InstanceFacts()


def resource_attributes(facts: InstanceFacts, instance: str | None) -> dict[str, str]:
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
        "host.type": facts.vm_size,
        "azure.resource_group.name": facts.resource_group_name,
        "azure.vm.scaleset.name": facts.vm_scale_set_name,
    }
    return {key: value for key, value in found.items() if value}
