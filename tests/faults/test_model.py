"""Tests of the soak's own judgement: what it takes as right, and that it finds what is wrong."""

from typing import Any

import msgspec
import pytest

from tests.faults.model import State, World, advance
from tests.faults.rules import DELAY, FAILOVER, leave
from tests.faults.truth import Document, Event

REBOOT = Event("A-1", "Reboot", "Scheduled", "Platform", ("vm_0",), "Mon, 11 Apr 2022 22:26:58 GMT", "", 9)


def event(**fields: Any) -> Event:
    """Give a reboot with other values where given."""
    return msgspec.structs.replace(REBOOT, **fields)


def after(*documents: tuple[int, list[Event]]) -> dict[str, list[str]]:
    """Give what happened after documents, each an incarnation and events."""
    state = State()
    for incarnation, events in documents:
        state = advance(state, Document(incarnation, tuple(events)))
    return state.view


STARTED = event(status="Started", not_before="")


@pytest.mark.parametrize(
    ("documents", "happened"),
    [
        ([(1, [REBOOT]), (2, [STARTED]), (3, [])], ["scheduled", "started", "completed"]),
        ([(1, [REBOOT]), (2, [])], ["scheduled", "cancelled"]),
        ([(1, [REBOOT]), (3, [])], ["scheduled", "vanished"]),
        ([(9, [REBOOT]), (1, [REBOOT]), (2, [])], ["scheduled", "cancelled"]),
        ([(1, [REBOOT]), (2, [event(duration=10)])], ["scheduled", "updated"]),
        ([(1, [REBOOT]), (2, [event(id="a-1", resources=("_VM_0",))])], ["scheduled"]),
        ([(1, [STARTED]), (2, [REBOOT]), (3, [STARTED]), (4, [])], ["started", "completed"]),
        ([(1, [REBOOT]), (2, []), (3, [REBOOT]), (4, [STARTED])], ["scheduled", "cancelled", "started"]),
    ],
)
def test_a_life(documents: list[tuple[int, list[Event]]], happened: list[str]) -> None:
    """The model says of an event's life what the README's table of transitions says."""
    assert after(*documents) == {"a-1": happened}


def test_an_heir() -> None:
    """A Started event alike that comes as a Scheduled one goes is the same, unless there are two."""
    heir = event(id="B-2", status="Started")
    assert after((1, [REBOOT]), (2, [heir])) == {"a-1": ["scheduled", "started"]}
    two = after((1, [REBOOT]), (2, [heir, event(id="C-3", status="Started")]))
    assert two == {"a-1": ["scheduled", "cancelled"], "b-2": ["started"], "c-3": ["started"]}


def test_worlds_after_a_kill() -> None:
    """After a kill all is remembered, but for what happened while the disk was in doubt."""
    world = World().saw(Document(1, (REBOOT,)))
    assert [w.state.view for w in world.restarts()] == [{"a-1": ["scheduled"]}]
    world = world.disk_fails().saw(Document(2, (STARTED,)))
    assert [(w.state.view["a-1"], [told.transition for told in w.lost]) for w in world.restarts()] == [
        (["scheduled", "started"], []),
        (["scheduled"], ["started"]),
        (["scheduled", "started"], []),
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
