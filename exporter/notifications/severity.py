"""How much a transition matters to a person: it sets the message's colour and stands in its title."""

from exporter.lifecycle import Transition
from exporter.messages import Severity

_ALWAYS = {
    Transition.COMPLETED: Severity.SUCCESS,
    Transition.CANCELLED: Severity.SUCCESS,
    Transition.VANISHED: Severity.WARNING,
    Transition.APPROVED: Severity.INFO,
}
_RISING = (Severity.INFO, Severity.SUCCESS, Severity.WARNING, Severity.CRITICAL)


def severity(transition: Transition, event_type: str) -> Severity:
    """Weigh a transition: a Freeze informs, all else warns beforehand and alarms once it has started.

    A type that Azure adds later is taken to be as bad as a Reboot.
    """
    if transition in _ALWAYS:
        return _ALWAYS[transition]
    if event_type == "Freeze":
        return Severity.INFO
    return Severity.CRITICAL if transition is Transition.STARTED else Severity.WARNING


def highest(severities: list[Severity]) -> Severity:
    """Give the one that matters most; `Severity.INFO` of none."""
    return max(severities, key=_RISING.index, default=Severity.INFO)
