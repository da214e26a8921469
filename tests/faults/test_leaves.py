"""Tests that the soak finds an approval that should not have been."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.faults.azure import Talk
from tests.faults.leaves import Leaves
from tests.faults.model import World
from tests.faults.process import Spell
from tests.faults.rules import MAX_PER_HOUR
from tests.faults.truth import Document, Event

FREEZE = Event("A-1", "Freeze", "Scheduled", "Platform", ("vm_0",), "Mon, 11 Apr 2022 22:26:58 GMT", "", 5)
BEGAN = datetime.now(UTC)
START = time.monotonic()


def asked(document: Document, at: float = 30.0) -> Talk:
    """Give a fetch by the approver, seconds after the start."""
    return Talk(1, "approver", START + at - 0.1, 1, document, START + at - 0.1)


def approved(event_id: str, at: float = 30.0) -> Talk:
    """Give an approval that Azure took, and said so."""
    found = Talk(1, "approver", START + at, 1, Document(1), START + at)
    found.approves, found.approving = (event_id.lower(),), True
    return found


def check(*talks: Talk, rules: str = "all", shown: Any = None) -> set[str]:
    """Check what the approver said, in one life that goes on."""
    process = SimpleNamespace(ended=None, stops=())
    scene: Any = SimpleNamespace(
        azure=SimpleNamespace(talks=talks),
        processes=[process],
        rules=[(rules, Spell(START))],
        hooks=SimpleNamespace(runs=[]),
        offsets_between=lambda _since, _until: [0.0],
        in_doubt=lambda _since, _until: False,
    )
    return Leaves(scene, BEGAN, START).check(World(), shown or {})


def shows(*transitions: str) -> dict[str, Any]:
    """Give what the API shows of the freeze."""
    entries = [{"transition": transition} for transition in transitions]
    return {"a-1": {"transitions": entries, "target": "self", "first_seen": BEGAN.isoformat()}}


def test_an_approval_with_leave() -> None:
    """One that the rules allow is right, and is to be told of."""
    document = Document(1, (FREEZE,))
    assert check(asked(document), approved("A-1"), shown=shows("scheduled", "approved")) == {"a-1"}


def document(**fields: Any) -> Document:
    """Give a document with the freeze, with other values where given."""
    return Document(1, (msgspec.structs.replace(FREEZE, **fields),))


@pytest.mark.parametrize(
    ("talks", "rules", "shown", "problem"),
    [
        (lambda: [asked(Document(1)), approved("A-1")], "all", None, "not in the document"),
        (lambda: [asked(document(status="Started")), approved("A-1")], "all", None, "no rule allows"),
        (lambda: [asked(document()), approved("A-1")], "none", None, "no rule allows"),
        (lambda: [asked(document(type="Reboot")), approved("A-1")], "all", None, "before it was drained"),
        (lambda: [asked(document(), 0.4), approved("A-1", 0.4)], "all", shows("approved"), "due"),
        (lambda: [asked(document()), approved("A-1"), approved("A-1", 35)], "all", None, "approved twice"),
        (lambda: [asked(document()), approved("A-1")], "all", shows("scheduled"), "is not said to be"),
        (list, "all", shows("scheduled", "approved"), "and was not"),
        (lambda: [asked(document()), approved("A-1")], "all", shows("approved", "approved"), "2 times"),
    ],
)
def test_an_approval_without_leave(
    talks: Callable[[], list[Talk]], rules: str, shown: Any, problem: str
) -> None:
    """What no rule allows, or comes too early, or twice, or is not told of, is found."""
    with pytest.raises(AssertionError, match=problem):
        check(*talks(), rules=rules, shown=shown)


def test_too_many_approvals() -> None:
    """More than the limit allows within an hour are found."""
    events = tuple(msgspec.structs.replace(FREEZE, id=f"E-{n}") for n in range(MAX_PER_HOUR + 1))
    talks = [asked(Document(1, events)), *(approved(event.id) for event in events)]
    check(*talks[:-1])
    with pytest.raises(AssertionError, match="in the hour before"):
        check(*talks)
