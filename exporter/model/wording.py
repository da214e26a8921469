"""Plain words for messages and the page: what an event does, when, for how long, and how it ended."""

from datetime import datetime

from exporter.model.events import SCHEDULED, STARTED, ScheduledEvent
from exporter.model.lifecycle import TrackedEvent, Transition
from exporter.model.views import ApprovalView

# After Azure's pages on Scheduled Events, "Event type" and "Expected events".
_EFFECTS = {
    "Freeze": "The VM pauses {pause}; memory, disks and connections survive.",
    "Reboot": "The VM restarts. What is in memory is lost; its disks stay.",
    "Redeploy": "The VM restarts on another host. What is in memory and on temporary disks is lost.",
    "Preempt": "Azure takes this Spot VM back: it is stopped or deleted, and its temporary disks are lost.",
    "Terminate": "The VM is deleted.",
}
_UNKNOWN_EFFECT = "This exporter does not know this type of event; Azure's documentation will."

_SOURCES = {"Platform": "Azure itself (Platform)", "User": "a user of the subscription (User)"}

_OUTCOMES: dict[Transition, str] = {
    Transition.COMPLETED: "Completed",
    Transition.CANCELLED: "Cancelled before it started",
    Transition.VANISHED: "Gone unseen; outcome not known",
}


def span(seconds: float) -> str:
    """Return how long, in the two largest units: ``45 s``, ``12 min 5 s``, ``3 h 12 min``, ``2 days 3 h``.

    The page's script says it in the same words, so that nothing jumps when it takes over.
    """
    left = max(0, int(seconds))
    minutes, s = divmod(left, 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days} {'day' if days == 1 else 'days'} {h} h"
    if hours:
        return f"{h} h {m} min"
    return f"{m} min {s} s" if minutes else f"{s} s"


def brief(seconds: float) -> str:
    """Return how long, in the largest unit only."""
    words = span(seconds).split()
    return " ".join(words[:2])


def length(seconds: float) -> str:
    """Return how long something lasts that does not tick: as `span`, without a zero at the end."""
    if seconds < 120:
        return count(int(seconds), "second")
    number, unit, *rest = span(seconds).split()
    return f"{number} {unit}" if rest and rest[0] == "0" else span(seconds)


def effect(event: ScheduledEvent) -> str:
    """Return what the event does to a VM."""
    seconds = event.duration_seconds
    pause = f"for about {length(seconds)}" if seconds else "for a moment"
    return _EFFECTS.get(event.event_type, _UNKNOWN_EFFECT).format(pause=pause)


def expected_duration(event: ScheduledEvent) -> str:
    """Return how long Azure expects the interruption to last."""
    seconds = event.duration_seconds
    if seconds is None:
        return "not known"
    return f"about {length(seconds)}" if seconds else "no interruption expected"


def source(event: ScheduledEvent) -> str:
    """Return who asked for the event."""
    return _SOURCES.get(event.event_source, event.event_source or "not said")


def outcome(tracked: TrackedEvent) -> str:
    """Return how an event ended."""
    return _OUTCOMES[tracked.outcome] if tracked.outcome else "Gone"


def gist(event: ScheduledEvent, now: datetime) -> str:
    """Return in a few words what comes and when: ``Reboot in 12 min``."""
    if event.event_status == STARTED:
        return f"{event.event_type} under way"
    if event.event_status != SCHEDULED or event.not_before is None:
        return f"{event.event_type} {event.event_status.lower()}"
    left = (event.not_before - now).total_seconds()
    return f"{event.event_type} in {brief(left)}" if left > 0 else f"{event.event_type} any moment now"


def count(number: int, noun: str) -> str:
    """Put a number before its noun: ``1 event``, ``2 events``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_STANDS = {
    "hold": "Held",
    "waiting": "Waits",
    "limited": "Held by the limit",
    "due": "Being approved",
    "dry_run": "Would be approved (dry run)",
    "approved": "Approved",
    "failed": "Approving fails",
}


def approval(view: ApprovalView) -> str:
    """Return how approving stands: ``Held (rule no-reboots): the rule holds it``."""
    stand = _STANDS.get(view.state or "", view.state or "")
    rule = f" (rule {view.rule})" if view.rule else ""
    return f"{stand}{rule}: {view.reason}"
