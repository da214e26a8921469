import re
from datetime import timedelta

import pytest
from msgspec.structs import replace

from exporter.config.kubernetes import Drain
from exporter.kubernetes.client import Condition, Metadata, Node, NodeStatus, Pod
from exporter.kubernetes.desired import Progress, conditions, description, node_event, own_lives, recent
from exporter.kubernetes.drain import grace, names
from exporter.model.events import Affected
from exporter.model.lifecycle import Life, Transition, TransitionRecord
from exporter.model.views import Snapshot
from exporter.timefmt import rfc3339
from tests.builders import FREEZE_ID, scheduled
from tests.clocks import NOW


def told(node: Node, lives: list[Life]) -> list[dict[str, str]]:
    patch = conditions(node, lives, [], Progress.NONE, NOW, has_drain=False)
    found: list[dict[str, str]] = patch["status"]["conditions"]
    return found


@pytest.mark.parametrize(("count", "more"), [(1, ""), (2, " (and 1 more)"), (3, " (and 2 more)")])
def test_a_condition_names_one_event(count: int, more: str) -> None:
    """It is the most urgent one, with the number of the others."""
    before = NodeStatus((Condition("MaintenancePlanned", "True"),))
    node = Node(Metadata("pool-0"), status=before)
    events = [scheduled(event_id=name, event_type="Reboot") for name in "abc"[:count]]
    lives = [Life(event, (event.event_id,), NOW) for event in events]
    planned, in_progress = told(node, lives)
    assert (planned["type"], planned["status"], planned["reason"]) == ("MaintenancePlanned", "True", "Reboot")
    assert planned["message"] == description(lives[0]) + more
    assert (in_progress["status"], in_progress["message"]) == ("False", "no scheduled event of this VM")
    assert ("lastTransitionTime" in planned, planned["lastHeartbeatTime"]) == (False, rfc3339(NOW))
    assert in_progress["lastTransitionTime"] == in_progress["lastHeartbeatTime"] == rfc3339(NOW)


@pytest.mark.parametrize(
    ("kind", "reason"), [("2nd re-boot", "ndreboot"), ("x" * 64, "x" * 63), ("42", "Unknown")]
)
def test_a_reason_is_a_word(kind: str, reason: str) -> None:
    """It has letters and digits only, begins with a letter, and is not longer than the value of a taint."""
    life = Life(scheduled(event_type=kind), (FREEZE_ID,), NOW)
    planned, _ = told(Node(Metadata("pool-0")), [life])
    assert planned["reason"] == reason


def test_without_a_name_nothing_is_known() -> None:
    """Nothing is undone, either, before this VM knows its name."""
    assert own_lives(Snapshot(ready=True)) is None
    assert own_lives(Snapshot(ready=True, instance="vm_0")) == []
    assert own_lives(Snapshot(instance="vm_0")) is None
    current = (Life(scheduled(), (FREEZE_ID,), NOW, affects=Affected.SELF),)
    assert own_lives(Snapshot(instance="vm_0", current=current)) == [*current]
    assert own_lives(Snapshot(instance="vm_0", current=(replace(current[0], affects=None),))) is None


def test_events_of_the_last_hour() -> None:
    """Kubernetes hears of the newest transitions first, an hour long; the words and the gravity are ours."""
    records = tuple(
        TransitionRecord(transition, NOW + timedelta(seconds=seconds))
        for transition, seconds in ((Transition.SCHEDULED, 0), (Transition.HOOK_FAILED, 60))
    )
    event = scheduled(event_type="Reboot")
    life = Life(event, (FREEZE_ID,), NOW, transitions=records, affects=Affected.SELF)
    other, older = replace(life, affects=Affected.OTHER), replace(life, ids=("z",), transitions=records[:1])
    for later, count in ((3599, 2), (3600, 1), (3659, 1), (3660, 0)):
        for snapshot in (Snapshot(current=(life, other)), Snapshot(past=(life, other))):
            found = list(recent(snapshot, NOW + timedelta(seconds=later)))
            identities = [f"{life.key}/2/hook_failed", f"{life.key}/1/scheduled"]
            assert [identity for identity, _, _ in found] == identities[:count]
    assert next(recent(Snapshot(current=(older, life)), NOW))[0] == identities[0]
    node = Node(Metadata("pool-0"))
    told = node_event(node, "it", life, records[1])
    assert re.fullmatch("scheduled-event-[0-9a-f]{20}", told["metadata"]["name"])
    assert (told["count"], told["type"], told["reason"]) == (1, "Warning", "ScheduledEventHookFailed")
    assert told["message"] == f"hook failed: {description(life)}"
    assert node_event(node, "it", replace(life, event=scheduled()), records[0])["type"] == "Normal"


@pytest.mark.parametrize(
    ("left", "seconds"), [(None, None), (0.5, 1), (2.4, 1), (2.5, 2), (24, 19), (31, 26), (35, None)]
)
def test_a_grace_period_ends_before_not_before(left: float | None, seconds: int | None) -> None:
    """It leaves 5 s, or a fifth of the time if that is less; 1 s is the least, and 30 s are the pod's own."""
    assert grace(Pod("default", "web", "it"), Drain(), left) == seconds


def test_five_pods_are_named() -> None:
    """The rest is a number."""
    assert [names("abcde"), names("abcdef")] == ["a, b, c, d, e", "a, b, c, d, e and 1 more"]
