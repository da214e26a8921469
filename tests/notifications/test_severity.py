from pathlib import Path

import pytest

from exporter.model.lifecycle import Transition, TransitionRecord
from exporter.model.messages import Severity, severity
from tests.clocks import NOW
from tests.notifications.messages import message

# One line per transition, before and after the start: Freeze; Reboot, Redeploy and unknown types; Preempt and
# Terminate.
TABLE = """
advised    before  info     warning   warning
scheduled  before  info     warning   critical
updated    before  info     warning   critical
imminent   before  info     warning   critical
started    after   info     critical  critical
updated    after   info     critical  critical
completed  after   success  success   info
cancelled  before  success  success   success
vanished   before  warning  warning   warning
approved   before  info     info      info
hook_failed before warning  critical  critical
hook_failed after  warning  warning   warning
"""
TYPES = (("Freeze",), ("Reboot", "Redeploy", "Evacuate"), ("Preempt", "Terminate"))
PHASED = ("scheduled", "started", "updated", "imminent")
CASES = [
    (transition, event_type, phase == "after", expected)
    for transition, phase, *row in map(str.split, TABLE.strip().splitlines())
    for types, expected in zip(TYPES, row, strict=True)
    for event_type in types
]


@pytest.mark.parametrize(("transition", "event_type", "begun", "expected"), CASES)
def test_the_scale(transition: str, event_type: str, begun: bool, expected: str) -> None:
    """One scale for every transition and type; a type that Azure may add counts as a Reboot."""
    assert severity(transition, event_type, begun=begun) == expected


def test_every_transition_has_its_place() -> None:
    """No transition is left out of the scale."""
    assert {transition for transition, *_ in CASES} == set(Transition)


def test_the_watch_has_its_place() -> None:
    """Being blind is a warning, and the end of it a success."""
    assert (severity("blind"), severity("recovered")) == (Severity.WARNING, Severity.SUCCESS)


def test_a_message_knows_its_severity() -> None:
    """An update or a failed hook counts by whether the event of its message has begun, or is over."""
    begun = (TransitionRecord(Transition.STARTED, NOW),)
    assert message(Transition.UPDATED).severity is Severity.WARNING
    assert message(Transition.UPDATED, transitions=begun).severity is Severity.CRITICAL
    assert message(Transition.UPDATED, type="Terminate").severity is Severity.CRITICAL


@pytest.mark.parametrize(
    ("label", "transition", "phases"),
    [
        ("`scheduled`, `imminent`, `updated` before the start", "updated", (False,)),
        ("`started`, `updated` after it", "updated", (True,)),
        *((f"`{name}`", name, (False, True)) for name in Transition if name not in PHASED),
    ],
)
def test_the_documentation_has_the_same_scale(label: str, transition: str, phases: tuple[bool, ...]) -> None:
    """There is one table of it, in docs/events.md."""
    cells = []
    for types in TYPES:
        found = dict.fromkeys(severity(transition, types[0], begun=begun).value for begun in phases)
        cells.append(" before the start, else ".join(found))
    page = Path(__file__).parents[2] / "docs" / "events.md"
    assert f"| {label} | {' | '.join(cells)} |" in page.read_text(encoding="utf-8").splitlines()
