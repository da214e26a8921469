"""How much a transition matters to a person: it sets the message's colour and stands in its title."""

from exporter.model.lifecycle import Transition
from exporter.model.messages import Severity

INFO, SUCCESS, WARNING, CRITICAL = Severity.INFO, Severity.SUCCESS, Severity.WARNING, Severity.CRITICAL

# By transition: for a Freeze, for a Preempt or a Terminate, and for every other type. A type that Azure adds
# later counts as a Reboot does.
_SCALE = {
    Transition.ADVISED: (INFO, WARNING, WARNING),
    Transition.SCHEDULED: (INFO, CRITICAL, WARNING),
    Transition.STARTED: (INFO, CRITICAL, CRITICAL),
    Transition.COMPLETED: (SUCCESS, INFO, SUCCESS),
    Transition.CANCELLED: (SUCCESS, SUCCESS, SUCCESS),
    Transition.VANISHED: (WARNING, WARNING, WARNING),
    Transition.APPROVED: (INFO, INFO, INFO),
}
_COLUMN = {"Freeze": 0, "Preempt": 1, "Terminate": 1}
_RISING = (INFO, SUCCESS, WARNING, CRITICAL)


def severity(transition: Transition, event_type: str, *, started: bool) -> Severity:
    """Return the severity of a transition; an update counts as the phase in which it came."""
    if transition is Transition.UPDATED:
        transition = Transition.STARTED if started else Transition.SCHEDULED
    return _SCALE[transition][_COLUMN.get(event_type, 2)]


def highest(severities: list[Severity]) -> Severity:
    """Return the one that matters most; `Severity.INFO` of none."""
    return max(severities, key=_RISING.index, default=INFO)
