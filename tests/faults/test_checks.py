"""Tests that the soak's checks find what is wrong."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults import checks
from tests.faults.model import Told, World, advance
from tests.faults.process import Process, Spell
from tests.faults.truth import Document, Event
from tests.notifications.receivers import Received, Receiver

REBOOT = Event("A-1", "Reboot", "Scheduled", "Platform", ("vm_0",), "Mon, 11 Apr 2022 22:26:58 GMT", "", 9)
SEEN = World().saw(Document(1, (REBOOT,))).saw(Document(2, ()))
SCHEDULED, CANCELLED = ("A-1", "scheduled"), ("A-1", "cancelled")


def life(*, ended: str | None = None, stops: tuple[Spell, ...] = (), lines: tuple[str, ...] = ()) -> Any:
    """Give a life that began at 0, and, if it has ended, was told to at 5.5 and did at 10."""
    end = None if ended is None else (10.0, ended)
    return SimpleNamespace(
        begun=0.0, ended=end, told_to_end=5.5, stops=stops, number=1, lines=lines, status=0
    )


def scene(*processes: Process, disk: tuple[Spell, ...] = ()) -> Any:
    """Give a scene of which only the journal matters."""

    def in_doubt(since: float, until: float) -> bool:
        return any(spell.touches(since, until) for spell in disk)

    return SimpleNamespace(processes=processes, disk=disk, in_doubt=in_doubt)


def receiver(*told: tuple[str, str], answered: bool = True) -> Receiver:
    """Give a receiver that was told this, a message for each."""
    bodies = [
        json.dumps({"title": f"[INFO] Reboot {what}: vm_0", "message": f"- Event: Reboot `{event_id}`"})
        for event_id, what in told
    ]
    return Receiver(
        requests=[Received("", "/", body.encode(), {}, at=5.0, answered=answered) for body in bodies]
    )


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ([SCHEDULED], "never told: {('a-1', 'cancelled'): 1}"),
        ([SCHEDULED, CANCELLED, ("B-2", "started")], "told of what did not happen: [('b-2', 'started')]"),
        ([SCHEDULED, SCHEDULED, CANCELLED], "told again, although it had arrived: [('a-1', 'scheduled')]"),
        ([CANCELLED, SCHEDULED], "('a-1', 'scheduled') was told after what happened later"),
    ],
)
def test_messages_that_are_wrong(told: list[tuple[str, str]], problem: str) -> None:
    """What is lost, made up, doubled or out of order is found."""
    with pytest.raises(AssertionError, match=re.escape(problem)):
        checks.messages(scene(life()), receiver(*told), SEEN, set())


def test_messages_that_are_right() -> None:
    """Each once is right; again is so after a kill, a pause, a lost answer, or with the disk in doubt."""
    checks.messages(scene(life()), receiver(SCHEDULED, CANCELLED), SEEN, set())
    twice = SCHEDULED, SCHEDULED, CANCELLED
    checks.messages(scene(life(ended="kill")), receiver(*twice), SEEN, set())
    checks.messages(scene(life(stops=(Spell(1.0),))), receiver(*twice), SEEN, set())
    checks.messages(scene(life()), receiver(*twice, answered=False), SEEN, set())
    checks.messages(scene(life(ended="stop"), disk=(Spell(1.0),)), receiver(*twice), SEEN, set())


def test_a_repeat_that_no_kill_explains() -> None:
    """A kill excuses that what was just under way comes again, not what had come long before, nor several."""
    early = life(ended="kill")
    early.told_to_end = 9.0
    twice = SCHEDULED, SCHEDULED, CANCELLED
    with pytest.raises(AssertionError, match="told again, although it had arrived"):
        checks.messages(scene(early), receiver(*twice), SEEN, set())
    with pytest.raises(AssertionError, match="2 repeats, 1 allowed"):
        checks.messages(scene(life(ended="kill")), receiver(*twice, CANCELLED), SEEN, set())


def test_an_approval_is_told_of() -> None:
    """What was approved must be told of as that."""
    with pytest.raises(AssertionError, match="approved"):
        checks.messages(scene(life()), receiver(SCHEDULED, CANCELLED), SEEN, {"a-1"})


@pytest.mark.parametrize(
    ("ended", "lines", "problem"),
    [
        (None, ("level=error msg=x traceback=...",), "life 1: level=error"),
        ("stop", ("msg=started",), "life 1: status 1"),
    ],
)
def test_logs_that_are_wrong(ended: str | None, lines: tuple[str, ...], problem: str) -> None:
    """A traceback is found, and an end with another status than 0."""
    process = life(ended=ended, lines=lines)
    process.status = 1
    with pytest.raises(AssertionError, match=problem):
        checks.logs([process])


def test_a_transition_is_lost_only_by_a_kill_with_the_disk_in_doubt() -> None:
    """A world knows what may have been told without being remembered."""
    world = World().disk_fails().saw(Document(1, (REBOOT,)))
    kept, forgotten, _ = world.restarts()
    assert (kept.lost, forgotten.lost) == (
        frozenset(),
        frozenset({Told("a-1", "scheduled", mine=True, step=0)}),
    )
    assert advance(forgotten.state, Document(1, (REBOOT,))).view == {"a-1": ["scheduled"]}
