"""Tests of `exporter.tracing.resource`."""

from exporter.model.vm import VirtualMachine
from exporter.tracing.resource import resource_attributes


def test_the_configured_name_wins() -> None:
    """What IMDS calls the VM matters only if nothing is configured."""
    facts = VirtualMachine(name="from IMDS")
    assert resource_attributes(facts, "configured")["host.name"] == "configured"
    assert resource_attributes(facts, None)["host.name"] == "from IMDS"
