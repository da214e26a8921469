"""Tests that the soak finds an approval that should not have been."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.faults.azure import Talk
from tests.faults.leaves import Leaves
from tests.faults.model import World
from tests.faults.process import Spell
from tests.faults.rules import MAX_PER_HOUR
from tests.faults.scene import Offset
from tests.faults.truth import Document, Event

FREEZE = Event("A-1", "Freeze", "Scheduled", "Platform", ("vm_0",), "Mon, 11 Apr 2022 22:26:58 GMT", "", 5)
BEGAN = datetime.now(UTC)
START = time.monotonic()


def asked(document: Document, at: float = 30.0) -> Talk:
    """Return a fetch by the approver, seconds after the start."""
    return Talk(1, "approver", START + at - 0.1, 1, document, START + at - 0.1)


def approved(event_id: str, at: float = 30.0) -> Talk:
    """Return an approval that Azure took, and said so."""
    found = Talk(1, "approver", START + at, 1, Document(1), START + at)
    found.approves, found.approving = (event_id.lower(),), True
    return found


def check(*talks: Talk, rules: str = "all", shown: Any = None, unknown: bool = False) -> dict[Any, int]:
    """Check what the approver said in one process; the watch was given the same documents, or none."""
    process = SimpleNamespace(begun=START, ended=None, stops=())
    polls = [] if unknown else [Talk(1, "poller", START, 1, talk.document, START) for talk in talks]
    scene: Any = SimpleNamespace(
        azure=SimpleNamespace(talks=[*polls, *talks]),
        processes=[process],
        rules=[(rules, Spell(START))],
        hooks=SimpleNamespace(runs=[]),
        offsets=[Offset(START, 0.0)],
        offsets_between=lambda _since, _until: [0.0],
        in_doubt=lambda _since, _until: False,
    )
    return Leaves(scene, BEGAN, START).check(World(), shown or {})


def shows(*lives: tuple[str, ...]) -> dict[str, Any]:
    """Return what the API shows of the freeze: a life began every ten seconds, and the last one goes on."""
    times = [(BEGAN + timedelta(seconds=10 * number)).isoformat() for number in range(len(lives))]
    ends = [*times[1:], None]
    return {
        "a-1": [
            {
                "transitions": [{"transition": transition, "at": begun} for transition in life],
                "target": "self",
                "first_seen": begun,
                "ended": ended,
            }
            for life, begun, ended in zip(lives, times, ends, strict=True)
        ]
    }


ONCE = shows(("scheduled", "approved"))
MUST = {("a-1", "approved"): 1}


def test_an_approval_with_leave() -> None:
    """One that the rules allow is correct, and must be reported."""
    document = Document(1, (FREEZE,))
    assert check(asked(document), approved("A-1"), shown=ONCE) == MUST


def test_an_approval_in_each_life() -> None:
    """An event may be approved once in each of its lives."""
    document = Document(1, (FREEZE,))
    talks = [asked(document, 5), approved("A-1", 5), asked(document, 15), approved("A-1", 15)]
    twice = shows(("scheduled", "approved", "cancelled"), ("scheduled", "approved"))
    assert check(*talks, shown=twice) == {("a-1", "approved"): 2}
    with pytest.raises(AssertionError, match="is not said to be"):
        check(*talks, shown=shows(("scheduled", "approved", "cancelled"), ("scheduled",)))


def test_an_approval_of_what_the_watch_does_not_know() -> None:
    """An event is not approved before the watch was given it as it is."""
    with pytest.raises(AssertionError, match="the watch did not know it"):
        check(asked(document()), approved("A-1"), unknown=True)


def document(**fields: Any) -> Document:
    """Return a document with the freeze, with other values where given."""
    return Document(1, (msgspec.structs.replace(FREEZE, **fields),))


@pytest.mark.parametrize(
    ("talks", "rules", "shown", "problem"),
    [
        (lambda: [asked(Document(1)), approved("A-1")], "all", None, "not in the document"),
        (lambda: [asked(document(status="Started")), approved("A-1")], "all", None, "no rule allows"),
        (lambda: [asked(document()), approved("A-1")], "none", None, "no rule allows"),
        (lambda: [asked(document(type="Reboot")), approved("A-1")], "all", None, "before it was drained"),
        (lambda: [asked(document(), 0.4), approved("A-1", 0.4)], "all", ONCE, "due"),
        (lambda: [asked(document()), approved("A-1"), approved("A-1", 35)], "all", ONCE, "approved twice"),
        (lambda: [asked(document()), approved("A-1")], "all", shows(("scheduled",)), "is not said to be"),
        (list, "all", ONCE, "and was not"),
        (lambda: [asked(document()), approved("A-1")], "all", shows(("approved", "approved")), "2 times"),
    ],
)
def test_an_approval_without_leave(
    talks: Callable[[], list[Talk]], rules: str, shown: Any, problem: str
) -> None:
    """An approval without a rule, too early, twice or unreported is found."""
    with pytest.raises(AssertionError, match=problem):
        check(*talks(), rules=rules, shown=shown)


def test_too_many_approvals() -> None:
    """More than the limit allows within an hour are found."""
    events = tuple(msgspec.structs.replace(FREEZE, id=f"E-{n}") for n in range(MAX_PER_HOUR + 1))
    talks = [asked(Document(1, events)), *(approved(event.id) for event in events)]
    check(*talks[:-1])
    with pytest.raises(AssertionError, match="in the hour before"):
        check(*talks)
