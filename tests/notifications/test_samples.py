"""Tests of `exporter.notifications.samples`."""

import msgspec
import pytest

from exporter.config import Templates
from exporter.model.events import Target
from exporter.model.lifecycle import Transition
from exporter.model.messages import Message
from exporter.model.vm import VirtualMachine
from exporter.notifications.rendering import Renderer
from exporter.notifications.samples import is_sample, samples, variants
from tests.clocks import NOW
from tests.notifications.messages import message


@pytest.mark.parametrize("instance", ["vm_0", None])
def test_there_is_one_of_each_transition(instance: str | None) -> None:
    """A test sends every transition once, each a message of its own, about this VM and as of now."""
    found = samples(VirtualMachine(name=instance or ""), NOW)
    assert [message.transition for message in found] == list(Transition)
    assert len({message.sequence for message in found}) == len(found)
    assert all(message.instance == instance and message.at == NOW for message in found)
    assert all(message.event.target is Target.SELF for message in found)


def test_a_sample_is_marked_as_a_test() -> None:
    """Nobody takes a sample for the real thing: title and body say that it is a test."""
    for sample in samples(VirtualMachine(name="vm_0"), NOW):
        found = Renderer(Templates(title="{{ transition }}")).render(sample, NOW)
        assert found.title == f"(test) {sample.transition}"
        assert "This is a test message." in found.body
        assert is_sample(sample)
    assert not is_sample(message())


def test_an_ended_sample_has_an_outcome() -> None:
    """The samples are lives that could be: what is over has an end and an outcome, the rest has not."""
    for sample in samples(VirtualMachine(name="vm_0"), NOW):
        event = sample.event
        over = sample.transition in ("completed", "cancelled", "vanished")
        assert (event.outcome is sample.transition) is over
        assert (event.ended is not None) is over
        assert event.first_seen is not None
        assert event.first_seen <= (event.started or NOW) <= NOW


def test_all_of_them_can_be_stored() -> None:
    """Samples and variants come back from JSON as messages."""
    for _, sample in variants():
        assert msgspec.json.decode(msgspec.json.encode(sample), type=Message).event == sample.event
