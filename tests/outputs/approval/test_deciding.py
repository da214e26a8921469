from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import Approval, Mode, Rule
from exporter.config.match import Match, Window
from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import Life
from exporter.outputs.approval.deciding import ApprovalInputs, ApprovalState, Decision, decide
from tests.builders import FREEZE_ID, scheduled
from tests.clocks import NOW

VM = "WestNO_0"
FREEZES = Rule("freezes", "approve", Match(event_types=("Freeze",), max_duration=8))
HOLD = Rule("nights", "hold", Match(event_types=("Freeze",)))


def settings(*rules: Rule, mode: Mode = Mode.ON, **fields: Any) -> Approval:
    return Approval(mode=mode, rules=rules or (FREEZES,), **fields)


def seen(event: ScheduledEvent | None = None) -> Life:
    return Life(event or scheduled(), (FREEZE_ID,), first_seen=NOW)


def outcome(  # each with a default
    event: ScheduledEvent | None = None,
    given: Approval | None = None,
    instance: str | None = VM,
    facts: ApprovalInputs | None = None,
    after: float = 0.0,
) -> Decision:
    now = NOW + timedelta(seconds=after)
    return decide(seen(event), given or settings(), instance, now, facts or ApprovalInputs(age=after))


@pytest.mark.parametrize(
    ("event", "instance", "reason"),
    [
        (scheduled(), None, "this VM does not know its own name"),
        (scheduled(resources=()), VM, "Azure does not say which VMs it affects"),
        (scheduled(resources=("other",)), VM, "it does not affect this VM; those that it affects decide"),
        (
            scheduled(doubts=("DurationInSeconds: rounded up from 7.9", "Resources: cut")),
            VM,
            "part of it could not be read (DurationInSeconds: rounded up from 7.9)",
        ),
        (scheduled(duration_seconds=None), VM, "no rule matches"),
    ],
)
def test_what_is_held(event: ScheduledEvent, instance: str | None, reason: str) -> None:
    """In doubt, or without a matching rule, the event is held, with a reason."""
    assert outcome(event, instance=instance) == Decision(ApprovalState.HOLD, "", reason)


def test_the_first_rule_that_matches_decides() -> None:
    """A rule may hold what later ones approve, also only in a window."""
    for rules, name in (((HOLD, FREEZES), "nights"), ((FREEZES, HOLD), "freezes")):
        assert outcome(given=settings(*rules)).rule == name
    window = Window(days=(NOW.strftime("%a").lower(),))  # type: ignore[arg-type]  # a day, as strftime has it
    given = settings(Rule("hours", "hold", Match(windows=(window,))), FREEZES)
    assert outcome(given=given).rule == "hours"
    assert outcome(given=given, after=86400).rule == "freezes"


@pytest.mark.parametrize("delay", [0.5, 1e12])
def test_a_delay(delay: float) -> None:
    """It makes a new event wait, and nothing else, also if no calendar holds it."""
    rule = msgspec.structs.replace(FREEZES, delay=delay)
    assert outcome(given=settings(rule), facts=ApprovalInputs()).state is ApprovalState.WAITING


@pytest.mark.parametrize(("leader", "whose"), [("first", "; 1 VM comes before this one"), ("any", "")])
def test_whom_a_vm_waits_for(leader: str, whose: str) -> None:
    """The second VM of an event names those before it, unless any VM may lead."""
    rule = msgspec.structs.replace(FREEZES, delay=30)
    reason = outcome(given=settings(rule, leader=leader), instance="WestNO_1", after=10).reason
    assert reason.partition("Z")[2] == whose


@given(
    resources=st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=4, unique=True),
    seconds=st.floats(0, 400),
    delay=st.integers(0, 100),
)
def test_never_two_leaders_before_their_turn(resources: list[str], seconds: float, delay: int) -> None:
    """Whoever may approve by now are the first of ``Resources``, as many as turns have passed."""
    rule = Rule("all", "approve", Match(), delay=delay)
    given = settings(rule, failover_after=60)
    due = [
        name
        for name in ("a", "b", "c", "d")
        if outcome(scheduled(resources=tuple(resources)), given, name, after=seconds).state
        is ApprovalState.DUE
    ]
    turns = max(0, int((seconds - delay) // 60) + 1) if seconds >= delay else 0
    assert due == sorted(resources[:turns])
