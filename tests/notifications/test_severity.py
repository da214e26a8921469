"""Tests of `exporter.model.severity`."""

import pytest

from exporter.model.lifecycle import Transition
from exporter.model.messages import Severity
from exporter.model.severity import highest, severity

# One line per transition, before and after the start: Freeze; Reboot, Redeploy and unknown types; Preempt and
# Terminate.
TABLE = """
advised    before  info     warning   warning
scheduled  before  info     warning   critical
updated    before  info     warning   critical
started    after   info     critical  critical
updated    after   info     critical  critical
completed  after   success  success   info
cancelled  before  success  success   success
vanished   before  warning  warning   warning
approved   before  info     info      info
"""
TYPES = (("Freeze",), ("Reboot", "Redeploy", "Evacuate"), ("Preempt", "Terminate"))
CASES = [
    (Transition(transition), event_type, phase == "after", expected)
    for transition, phase, *row in map(str.split, TABLE.strip().splitlines())
    for types, expected in zip(TYPES, row, strict=True)
    for event_type in types
]


@pytest.mark.parametrize(("transition", "event_type", "started", "expected"), CASES)
def test_the_scale(transition: Transition, event_type: str, started: bool, expected: str) -> None:
    """One scale for every transition and type; a type that Azure may add counts as a Reboot."""
    assert severity(transition, event_type, started=started) == expected


def test_every_transition_has_its_place() -> None:
    """No transition is left out of the scale."""
    assert {transition for transition, *_ in CASES} == set(Transition)


def test_the_highest_severity_wins() -> None:
    """Of several, the one that matters most stands for all; of none, it is for information."""
    assert highest([Severity.SUCCESS, Severity.CRITICAL, Severity.WARNING]) is Severity.CRITICAL
    assert highest([Severity.INFO, Severity.SUCCESS]) is Severity.SUCCESS
    assert highest([]) is Severity.INFO
