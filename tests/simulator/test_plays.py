"""Event sequences beyond Scheduled, Started and gone, as documents over simulated time."""

from typing import Any

import pytest

from exporter.simulator import EventChange, EventPlan, Scenario, load_scenarios
from tests.simulator.support import HandClock, document, make, plan, scenario

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
            plan(returns_after=30, changes=(EventChange(20, vms=BOTH),)),
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
        (
            load_scenarios(["vm-joins"])[0],
            [
                (0, 1, one("a", "Scheduled", "vm_1")),
                (300, 2, one("a", "Scheduled", *BOTH)),
                (900, 3, one("a", "Started", *BOTH)),
                (1500, 4, []),
            ],
        ),
        (load_scenarios(["withdrawn-advisory"])[0], [(0, 1, one("a", "Advisory")), (600, 2, [])]),
    ],
    ids=["usual", "no notice", "cancelled", "returns once", "renews ids", "vm-joins", "withdrawn-advisory"],
)
def test_a_life(planned: EventPlan | Scenario, moments: list[Moment]) -> None:
    """Each step comes at its time, and each new document raises the incarnation by one."""
    whole = planned if isinstance(planned, Scenario) else scenario(planned)
    assert Stage(whole).watch(3000) == moments


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
    assert Stage(scenario(planned)).watch(300) == [
        (0, 1, one("a", "Scheduled")),
        (10, 2, one("a", "Scheduled")),
        (20, 3, one("a", "Scheduled")),
        (30, 4, one("a", "Scheduled")),
        (60, 5, one("a", "Started")),
        (110, 6, []),
    ]


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
