"""Tests of the soak's own judgement: what it takes as right, and that it finds what is wrong."""

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from exporter.model import advance as exporter_advance
from exporter.model.documents import decode_document
from exporter.model.lifecycle import Known, Transition
from tests.clocks import NOW
from tests.faults.model import State, View, World, advance, view
from tests.faults.rules import DELAY, FAILOVER, leave
from tests.faults.truth import VM, Document, Event, Truth

REBOOT = Event("A-1", "Reboot", "Scheduled", "Platform", ("vm_0",), "Mon, 11 Apr 2022 22:26:58 GMT", "", 9)


def event(**fields: Any) -> Event:
    """Return a reboot with other values where given."""
    return msgspec.structs.replace(REBOOT, **fields)


def after(*documents: tuple[int, list[Event]]) -> View:
    """Return what happened after documents, each an incarnation and events."""
    state = State()
    for incarnation, events in documents:
        state = advance(state, Document(incarnation, tuple(events)))
    return state.view


def mine(*transitions: str) -> tuple[str, ...]:
    """Return a life of this VM's."""
    return "self", *transitions


STARTED = event(status="Started", not_before="")
ADVISED = event(status="Advisory")
OTHER = event(resources=("vm_1",))
OVER = event(status="Canceled")


@pytest.mark.parametrize(
    ("documents", "happened"),
    [
        ([(1, [REBOOT]), (2, [STARTED]), (3, [])], ["scheduled", "started", "completed"]),
        ([(1, [REBOOT]), (2, [])], ["scheduled", "cancelled"]),
        ([(1, [REBOOT]), (3, [])], ["scheduled", "vanished"]),
        ([(9, [REBOOT]), (1, [REBOOT]), (2, [])], ["scheduled", "cancelled"]),
        ([(1, [REBOOT]), (2, [event(duration=10)])], ["scheduled"]),
        ([(1, [REBOOT]), (2, [event(id="a-1", resources=("_VM_0",))])], ["scheduled"]),
        ([(1, [STARTED]), (2, [REBOOT]), (3, [STARTED]), (4, [])], ["started", "completed"]),
        ([(1, [ADVISED]), (2, [REBOOT]), (3, [ADVISED]), (4, [REBOOT])], ["advised", "scheduled"]),
        ([(1, [ADVISED]), (3, [])], ["advised", "cancelled"]),
        ([(1, [REBOOT]), (2, [event(status="STARTED")])], ["scheduled", "started"]),
        ([(1, [REBOOT]), (2, [event(status="completed")]), (3, [])], ["scheduled", "completed"]),
        ([(1, [STARTED]), (3, [OVER])], ["started", "cancelled"]),
    ],
)
def test_a_life(documents: list[tuple[int, list[Event]]], happened: list[str]) -> None:
    """The model agrees with the table of transitions in docs/events.md."""
    assert after(*documents) == {"a-1": [mine(*happened)]}


def test_a_return() -> None:
    """An event that is listed again after its end begins a new life; one first seen over has none."""
    lives = after((1, [REBOOT]), (2, []), (3, [STARTED]), (4, [OVER]), (5, [REBOOT]))
    assert lives == {"a-1": [mine("scheduled"), mine("scheduled", "cancelled"), mine("started", "cancelled")]}
    assert after((1, [OVER]), (2, [])) == {}


def test_joining_and_leaving() -> None:
    """A life begins when this VM joins or leaves; only the end of its own life is reported."""
    assert after((1, [OTHER]), (2, [STARTED])) == {"a-1": [mine("started")]}
    assert after((1, [REBOOT]), (2, [OTHER])) == {
        "a-1": [("other", "scheduled"), mine("scheduled", "cancelled")]
    }
    left = after(
        (1, [STARTED]), (2, [event(status="Started", resources=("vm_1",))]), (4, [OTHER]), (5, [REBOOT])
    )
    assert left == {"a-1": [mine("scheduled"), mine("started", "completed")]}


