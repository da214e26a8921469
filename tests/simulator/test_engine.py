"""The engine: what is listed when, and how the incarnation counts."""

import uuid
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import perf_counter

import pytest

from exporter.errors import ConfigurationError
from exporter.simulator import Scenario, Simulator
from exporter.simulator.engine import group
from tests.simulator.support import NEWEST, HandClock, document, gist, plan, scenario


def make(*scenarios: Scenario, clock: HandClock, **options: object) -> Simulator:
    """Make a simulator under a clock moved by hand."""
    return Simulator(scenarios, clock=clock, vm_name="vm_0", **options)  # type: ignore[arg-type]  # options by name


def test_idle_is_incarnation_zero() -> None:
    """Without scenarios the document is empty, and its incarnation 0, whatever time passes."""
    clock = HandClock()
    simulator = make(clock=clock)
    assert document(simulator) == {"DocumentIncarnation": 0, "Events": []}
    clock.passed = 1e6
    assert gist(simulator) == (0, [])


def test_an_event_is_scheduled_started_and_gone() -> None:
    """Each step comes at its time and raises the incarnation by one."""
    clock = HandClock()
    simulator = make(scenario(), clock=clock)
    seen = []
    for clock.passed in (0, 99.9, 100, 149.9, 150):
        seen.append(gist(simulator))
    scheduled, started = [("Freeze", "Scheduled")], [("Freeze", "Started")]
    assert seen == [(1, scheduled), (1, scheduled), (2, started), (2, started), (3, [])]


def test_steps_that_nobody_saw_count() -> None:
    """A client that looks only at the end finds the incarnation as if it had seen every change."""
    clock = HandClock()
    simulator = make(scenario(), clock=clock)
    clock.passed = 1000
    assert gist(simulator) == (3, [])


def test_changes_of_one_instant_are_one_step() -> None:
    """Two events that appear together raise the incarnation once."""
    simulator = make(scenario(plan(), plan(type="Reboot")), clock=HandClock())
    assert gist(simulator)[0] == 1


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


def test_without_notice_an_event_is_started_from_the_first() -> None:
    """A hardware failure appears as Started, in one step."""
    clock = HandClock()
    simulator = make(scenario(plan(notice=0)), clock=clock)
    assert gist(simulator) == (1, [("Freeze", "Started")])
    clock.passed = 50
    assert gist(simulator) == (2, [])


def test_a_cancelled_event_goes_without_having_started() -> None:
    """It is gone in the very next incarnation, and nothing comes of its start later."""
    clock = HandClock()
    simulator = make(scenario(plan(cancelled_after=60)), clock=clock)
    clock.passed = 59
    assert gist(simulator) == (1, [("Freeze", "Scheduled")])
    clock.passed = 60
    assert gist(simulator) == (2, [])
    clock.passed = 500
    assert gist(simulator) == (2, [])


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


def test_several_approvals_are_one_step() -> None:
    """Ids of one request start together; an unknown id among them does no harm."""
    simulator = make(scenario(plan(), plan(type="Reboot")), clock=HandClock())
    ids = [event["EventId"] for event in document(simulator)["Events"]]
    simulator.approve([*ids, str(uuid.uuid4())])
    assert gist(simulator) == (2, [("Freeze", "Started"), ("Reboot", "Started")])


def test_ids_are_fresh_upper_case_guids() -> None:
    """Two runs of a scenario have nothing in common but what they say."""
    simulator = make(clock=HandClock())
    ids = [*simulator.start_scenario("live-migration"), *simulator.start_scenario("live-migration")]
    assert len(set(ids)) == 2
    assert all(str(uuid.UUID(one)).upper() == one for one in ids)
    assert [event["EventId"] for event in document(simulator)["Events"]] == ids


def test_scenarios_follow_one_another_and_end() -> None:
    """Each starts a pause after the one before; after the last the simulation is idle for good."""
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
    """Of a short and a long scenario, the long one is listed once at any time."""
    clock = HandClock()
    long = scenario(plan(type="Redeploy", notice=1e5), name="long")
    simulator = make(scenario(), long, clock=clock, pause=200, loop=True)
    for clock.passed in range(200, 4000, 400):
        assert [kind for kind, _ in gist(simulator)[1]].count("Redeploy") == 1
    for clock.passed in range(4050, 8000, 400):
        assert ("Freeze", "Scheduled") in gist(simulator)[1]


