"""What Azure's descriptions of events mean, for people only: no decision depends on them.

The words are those of Azure's page on Scheduled Events ("Event properties", "Description") and of events in
the field. Azure does not promise them: any other text is shown without a cause.
"""

from datetime import timedelta

from exporter.model.lifecycle import Transition
from exporter.model.views import EventView

# Routine maintenance is announced minutes ahead, a predicted failure of hardware up to seven days.
_EARLY = timedelta(days=1)
_PREDICTED = (
    "So much notice usually means that Azure expects the host's hardware to fail. Move the VM before that, "
    "at a time of your choice: redeploy it (az vm redeploy), or approve the event at a quiet time."
)
# What is going on, and what helps until the event starts.
_MIGRATION = (
    "Azure moves the running VM to another host.",
    "If a pause is harmful, suspend automatic failover meanwhile, or approve the event at a quiet time.",
)
_MAINTENANCE = (
    "Azure maintains the host.",
    "After an approval it starts earlier, at a time of your choice.",
)
_FAILURE = ("The host has failed or has to be repaired at once.", "Be ready to move the workload elsewhere.")
_REQUEST = (
    "A user with rights on the VM requested it; the activity log in Azure's portal shows who.",
    "After an approval it starts at once.",
)
# By a part of the description, in lower case. The first that occurs counts.
_KNOWN = (
    ("live migration", _MIGRATION),
    ("requested by authorized user", _REQUEST),
    ("requested by an authorized user", _REQUEST),
    ("emergency repair", _FAILURE),
    ("failing hardware", _FAILURE),
    ("hardware failure", _FAILURE),
    ("its host has failed", _FAILURE),
    ("virtual machine has encountered a failure", _FAILURE),
    ("host maintenance", _MAINTENANCE),
    ("maintenance of its host", _MAINTENANCE),
    ("host server is undergoing maintenance", _MAINTENANCE),
)


def cause(event: EventView) -> str:
    """Return in one line why an event comes and what helps; "" if that is not known, or it is over."""
    if event.ended is not None:
        return ""
    if _is_predicted(event):
        return _PREDICTED
    described = event.description.lower()
    for part, (reason, remedy) in _KNOWN:
        if part in described:
            is_open = event.is_scheduled and event.since(Transition.APPROVED) is None
            return f"{reason} {remedy}" if is_open else reason
    return ""


def _is_predicted(event: EventView) -> bool:
    """Return whether Azure announced more than a day ahead what nobody asked for."""
    if event.not_before is None or event.first_seen is None or not event.is_scheduled:
        return False
    is_repair = event.source == "Platform" and event.type not in ("Preempt", "Terminate")
    return is_repair and event.not_before - event.first_seen > _EARLY
