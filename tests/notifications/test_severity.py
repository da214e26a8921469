"""Tests of `exporter.notifications.severity`."""

import pytest

from exporter.lifecycle import Transition
from exporter.messages import Severity
from exporter.notifications.severity import highest, severity

ALARMING = ("Reboot", "Redeploy", "Preempt", "Terminate", "Evacuate")


@pytest.mark.parametrize("event_type", ALARMING)
@pytest.mark.parametrize(
    ("transition", "expected"),
    [("scheduled", "warning"), ("updated", "warning"), ("started", "critical")],
)
def test_what_interrupts_warns_and_then_alarms(event_type: str, transition: str, expected: str) -> None:
    """Every type but a Freeze, one not known yet too, warns beforehand and is critical once started."""
    assert severity(Transition(transition), event_type) == expected


@pytest.mark.parametrize("transition", ["scheduled", "updated", "started"])
def test_a_freeze_informs(transition: str) -> None:
    """A Freeze wakes nobody."""
    assert severity(Transition(transition), "Freeze") == "info"


@pytest.mark.parametrize("event_type", ["Freeze", *ALARMING])
@pytest.mark.parametrize(
    ("transition", "expected"),
    [("completed", "success"), ("cancelled", "success"), ("vanished", "warning"), ("approved", "info")],
)
def test_an_end_weighs_the_same_for_every_type(event_type: str, transition: str, expected: str) -> None:
    """Being over is good news, a lost trace is a warning, an approval is for information."""
    assert severity(Transition(transition), event_type) == expected


def test_the_highest_severity_wins() -> None:
    """Of several, the one that matters most stands for all; of none, it is for information."""
    assert highest([Severity.SUCCESS, Severity.CRITICAL, Severity.WARNING]) is Severity.CRITICAL
    assert highest([Severity.INFO, Severity.SUCCESS]) is Severity.SUCCESS
    assert highest([]) is Severity.INFO
