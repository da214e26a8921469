import msgspec
import pytest

from exporter.config.kubernetes import Drain
from exporter.kubernetes.desired import conditions, description, own_lives
from exporter.kubernetes.drain import grace, names
from exporter.kubernetes.objects import Metadata, Node, Pod
from exporter.model.lifecycle import Life
from exporter.model.views import Snapshot
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


def test_without_a_name_nothing_is_known() -> None:
    """Nothing is undone, either, before this VM knows its name."""
    assert own_lives(Snapshot(ready=True)) is None
    assert own_lives(Snapshot(ready=True, instance="vm_0")) == []


@pytest.mark.parametrize(
    ("left", "seconds"), [(None, None), (0.5, 1), (2.4, 1), (2.5, 2), (24, 19), (31, 26), (35, None)]
)
def test_a_grace_period_ends_before_not_before(left: float | None, seconds: int | None) -> None:
    """It leaves 5 s, or a fifth of the time if that is less; 1 s is the least, and 30 s are the pod's own."""
    assert grace(Pod(Metadata("web")), Drain(), left) == seconds


def test_five_pods_are_named() -> None:
    """The rest is a number."""
    assert [names("abcde"), names("abcdef")] == ["a, b, c, d, e", "a, b, c, d, e and 1 more"]
