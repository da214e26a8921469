"""The engine: what is listed when, and how the incarnation counts."""

import uuid
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.simulator import EventChange, EventPlan, Simulator
from exporter.simulator.engine import group
from tests.simulator.support import HandClock, document, gist, make, plan, scenario


def test_not_before_is_the_start_rounded_down_and_blank_once_started() -> None:
    """At ten times the speed 100 s are 10 s on the clock; the fraction of a second is dropped."""
    clock = HandClock()
    simulator = make(scenario(), clock=clock, speed=10)
    text = document(simulator)["Events"][0]["NotBefore"]
    assert text == "Wed, 04 Mar 2026 22:00:10 GMT"
    assert parsedate_to_datetime(text) == datetime(2026, 3, 4, 22, 0, 10, tzinfo=UTC)
    clock.passed = 9.9
    assert document(simulator)["Events"][0]["EventStatus"] == "Scheduled"
    clock.passed = 10
    assert document(simulator)["Events"][0] | {"EventId": ""} == {
        "EventId": "",
        "EventStatus": "Started",
        "EventType": "Freeze",
        "ResourceType": "VirtualMachine",
        "Resources": ["vm_0"],
        "NotBefore": "",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


def test_an_approval_starts_an_event_at_once() -> None:
    """The rest of the notice is skipped, the impact lasts as planned; approving again changes nothing."""
    clock = HandClock()
    simulator = make(scenario(plan(vms=("vm_0", "vm_1"), cancelled_after=40)), clock=clock)
    event_id = document(simulator)["Events"][0]["EventId"]
    clock.passed = 10
    simulator.approve([event_id.lower()])
    simulator.approve([event_id])
    assert gist(simulator) == (2, [("Freeze", "Started")])
    clock.passed = 59.9
    assert gist(simulator) == (2, [("Freeze", "Started")])
    clock.passed = 60
    assert gist(simulator) == (3, [])
    assert [one.event_id for one in simulator.approvals] == [event_id.lower(), event_id]


def test_ids_are_fresh_upper_case_guids() -> None:
    """Two runs of a scenario share only their content, no ids."""
    simulator = make(clock=HandClock())
    ids = [*simulator.start_scenario("live-migration"), *simulator.start_scenario("live-migration")]
    assert len(set(ids)) == 2
    assert all(str(uuid.UUID(one)).upper() == one for one in ids)
    assert [event["EventId"] for event in document(simulator)["Events"]] == ids


def test_scenarios_follow_one_another_and_end() -> None:
    """Each starts one pause after the previous one; after the last one the simulation stays idle."""
    clock = HandClock()
    first, second = scenario(name="first"), scenario(plan(type="Reboot"), name="second")
    simulator = make(first, second, clock=clock, pause=120)
    seen = []
    for clock.passed in (119, 120, 150, 1e6):
        seen.append(gist(simulator))
    assert seen == [
        (2, [("Freeze", "Started")]),
        (3, [("Freeze", "Started"), ("Reboot", "Scheduled")]),
        (4, [("Reboot", "Scheduled")]),
        (6, []),
    ]
    assert simulator.picture().next_start is None


def test_a_loop_begins_again_and_passes_over_what_is_under_way() -> None:
    """With a short and a long scenario, the long one is listed exactly once at any time."""
    clock = HandClock()
    long = scenario(plan(type="Redeploy", notice=1e5), name="long")
    simulator = make(scenario(), long, clock=clock, pause=200, loop=True)
    for clock.passed in range(200, 4000, 400):
        assert [kind for kind, _ in gist(simulator)[1]].count("Redeploy") == 1
    for clock.passed in range(4050, 8000, 400):
        assert ("Freeze", "Scheduled") in gist(simulator)[1]


def test_the_simulated_vm_takes_the_first_place_of_the_group() -> None:
    """The VM names in scenarios are replaced by the simulated VM and its neighbours."""
    simulator = Simulator([scenario(plan(vms=("vm_1", "vm_0")))], vm_name="web_2", clock=HandClock())
    assert document(simulator)["Events"][0]["Resources"] == ["web_0", "web_2"]
    assert group("web_2", 4) == ("web_2", "web_0", "web_1", "web_3")
    assert group("demo_0", 3) == ("demo_0", "demo_1", "demo_2")
    assert group("db", 3) == ("db", "db_1", "db_2")


def test_scenarios_affect_one_vm_after_the_other() -> None:
    """Each takes the next VMs of the group, and begins again with the first; a larger one takes the first."""
    clock = HandClock()
    simulator = Simulator(vm_name="vm_0", instances=3, clock=clock)
    clock.passed = 30
    pair, four = ("vm_0", "vm_1"), ("vm_0", "vm_1", "vm_2", "vm_3")
    for vms in (pair, pair, pair, four, four):
        simulator.start_scenario(msgspec.structs.replace(scenario(plan(vms=vms)), vms=vms))
    found = [event.resources for event in simulator.picture().events]
    assert {event.appears for event in simulator.picture().events} == {30}
    assert found == [("vm_0", "vm_1"), ("vm_2", "vm_0"), ("vm_1", "vm_2"), four, four]


SECONDS = 60
contents = st.fixed_dictionaries(
    {},
    optional={
        "vms": st.sampled_from([("vm_0",), ("vm_0", "vm_1"), ()]),
        "notice": st.integers(0, 15),
        "description": st.sampled_from(["", "Soon."]),
        "duration_in_seconds": st.sampled_from([-1, 5]),
    },
)


@st.composite
def plans(draw: st.DrawFn) -> EventPlan:
    advisory, notice, impact = (
        draw(st.sampled_from([0, 0, 7])),
        draw(st.integers(0, 15)),
        draw(st.integers(1, 9)),
    )
    starts = advisory + notice
    changes: list[EventChange] = []
    for after in sorted(draw(st.sets(st.integers(1, 30), max_size=3))):
        content: dict[str, Any] = draw(contents)
        if not advisory <= after < starts:
            content.pop("notice", None)
        starts = after + content.get("notice", starts - after)
        changes.append(EventChange(after, **content))
    return plan(
        advisory=advisory,
        notice=notice,
        impact=impact,
        changes=tuple(changes),
        after=draw(st.sampled_from([0, 0, 4])),
        cancelled_after=draw(st.none() | st.integers(1, 15)),
        returns_after=draw(st.none() | st.integers(1, 15)),
        renews_id=draw(st.booleans()),
    )


actions = st.tuples(
    st.integers(0, SECONDS), st.sampled_from(["approve", "cancel", "clear", "stop", "switch off"])
)


def act(simulator: Simulator, action: str) -> None:
    ids = [event.event_id for event in simulator.picture().events]
    if action == "approve":
        simulator.approve(ids)
    elif action == "cancel" and ids:
        simulator.cancel(ids[0])
    elif action in ("clear", "stop"):
        getattr(simulator, action)()


@settings(max_examples=200)
@given(st.lists(plans(), max_size=3), st.lists(actions, max_size=4), st.sampled_from([0, 6]))
def test_it_grows_by_one_whenever_the_document_changes(
    events: list[EventPlan], todo: list[tuple[int, str]], empty: int
) -> None:
    """It is otherwise constant; a switch-on resets it to 0, or to 1 if events are listed immediately."""
    clock = HandClock()
    simulator = Simulator(
        [scenario(*events)] * bool(events), vm_name="vm_0", clock=clock, pause=20, loop=True
    )
    simulator.first_call_wait()
    known = document(simulator)
    assert known["DocumentIncarnation"] == bool(known["Events"])
    for clock.passed in range(SECONDS):
        for action in ("", *(action for at, action in todo if at == clock.passed)):
            act(simulator, action)
            if action == "switch off":
                simulator.switch_off(empty)
                simulator.first_call_wait()
                known = {"DocumentIncarnation": 0, "Events": []}
            found = document(simulator)
            changed = found["Events"] != known["Events"]
            assert found["DocumentIncarnation"] == known["DocumentIncarnation"] + changed
            known = found
