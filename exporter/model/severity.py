"""The one scale of severity, for messages, page, alerts and dashboards."""

from enum import StrEnum


class Severity(StrEnum):
    """How much something matters to the person who reads it."""

    INFO = "info"
    SUCCESS = "success"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def weight(self) -> int:
        """Its place in the order above; the last one matters most."""
        return tuple(Severity).index(self)


INFO, SUCCESS, WARNING, CRITICAL = Severity

# By transition: for a Freeze, for every type that is not listed in _COLUMN, and for a Preempt or a Terminate.
_SCALE: dict[str, tuple[Severity, Severity, Severity]] = {
    "advised": (INFO, WARNING, WARNING),
    "scheduled": (INFO, WARNING, CRITICAL),
    "started": (INFO, CRITICAL, CRITICAL),
    "completed": (SUCCESS, SUCCESS, INFO),
    "cancelled": (SUCCESS, SUCCESS, SUCCESS),
    "vanished": (WARNING, WARNING, WARNING),
    "approved": (INFO, INFO, INFO),
    "hook_failed": (WARNING, CRITICAL, CRITICAL),
    "blind": (WARNING, WARNING, WARNING),
    "recovered": (SUCCESS, SUCCESS, SUCCESS),
}
_COLUMN = {"Freeze": 0, "Preempt": 2, "Terminate": 2}


def severity(transition: str, event_type: str = "", *, begun: bool = False) -> Severity:
    """Return the severity of a transition, or of a change of the watch.

    ``begun`` is whether the event has started, or is over: an update counts as the phase in which it came,
    and a hook that fails when there is nothing left to prepare for is a warning.
    """
    if transition == "updated":
        transition = "started" if begun else "scheduled"
    if transition == "hook_failed" and begun:
        return WARNING
    return _SCALE[transition][_COLUMN.get(event_type, 1)]
