"""Tests of `exporter.tracing.resource`: what IMDS knows of this VM, asked for when it is needed."""

from exporter.errors import ImdsError, PollOutcome
from exporter.imds import InstanceFacts
from exporter.tracing.resource import CachedFacts, resource_attributes
from tests.clocks import HandClock


def test_imds_is_asked_until_it_answers() -> None:
    """After a failure it is asked again half a minute later, and never again once it has answered."""
    clock = HandClock()
    facts = InstanceFacts(vm_id="1")
    answers: list[InstanceFacts | None] = [None, None, facts]

    def ask() -> InstanceFacts:
        answer = answers.pop(0)
        if answer is None:
            raise ImdsError(PollOutcome.TIMEOUT, "no answer")
        return answer

    known = CachedFacts(ask, clock)
    assert known() == known() == InstanceFacts()
    assert len(answers) == 2
    clock.pass_seconds(30)
    assert known() == InstanceFacts()
    clock.pass_seconds(30)
    assert known() == known() == facts
    assert answers == []


def test_the_configured_name_wins() -> None:
    """What IMDS calls the VM matters only if nothing is configured."""
    facts = InstanceFacts(name="from IMDS")
    assert resource_attributes(facts, "configured")["host.name"] == "configured"
    assert resource_attributes(facts, None)["host.name"] == "from IMDS"