def test_an_event_of_the_scenario_can_come_later() -> None:
    """The second event waits for its offset, and cancelling everything takes it back too."""
    clock = HandClock()
    simulator = make(scenario(plan(), plan(after=30, vms=("vm_2", "vm_3"))), clock=clock)
    assert len(document(simulator)["Events"]) == 1
    clock.passed = 30
    assert document(simulator)["Events"][1]["Resources"] == ["vm_2", "vm_3"]
    simulator.start_scenario(scenario(plan(after=30), name="other"))
    simulator.clear()
    assert gist(simulator) == (3, [])
    clock.passed = 1000
    assert gist(simulator) == (3, [])


def test_one_event_can_be_cancelled_by_hand() -> None:
    """By its id, in any case; an unknown id is told."""
    simulator = make(scenario(plan(), plan(type="Reboot")), clock=HandClock())
    event_id = document(simulator)["Events"][0]["EventId"]
    assert simulator.cancel(event_id.lower())
    assert not simulator.cancel(event_id)
    assert gist(simulator) == (2, [("Reboot", "Scheduled")])


def test_the_simulated_vm_takes_the_first_place_of_the_group() -> None:
    """Scenarios name VMs of their own; the simulated VM and its neighbours play them."""
    simulator = Simulator([scenario(plan(vms=("vm_1", "vm_0")))], vm_name="web_2", clock=HandClock())
    assert document(simulator)["Events"][0]["Resources"] == ["web_0", "web_2"]
    assert group("web_2", 4) == ("web_2", "web_0", "web_1", "web_3")
    assert group("demo_0", 3) == ("demo_0", "demo_1", "demo_2")
    assert group("db", 3) == ("db", "db_1", "db_2")


def test_a_silent_day_switches_the_service_off() -> None:
    """24 simulated hours without a request, and the incarnation begins again; the events go on."""
    clock = HandClock()
    simulator = make(scenario(), scenario(plan(type="Redeploy", notice=1e6), name="long"), clock=clock)
    simulator.first_call_wait()
    clock.passed = 700
    simulator.first_call_wait()
    assert gist(simulator) == (4, [("Redeploy", "Scheduled")])
    clock.passed += 86_399
    simulator.first_call_wait()
    assert gist(simulator)[0] == 4
    clock.passed += 86_400
    simulator.first_call_wait()
    assert gist(simulator) == (1, [("Redeploy", "Scheduled")])


def test_the_first_call_waits_and_so_does_the_first_after_a_switch_off() -> None:
    """The wait runs from the first request, in real seconds whatever the speed."""
    clock = HandClock()
    simulator = make(clock=clock, first_call_delay=120, speed=60)
    assert simulator.first_call_wait() == 120
    clock.passed = 100
    assert simulator.first_call_wait() == 20
    clock.passed = 120
    assert simulator.first_call_wait() == 0
    simulator.document(NEWEST)
    clock.passed += 86_400 / 60
    assert simulator.first_call_wait() == 120


def test_five_requests_a_second() -> None:
    """The sixth within a second is refused, and a refused one does not count; 0 lifts the limit."""
    clock = HandClock()
    simulator = make(clock=clock)
    assert [simulator.admit() for _ in range(7)] == [True] * 5 + [False] * 2
    clock.passed = 0.8
    assert not simulator.admit()
    clock.passed = 1.0
    assert simulator.admit()
    unlimited = make(clock=clock, requests_per_second=0)
    assert all(unlimited.admit() for _ in range(100))


def test_a_document_can_be_set_by_hand() -> None:
    """Bytes go out to the letter, a mapping as JSON, and None goes on with the scenarios."""
    simulator = make(scenario(), clock=HandClock())
    simulator.set_document(b"<html>")
    assert simulator.document(NEWEST) == b"<html>"
    simulator.set_document({"DocumentIncarnation": 7, "Events": []})
    assert gist(simulator) == (7, [])
    simulator.set_document(None)
    assert gist(simulator) == (1, [("Freeze", "Scheduled")])


@pytest.mark.parametrize("options", [{"speed": 0}, {"pause": 0}, {"vm_name": ""}])
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    """Time has to pass, and a VM has a name."""
    with pytest.raises(ConfigurationError):
        Simulator(**options)  # type: ignore[arg-type]  # each is of its option's type


def test_ten_thousand_events_are_no_trouble() -> None:
    """They come within a second or two, and an unchanged poll is answered from memory."""
    clock = HandClock()
    many = scenario(*(plan(notice=100 + index % 50) for index in range(10_000)))
    began = perf_counter()
    simulator = make(many, clock=clock)
    assert len(document(simulator)["Events"]) == 10_000
    clock.passed = 1000
    assert gist(simulator) == (101, [])
    simulator.start_scenario(many)
    first = simulator.document(NEWEST)
    assert perf_counter() - began < 10
    assert all(simulator.document(NEWEST) is first for _ in range(1000))