def test_an_update() -> None:
    """A change within a life may be reported; one of status, of the life or only of case is not."""

    def updated(*events: Event) -> bool:
        state = State()
        for number, one in enumerate(events):
            state = advance(state, Document(number, (one,)))
        return any(told.transition == "updated" for told in state.told)

    assert updated(REBOOT, event(duration=10))
    assert not updated(REBOOT, event(status="scheduled", resources=("_VM_0",)))
    assert not updated(REBOOT, STARTED)
    assert not updated(REBOOT, OTHER)


def test_an_heir() -> None:
    """A Started event alike that comes as one goes is the same, unless there are two that go or come."""
    heir = event(id="B-2", status="Started")
    assert after((1, [REBOOT]), (3, [heir])) == {"a-1": [mine("scheduled", "started")]}
    assert after((1, [STARTED]), (2, [heir])) == {"a-1": [mine("started")]}
    apart = {"a-1": [mine("started", "completed")], "b-2": [mine("started")]}
    assert after((1, [STARTED]), (3, [heir])) == apart
    two = after((1, [REBOOT]), (2, [heir, event(id="C-3", status="Started")]))
    assert two == {
        "a-1": [mine("scheduled", "cancelled")],
        "b-2": [mine("started")],
        "c-3": [mine("started")],
    }
    gone = after((1, [REBOOT, event(id="C-3", status="Advisory")]), (2, [heir]))
    assert gone["b-2"] == [mine("started")]


def test_worlds_after_a_kill() -> None:
    """After a kill all is remembered, but for what happened while the disk was in doubt."""
    world = World().saw(Document(1, (REBOOT,)))
    assert [w.state.view for w in world.restarts()] == [{"a-1": [mine("scheduled")]}]
    world = world.disk_fails().saw(Document(2, (STARTED,)))
    assert [(w.state.view["a-1"], [told.transition for told in w.lost]) for w in world.restarts()] == [
        ([mine("scheduled", "started")], []),
        ([mine("scheduled")], ["started"]),
        ([mine("scheduled", "started")], []),
    ]
    assert len(list(world.disk_is_well().restarts())) == 1


def test_leave() -> None:
    """Leave is given as the rules in force say, in this VM's turn, and after the hook that they require."""
    freeze = event(type="Freeze", resources=("vm_1", "VM_0"))
    assert leave("none", freeze) is None
    assert leave("some", msgspec.structs.replace(freeze, duration=None)) is None
    assert leave("some", msgspec.structs.replace(freeze, status="Started")) is None
    assert leave("some", msgspec.structs.replace(freeze, resources=())) is None
    given = leave("some", freeze)
    assert given is not None
    assert given.wait == FAILOVER + DELAY
    drained = leave("some", REBOOT)
    assert drained is not None
    assert drained.hook == "drain"


@pytest.mark.parametrize("seed", range(5))
def test_the_exporter_agrees_with_the_model(seed: int) -> None:
    """Of any documents, the exporter takes the same lives as the model, each with the same transitions."""
    truth, chance = Truth(seed), random.Random(seed)
    known, state, now = Known(), State(), NOW
    for _ in range(100):
        for _ in range(chance.choice((1, 1, 2))):
            truth.change()
        document = truth.documents[-1 - chance.choice((0, 0, 0, 1))]
        now += timedelta(seconds=chance.choice((1, 70)))
        decoded = decode_document(document.body)
        step = exporter_advance.advance(known, decoded, now, instance=VM, watching=True)
        known = msgspec.structs.replace(step.known, last_success=now)
        state = advance(state, document)
        lives = [*known.current.values(), *known.past.values()]
        found: dict[str, list[tuple[str, list[str]]]] = {}
        for life in lives:
            transitions = [record.transition.value for record in life.transitions]
            found.setdefault(life.ids[0].lower(), []).append((life.target.value, transitions))
        assert {key: view(of) for key, of in found.items()} == state.view
        updated = {life.ids[0].lower() for life in lives if life.has(Transition.UPDATED)}
        assert updated <= {told.id for told in state.told if told.transition == "updated"}
