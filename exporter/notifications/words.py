"""The sentences of a message: its headline and explanation."""

from datetime import UTC, datetime, timedelta

from exporter.model.events import REBALANCE, Target
from exporter.model.lifecycle import Transition
from exporter.model.messages import AnyMessage, Message, WatchChange, WatchMessage
from exporter.model.views import EventView
from exporter.model.wording import duration, effect, roughly

# A phone's lock screen shows about this much of a title.
TITLE_LENGTH = 60
_SHORTEST_NAME = 12
_NAMELESS = "this VM"
_ENDED = {
    Transition.COMPLETED: "The event is over: Azure no longer lists it.",
    Transition.CANCELLED: "Azure no longer plans the event. It did not start.",
    Transition.VANISHED: "Azure no longer lists the event. Its outcome was not seen; it may have happened.",
}


def headline(message: AnyMessage, now: datetime, room: int = TITLE_LENGTH) -> str:
    """Return the message in one line: ``Reboot scheduled: vm_0 at 22:15 UTC (15 min)``.

    With the severity it fits ``room``: the time left is omitted, and a long VM name shortened in its middle.
    """
    room -= len(f"[{message.severity}] ")
    if isinstance(message, WatchMessage):
        if message.transition is WatchChange.BLIND:
            what, when, left = "Blind: scheduled events of ", f" unknown for {_outage(message)}", ""
        else:
            what, when, left = "Recovered: scheduled events of ", " known again", ""
    else:
        what, (when, left) = _what(message), _when(message, now)
    name = _subject(message)
    if len(what) + len(name) + len(when) + len(left) > room:
        left = ""
    return f"{what}{_shortened(name, room - len(what) - len(when))}{when}{left}"


def _what(message: Message) -> str:
    event = message.event
    if message.transition is Transition.HOOK_FAILED:
        begun = event.since(Transition.STARTED) is not None
        phase = "after" if event.ended is not None else "during" if begun else "before"
        return f"Hook failed {phase} {event.type}: "
    return f"{event.type} {message.transition.value}: "


def _shortened(name: str, room: int) -> str:
    room = max(room, _SHORTEST_NAME)
    if len(name) <= room:
        return name
    # Names of one scale set differ at their ends.
    head = (room - 3) // 2
    return f"{name[:head]}...{name[head + 3 - room :]}"


def _subject(message: AnyMessage) -> str:
    own = message.instance or _NAMELESS
    if isinstance(message, WatchMessage):
        return message.host or own
    if message.event.target is Target.SELF:
        return own
    others = message.event.resources
    return f"other VM {others[0]}" if len(others) == 1 else f"{len(others)} other VMs"


def _when(message: Message, now: datetime) -> tuple[str, str]:
    """Return when the event happens or happened, and the time left."""
    event = message.event
    is_hook = message.transition is Transition.HOOK_FAILED
    if event.ended is not None and event.outcome is not message.transition and not is_hook:
        return f", over since {_clock(event.ended, now)}", ""
    if event.ended is not None or event.is_started:
        return f" at {_clock(message.at, now)}", ""
    if message.transition is Transition.APPROVED:
        return ", may start at any moment", ""
    if event.not_before is None:
        return ", start unknown" if event.not_before_unreadable else " at any moment", ""
    clock = _clock(event.not_before, now)
    if event.not_before <= now:
        return f", was due {clock}", ""
    return f" at {clock}", f" ({roughly(event.not_before - now)})"


def _clock(at: datetime, now: datetime) -> str:
    at = at.astimezone(UTC)
    day = "" if abs(at - now) < timedelta(hours=20) else f"{at.day} {at:%b} "
    return f"{day}{at:%H:%M} UTC"


def explanation(message: AnyMessage) -> str:
    """Return the consequences for the VMs, in one to three sentences."""
    if isinstance(message, WatchMessage):
        return _watch_explanation(message)
    event, transition = message.event, message.transition
    meaning = _meaning(event)
    if transition is Transition.HOOK_FAILED:
        meaning = f"A hook for this event failed: what it prepares or restores may not be done. {meaning}"
    if transition is Transition.ADVISED and event.type != REBALANCE:
        meaning = f"Azure lists the event as {event.status} and has not scheduled it. {meaning}"
    if transition is Transition.APPROVED:
        meaning = f"This exporter approved the event: Azure may start it before the planned time. {meaning}"
    if transition is Transition.COMPLETED and event.target is Target.SELF:
        meaning += _pause(event)
    if event.target is Target.OTHER:
        if event.ended is not None:
            return f"{meaning} This VM was not affected."
        return f"This VM is not affected. For those that are: {meaning}"
    if not message.instance:
        return f"{meaning} This VM's name is not known yet: the event may be another VM's."
    if not event.resources:
        return f"{meaning} Azure named no VM; it may be this one."
    return meaning


def _meaning(event: EventView) -> str:
    if event.changed_to:
        return f"Azure changed the type of the event from {event.type} to {event.changed_to}; it goes on."
    return _ENDED[event.outcome] if event.outcome in _ENDED else effect(event.type)


def _pause(event: EventView) -> str:
    """Return how long this VM was paused, which is shorter than the event is listed."""
    paused = event.paused_seconds
    if paused is None or paused < 1:
        return " The exporter observed no pause of a second or more." if event.type == "Freeze" else ""
    length = f"{paused:.1f} s" if paused < 60 else duration(paused)
    return f" The exporter observed a pause of {length} during the event."


def _watch_explanation(message: WatchMessage) -> str:
    if message.transition is WatchChange.BLIND:
        return (
            f"For {_outage(message)}, Azure's metadata service (IMDS) has given no valid answer about "
            "scheduled events. Until it does, nothing is reported about reboots and other events of this VM."
        )
    return (
        f"Azure's metadata service (IMDS) answers again, after {_outage(message)}. "
        "Events that began and ended meanwhile were not seen."
    )


def _outage(message: WatchMessage) -> str:
    return duration((message.at - message.since).total_seconds())
