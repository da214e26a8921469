"""What is listed when and how the incarnation counts; the service around it, switched on, off and limited."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
import pytest

from exporter.simulator import EventChange, EventPlan, Scenario, Simulator
from exporter.simulator.engine import group
from tests.simulator.support import NEWEST, HandClock, document, gist, make, plan, scenario


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


BOTH = ("vm_0", "vm_1")
# Seconds, incarnation, and of each event: a letter for its id, its status, its VMs.
Moment = tuple[int, int, list[tuple[str, str, tuple[str, ...]]]]


class Stage:
    """A simulator under a clock moved by hand; ids are letters, in the order in which they are first seen."""

    def __init__(self, *scenarios: Scenario) -> None:
        self.clock = HandClock()
        self.simulator = make(*scenarios, clock=self.clock)
        self.ids: list[str] = []

    def look(self, at: float) -> Moment:
        self.clock.passed = at
        found = document(self.simulator)
        listed = []
        for event in found["Events"]:
            if event["EventId"] not in self.ids:
                self.ids.append(event["EventId"])
            letter = "abcdef"[self.ids.index(event["EventId"])]
            listed.append((letter, event["EventStatus"], tuple(event["Resources"])))
        return int(at), found["DocumentIncarnation"], listed

    def watch(self, seconds: int) -> list[Moment]:
        """Look every second, and return the moments at which the incarnation was a new one."""
        moments = [self.look(0)]
        for second in range(1, seconds + 1):
            moment = self.look(second)
            if moment[1] != moments[-1][1]:
                moments.append(moment)
            assert moment[1:] == moments[-1][1:]
        return moments


def shown(planned: EventPlan, at: float) -> Any:
    stage = Stage(scenario(planned))
    stage.clock.passed = at
    (event,) = document(stage.simulator)["Events"]
    return event


def one(letter: str, status: str, *vms: str) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(letter, status, vms or ("vm_0",))]


@pytest.mark.parametrize(
    ("planned", "moments"),
    [
        (plan(), [(0, 1, one("a", "Scheduled")), (100, 2, one("a", "Started")), (150, 3, [])]),
        (plan(notice=0), [(0, 1, one("a", "Started")), (50, 2, [])]),
        (plan(cancelled_after=60), [(0, 1, one("a", "Scheduled")), (60, 2, [])]),
        (
            plan(returns_after=30, changes=(EventChange(20, vms=BOTH), EventChange(30, vms=BOTH))),
            [
                (0, 1, one("a", "Scheduled")),
                (20, 2, one("a", "Scheduled", *BOTH)),
                (100, 3, one("a", "Started", *BOTH)),
                (150, 4, []),
                (180, 5, one("a", "Scheduled")),
                (200, 6, one("a", "Scheduled", *BOTH)),
                (280, 7, one("a", "Started", *BOTH)),
                (330, 8, []),
            ],
        ),
        (
            plan(advisory=20, renews_id=True, changes=(EventChange(50, vms=BOTH), EventChange(150))),
            [
                (0, 1, one("a", "Advisory")),
                (20, 2, one("b", "Scheduled")),
                (50, 3, one("c", "Scheduled", *BOTH)),
                (120, 4, one("d", "Started", *BOTH)),
                (150, 5, one("e", "Started", *BOTH)),
                (170, 6, []),
            ],
        ),
    ],
    ids=["usual", "no notice", "cancelled", "returns once", "renews ids"],
)
def test_a_life(planned: EventPlan, moments: list[Moment]) -> None:
    """Each step comes at its time, and each new document, but no other, raises the incarnation by one."""
    assert Stage(scenario(planned)).watch(400) == moments


def test_a_change_says_what_it_changes_and_leaves_the_rest() -> None:
    """NotBefore, description and duration change together or one by one; the start moves with NotBefore."""
    planned = plan(
        description="Soon.",
        duration_in_seconds=5,
        changes=(
            EventChange(10, notice=200, description="Later.", duration_in_seconds=9),
            EventChange(20, description=""),
            EventChange(30, notice=30),
        ),
    )
    names = ("NotBefore", "Description", "DurationInSeconds")
    assert [tuple(shown(planned, at)[name] for name in names) for at in (9, 10, 20, 30)] == [
        ("Wed, 04 Mar 2026 22:01:40 GMT", "Soon.", 5),
        ("Wed, 04 Mar 2026 22:03:30 GMT", "Later.", 9),
        ("Wed, 04 Mar 2026 22:03:30 GMT", "", 9),
        ("Wed, 04 Mar 2026 22:01:00 GMT", "", 9),
    ]
    assert Stage(scenario(planned)).watch(60)[-1] == (60, 5, one("a", "Started"))


def test_an_advisory_has_no_start_and_cannot_be_approved() -> None:
    """NotBefore is blank until the event is Scheduled; an approval is noted and has no effect."""
    planned = plan(type="Preempt", advisory=60, notice=30)
    assert [shown(planned, at)["NotBefore"] for at in (59, 60, 90)] == [
        "",
        "Wed, 04 Mar 2026 22:01:30 GMT",
        "",
    ]
    stage = Stage(scenario(planned))
    stage.look(10)
    stage.simulator.approve(stage.ids)
    assert stage.look(10)[1:] == (1, one("a", "Advisory"))
    assert len(stage.simulator.approvals) == 1
    stage.look(60)
    stage.simulator.approve(stage.ids)
    assert stage.look(60)[1:] == (3, one("a", "Started"))


def test_the_newest_id_is_approved_and_cancelled() -> None:
    """An older id of the same event is accepted and has no effect."""
    stage = Stage(scenario(plan(renews_id=True, changes=(EventChange(10),))))
    for at in (0, 10):
        stage.look(at)
    old, new = stage.ids
    stage.simulator.approve([old])
    assert stage.look(20)[1:] == (2, one("b", "Scheduled"))
    stage.simulator.approve([old, new])
    assert stage.look(20)[1:] == (3, one("c", "Started"))
    stage.simulator.approve([new])
    assert stage.look(20)[1:] == (3, one("c", "Started"))
    assert not stage.simulator.cancel(new)
    assert stage.simulator.cancel(stage.ids[-1])
    assert stage.look(20)[1:] == (4, [])


def test_what_is_cancelled_does_not_return() -> None:
    """Neither by a change, nor when it would start or end, nor where it was still to come."""
    changing = plan(changes=(EventChange(20, vms=BOTH),))
    stage = Stage(scenario(changing, plan(notice=0), plan(after=50)))
    stage.look(10)
    stage.simulator.clear()
    assert [stage.look(at)[1:] for at in (20, 50, 100, 200)] == [(2, [])] * 4


SCHEDULED, STARTED = [("Freeze", "Scheduled")], [("Freeze", "Started")]


def poll(simulator: Simulator) -> tuple[int, list[tuple[str, str]]]:
    """Ask as a client does: the first request switches the service on."""
    simulator.first_call_wait()
    return gist(simulator)


def test_the_document_is_empty_for_a_while_after_the_first_request() -> None:
    """Pending events appear in one step; what happened to them before that is not counted."""
    clock = HandClock()
    plans = (plan(notice=20, impact=30), plan(), plan(after=70))
    simulator = Simulator([scenario(*plans)], clock=clock, empty_after_switch_on=60)
    seen = []
    for clock.passed in (5, 64.9, 65, 75, 105):
        seen.append(poll(simulator))
    assert seen == [(0, []), (0, []), (1, SCHEDULED), (2, SCHEDULED * 2), (3, STARTED + SCHEDULED)]
    for clock.passed, empty in ((105, 60), (110, 4)):
        simulator.switch_off(empty)
        seen.append(poll(simulator))
    for clock.passed in (114, 155, 165):
        seen.append(poll(simulator))
    assert seen[5:] == [(0, []), (0, []), (1, STARTED + SCHEDULED), (2, SCHEDULED), (2, SCHEDULED)]


def test_the_scenarios_begin_with_the_first_answer() -> None:
    """A client that starts late sees them whole; a switch-off repeats none, and a stop prevents them."""
    clock = HandClock()
    simulator = Simulator([scenario(), scenario(name="later")], clock=clock, first_call_delay=10)
    clock.passed = 1000
    assert simulator.picture().next_start is None
    assert simulator.first_call_wait() == 10
    for clock.passed, expected in ((1010, SCHEDULED), (1109, SCHEDULED)):
        assert poll(simulator)[1] == expected
    simulator.switch_off()
    simulator.first_call_wait()
    for clock.passed, expected in ((1120, STARTED), (1160, [])):
        assert poll(simulator)[1] == expected
    simulator.switch_off()
    assert poll(simulator) == (0, [])
    clock.passed = 1010 + 600
    assert poll(simulator) == (1, SCHEDULED)
    stopped = Simulator([scenario()], clock=clock)
    stopped.stop()
    assert poll(stopped) == (0, [])


def test_a_silent_day_switches_the_service_off() -> None:
    """After 24 simulated hours without a request the incarnation starts again; the events continue."""
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
    """The wait starts with the first request, in real seconds regardless of the speed."""
    clock = HandClock()
    simulator = make(scenario(), clock=clock, first_call_delay=120, speed=60)
    assert simulator.picture().next_start == (clock.now() + timedelta(seconds=120), scenario())
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
    assert simulator.admit()
    clock.passed = 0.5
    assert [simulator.admit() for _ in range(6)] == [True] * 4 + [False] * 2
    clock.passed = 0.8
    assert not simulator.admit()
    clock.passed = 1.0
    assert simulator.admit()
    unlimited = make(clock=clock, requests_per_second=0)
    assert all(unlimited.admit() for _ in range(100))
