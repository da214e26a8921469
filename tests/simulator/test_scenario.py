from pathlib import Path

import pytest

from exporter import simulator
from exporter.errors import ConfigurationError
from exporter.model.events import EVENT_TYPES
from exporter.simulator import EventChange, Scenario, Simulator, load_scenarios
from exporter.simulator.engine import group
from tests.simulator.support import HandClock, document

FILES = Path(simulator.__file__).parent / "scenarios"
GOOD = """\
name: own
title: Our own
description: A test.
vms: [vm_0, vm_1]
events:
  - type: Freeze
    vms: [vm_0]
    notice: 15m
    impact: 10m
"""


def test_all_kinds_are_bundled() -> None:
    """Each has the name of its file and a description; every type and source of events occurs."""
    found = load_scenarios()
    plans = [one for scenario in found for one in scenario.events]
    assert {one.type for one in plans} == {*EVENT_TYPES, "SpotRebalanceRecommendation"}
    assert {one.source for one in plans} == {"Platform", "User"}
    assert {one.name for one in found} == {path.stem for path in FILES.glob("*.yaml")}
    assert all(one.title and one.description for one in found)
    assert load_scenarios([]) == found


@pytest.mark.parametrize("one", load_scenarios(), ids=lambda one: one.name)
def test_every_scenario_plays_to_its_end(one: Scenario) -> None:
    """Its first event is listed at once, nothing in the end, and the incarnation grows with each change."""
    clock = HandClock()
    simulator = Simulator([one], clock=clock)
    simulator.first_call_wait()
    known = document(simulator)
    assert (known["DocumentIncarnation"], bool(known["Events"])) == (1, True)
    for clock.passed in range(0, 8 * 86_400, 300):
        found = document(simulator)
        grown = found["DocumentIncarnation"] - known["DocumentIncarnation"]
        assert grown > 0 if found["Events"] != known["Events"] else grown == 0
        known = found
    assert known["Events"] == []


@pytest.mark.parametrize("one", load_scenarios(), ids=lambda one: one.name)
@pytest.mark.parametrize("name", ["demo_0", "demo_3", "web_17", "db"])
def test_every_bundled_scenario_affects_the_named_vm(one: Scenario, name: str) -> None:
    """Whatever the VM is called, each scenario has an event that lists it at some time."""
    clock = HandClock()
    simulator = Simulator([], vm_name=name, clock=clock, requests_per_second=0)
    simulator.first_call_wait()
    simulator.start_scenario(one)
    seen = set()
    for _ in range(6):
        seen |= {vm for event in simulator.picture().events for vm in event.resources}
        clock.passed += 60
    assert name in seen
    assert seen <= set(group(name, 4))


def test_in_the_playlist_something_is_always_going_on() -> None:
    """With all scenarios in a loop there is an event at any time, seldom more than four."""
    clock = HandClock()
    simulator = Simulator(load_scenarios(), loop=True, clock=clock)
    counts = []
    for clock.passed in range(0, 86_400, 300):
        counts.append(len(document(simulator)["Events"]))
    assert min(counts) >= 1
    assert max(counts) <= 6
    assert 2 <= sum(counts) / len(counts) <= 4


def test_a_file_of_ones_own_can_be_played(tmp_path: Path) -> None:
    """A name that ends in .yaml is a path; its VMs take the simulated group's names."""
    path = tmp_path / "own.yaml"
    path.write_text(GOOD)
    simulator = Simulator(load_scenarios([str(path)]), clock=HandClock())
    assert document(simulator)["Events"][0]["Resources"] == ["demo_0"]
    assert "own" in {one.name for one in simulator.scenarios}
    assert simulator.start_scenario("own")


TAIL = """\
    advisory: 2m
    returns_after: 3m
    changes:
      - after: 5m
        vms: [vm_0, vm_1]
      - after: 10m
        notice: 20m
        description: Later.
        duration_in_seconds: 9
"""
CHANGED = GOOD + TAIL


CHANGES = "events[0].changes"
CANCELLED = ":10: events[0].cancelled_after: must be more than 0s and less than 15m, when the event starts"
NOTICE = f":16: {CHANGES}[1].notice: can change only while the event is Scheduled"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("own", "Our Own", ":1: name: must be of lower-case letters, digits and single hyphens"),
        ("vms: [vm_0, vm_1]", "vms: []", ":4: vms: must name each VM of the group once, at least one"),
        (
            "vms: [vm_0]",
            "vms: [vm_7, vm_8]",
            ":7: events[0].vms: vm_7 is not among the scenario's vms; add it there",
        ),
        (TAIL, "    cancelled_after: 15m\n", CANCELLED),
        (
            "duration_in_seconds: 9",
            "duration_in_seconds: -2",
            f":18: {CHANGES}[1].duration_in_seconds: must be -1 (unknown), 0 (none) or more",
        ),
        ("after: 10m", "after: 17m", NOTICE),
        (
            "        vms: [vm_0, vm_1]\n",
            "",
            f":13: {CHANGES}[0]: must have at least one of vms, notice, description, duration_in_seconds",
        ),
        ("3m", "0s", ":11: events[0].returns_after: must be more than 0s"),
        (CHANGED.partition("events:")[2], " []\n", ":5: events: must hold an event at least"),
        (
            "returns_after: 3m",
            "cancelled_after: 10m",
            f":15: {CHANGES}[1].after: must be more than 5m and less than 10m, when the event goes",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    """File, line, key and remedy."""
    path = tmp_path / "own.yaml"
    path.write_text(CHANGED.replace(old, new, 1))
    with pytest.raises(ConfigurationError) as caught:
        load_scenarios([str(path)])
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_change_may_renew_the_id_and_nothing_else(tmp_path: Path) -> None:
    """Where the plan renews ids, the time of the change is enough."""
    path = tmp_path / "own.yaml"
    path.write_text(CHANGED.replace("        vms: [vm_0, vm_1]\n", "") + "    renews_id: true\n")
    assert load_scenarios([str(path)])[0].events[0].changes[0] == EventChange(300)
