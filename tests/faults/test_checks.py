"""Tests that the soak's checks find what is wrong."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.faults import checks
from tests.faults.model import Told, World, advance
from tests.faults.process import Process, Spell
from tests.faults.reports import Run
from tests.faults.truth import Document, Event
from tests.notifications.receivers import Received, Receiver

REBOOT = Event("A-1", "Reboot", "Scheduled", "Platform", ("vm_0",), "Mon, 11 Apr 2022 22:26:58 GMT", "", 9)
SEEN = World().saw(Document(1, (REBOOT,))).saw(Document(2, ()))
SCHEDULED, CANCELLED = ("A-1", "scheduled"), ("A-1", "cancelled")


def life(*, ended: str | None = None, stops: tuple[Spell, ...] = (), lines: tuple[str, ...] = ()) -> Any:
    """Return a life that began at 0, and, if it has ended, was told to at 5.5 and did at 10."""
    end = None if ended is None else (10.0, ended)
    return SimpleNamespace(
        begun=0.0, ended=end, told_to_end=5.5, stops=stops, number=1, lines=lines, status=0
    )


def scene(*processes: Process, disk: tuple[Spell, ...] = (), runs: Sequence[Run] = ()) -> Any:
    """Return a scene of which only the journal matters."""

    def in_doubt(since: float, until: float) -> bool:
        return any(spell.touches(since, until) for spell in disk)

    hooks = SimpleNamespace(runs=runs)
    return SimpleNamespace(processes=processes, disk=disk, in_doubt=in_doubt, hooks=hooks)


def receiver(*told: tuple[str, str], answered: bool = True) -> Receiver:
    """Return a receiver that was told this, a message for each."""
    bodies = [
        json.dumps({"title": f"[INFO] Reboot {what}: vm_0", "message": f"- Event: Reboot {event_id}"})
        for event_id, what in told
    ]
    return Receiver(requests=[Received("POST", "/", {}, body.encode(), 5.0, answered) for body in bodies])


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ([SCHEDULED], "never told: {('a-1', 'cancelled'): 1}"),
        ([SCHEDULED, CANCELLED, ("B-2", "started")], "told of what did not happen: [('b-2', 'started')]"),
        ([SCHEDULED, SCHEDULED, CANCELLED], "told again, although it had arrived: [('a-1', 'scheduled')]"),
        ([CANCELLED, SCHEDULED], "('a-1', 'scheduled') was told after what happened to it later"),
    ],
)
def test_messages_that_are_wrong(told: list[tuple[str, str]], problem: str) -> None:
    """What is lost, made up, doubled or out of order is found."""
    with pytest.raises(AssertionError, match=re.escape(problem)):
        checks.messages(scene(life()), receiver(*told), SEEN, Counter())


def test_messages_that_are_right() -> None:
    """Each once is right; again is so after a kill, a pause, a lost answer, or with the disk in doubt."""
    checks.messages(scene(life()), receiver(SCHEDULED, CANCELLED), SEEN, Counter())
    twice = SCHEDULED, SCHEDULED, CANCELLED
    checks.messages(scene(life(ended="kill")), receiver(*twice), SEEN, Counter())
    checks.messages(scene(life(stops=(Spell(1.0),))), receiver(*twice), SEEN, Counter())
    checks.messages(scene(life()), receiver(*twice, answered=False), SEEN, Counter())
    checks.messages(scene(life(ended="stop"), disk=(Spell(1.0),)), receiver(*twice), SEEN, Counter())


def test_a_repeat_that_no_kill_explains() -> None:
    """A kill excuses that what was just under way comes again, not what had come long before, nor several."""
    early = life(ended="kill")
    early.told_to_end = 9.0
    twice = SCHEDULED, SCHEDULED, CANCELLED
    with pytest.raises(AssertionError, match="told again, although it had arrived"):
        checks.messages(scene(early), receiver(*twice), SEEN, Counter())
    with pytest.raises(AssertionError, match="2 repeats, 1 allowed"):
        checks.messages(scene(life(ended="kill")), receiver(*twice, CANCELLED), SEEN, Counter())


def test_several_lives() -> None:
    """The transitions of each life are reported each time; a repeat needs an excuse as usual."""
    world = SEEN.saw(Document(3, (REBOOT,))).saw(Document(4, ()))
    told = [SCHEDULED, CANCELLED, SCHEDULED, CANCELLED]
    checks.messages(scene(life()), receiver(*told), world, Counter())
    checks.messages(scene(life()), receiver(SCHEDULED, SCHEDULED, CANCELLED, CANCELLED), world, Counter())
    with pytest.raises(AssertionError, match="never told"):
        checks.messages(scene(life()), receiver(*told[:3]), world, Counter())
    with pytest.raises(AssertionError, match="told again"):
        checks.messages(scene(life()), receiver(SCHEDULED, *told), world, Counter())


def test_the_order_holds_per_event() -> None:
    """A transition may be reported before an earlier one of another event."""
    other = msgspec.structs.replace(REBOOT, id="B-2", type="Freeze")
    world = World().saw(Document(1, (REBOOT,))).saw(Document(2, (other,)))
    announced = ("B-2", "scheduled")
    checks.messages(scene(life()), receiver(SCHEDULED, CANCELLED, announced), world, Counter())
    checks.messages(scene(life()), receiver(announced, SCHEDULED, CANCELLED), world, Counter())
    with pytest.raises(AssertionError, match="after what happened to it later"):
        checks.messages(scene(life()), receiver(CANCELLED, announced, SCHEDULED), world, Counter())


def shows(
    *transitions: str, outcome: str | None = None, seconds: float = 60, since: str = "2022-04-11T00:00:00Z"
) -> dict[str, Any]:
    """Return a life as the API shows it, a transition every so many seconds."""
    begun = datetime.fromisoformat(since)
    entries = [
        {"transition": transition, "at": (begun + timedelta(seconds=number * seconds)).isoformat()}
        for number, transition in enumerate(transitions)
    ]
    return {"type": "Reboot", "target": "self", "outcome": outcome, "transitions": entries}


def test_updates() -> None:
    """What never changed is not updated, and nothing is more than once a minute."""
    changed = (
        World().saw(Document(1, (REBOOT,))).saw(Document(2, (msgspec.structs.replace(REBOOT, duration=1),)))
    )
    twice = shows("scheduled", "updated", "updated")
    assert checks.updates(changed, {"a-1": [twice]}) == {("a-1", "updated"): 2}
    with pytest.raises(AssertionError, match="never changed"):
        checks.updates(SEEN, {"a-1": [twice]})
    with pytest.raises(AssertionError, match="seconds apart"):
        checks.updates(changed, {"a-1": [shows("scheduled", "updated", "updated", seconds=59)]})


def ran(hook: str, lived: dict[str, Any], number: int, *, begun: float = 1.0) -> Run:
    """Return a run that succeeded for one of a life's transitions."""
    entry = lived["transitions"][number]
    return Run(hook, 1, "a-1", entry["transition"], entry["at"], 1, agrees=True, begun=begun, ended=begun)


