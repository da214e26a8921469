"""Tests of `exporter.kubernetes.desired`: what the Node says about several events."""

import msgspec
import pytest

from exporter.kubernetes.desired import conditions, description
from exporter.kubernetes.objects import Node
from exporter.model.lifecycle import Life
from tests.builders import scheduled
from tests.clocks import NOW


@pytest.mark.parametrize(("count", "more"), [(1, ""), (2, " (and 1 more)"), (3, " (and 2 more)")])
def test_a_condition_names_one_event(count: int, more: str) -> None:
    """It is the most urgent one, with the number of the others."""
    node = msgspec.json.decode(b'{"metadata": {"name": "pool-0"}}', type=Node)
    events = [scheduled(event_id=name, event_type="Reboot") for name in "abc"[:count]]
    lives = [Life(event, (event.event_id,), NOW) for event in events]
    planned, in_progress = conditions(node, lives, NOW)["status"]["conditions"]
    assert (planned["type"], planned["status"], planned["reason"]) == ("MaintenancePlanned", "True", "Reboot")
    assert planned["message"] == description(lives[0]) + more
    assert (in_progress["status"], in_progress["message"]) == ("False", "no scheduled event of this VM")