def test_hooks_that_are_right() -> None:
    """A run that had not begun is dropped at the end of a life."""
    gone = shows("scheduled", "cancelled", outcome="cancelled")
    goes_on = shows("scheduled", since=gone["transitions"][1]["at"])
    runs = [ran("tell", gone, 0), ran("tell", goes_on, 0, begun=2.0), ran("drain", goes_on, 0, begun=3.0)]
    world = SEEN.saw(Document(3, (REBOOT,)))
    checks.hooks(scene(life(), runs=runs), world, {"a-1": [goes_on, gone]})


def test_hooks_that_are_wrong() -> None:
    """A run that is missing, made up, doubled or out of order is found."""
    world, lived = World().saw(Document(1, (REBOOT,))), shows("scheduled")
    runs = [ran("tell", lived, 0), ran("drain", lived, 0, begun=2.0)]

    def found(runs: list[Run], problem: str) -> None:
        with pytest.raises(AssertionError, match=problem):
            checks.hooks(scene(life(), runs=runs), world, {"a-1": [lived]})

    checks.hooks(scene(life(), runs=runs), world, {"a-1": [lived]})
    found(runs[:1], "did not run")
    found([*runs, msgspec.structs.replace(runs[0], at="at another time")], "ran for nothing")
    found([*runs, msgspec.structs.replace(runs[0], begun=3.0)], "ran twice in one life")
    found([runs[0], msgspec.structs.replace(runs[1], begun=0.5)], "in another order")


def test_hooks_that_failed() -> None:
    """A run that failed is a transition of its life, once, and no other run is."""
    lived, untold = shows("scheduled", "hook_failed"), shows("scheduled")
    lived["transitions"][1] |= {"hook": "tell", "run": 1}
    failed = msgspec.structs.replace(ran("tell", lived, 0), status=1)
    assert checks.failures(scene(life(), runs=[failed]), {"a-1": [lived]}) == {("a-1", "hook_failed"): 1}
    with pytest.raises(AssertionError, match="failed, and not told"):
        checks.failures(scene(life(), runs=[failed]), {"a-1": [untold]})
    with pytest.raises(AssertionError, match="told as failed, and did not"):
        checks.failures(scene(life(), runs=[msgspec.structs.replace(failed, status=0)]), {"a-1": [lived]})
    lived["transitions"].append(lived["transitions"][1])
    with pytest.raises(AssertionError, match="told twice"):
        checks.failures(scene(life(), runs=[failed]), {"a-1": [lived]})


def test_an_approval_is_told_of() -> None:
    """An approval must be reported."""
    with pytest.raises(AssertionError, match="approved"):
        checks.messages(scene(life()), receiver(SCHEDULED, CANCELLED), SEEN, Counter([("a-1", "approved")]))


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
    """A world has the transitions that may have been reported without being stored."""
    world = World().disk_fails().saw(Document(1, (REBOOT,)))
    kept, forgotten, _ = world.restarts()
    assert (kept.lost, forgotten.lost) == (
        frozenset(),
        frozenset({Told("a-1", 1, "scheduled", mine=True, step=0)}),
    )
    assert advance(forgotten.state, Document(1, (REBOOT,))).view == {"a-1": [("self", "scheduled")]}
