"""The sentences of a message: its headline and explanation. Times are written in their own zone."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product

from exporter.model.events import EVENT_TYPES, REBALANCE, Affected
from exporter.model.lifecycle import Transition
from exporter.model.messages import AnyMessage, Message, WatchChange, WatchMessage
from exporter.model.views import EventView
from exporter.model.wording import duration, effect, roughly
from exporter.outputs.notifications.styles import TITLE, cleaned

TITLE_LENGTH = 60  # a phone's lock screen shows about this much of a title
_SHORTEST_NAME = 12
_SHORTEST_TYPE = 12
_NAMELESS = "this VM"
_ENDED = {
    Transition.COMPLETED: "The event is over: Azure no longer lists it.",
    Transition.CANCELLED: "Azure cancelled the event. It did not start.",
    Transition.VANISHED: "Azure no longer lists the event. Its outcome was not seen; it may have happened.",
}
# The same where this VM is not, or no more, among those that the event is for.
_LEFT = {
    Transition.COMPLETED: "The event is over for this VM: Azure lists it for other VMs only.",
    Transition.CANCELLED: "The event is not for this VM: Azure lists it for other VMs only.",
    Transition.VANISHED: "The event is for a VM with another name than this VM has now. "
    "If instance.name is wrong, correct it.",
}
# What the title says of a field that changed.
_CHANGED = {"duration_seconds": "impact", "resources": "VMs", "description": "description"}
_URGENT = timedelta(hours=1)  # in a title, a shorter time left is worth more than the time of day


def headline(message: AnyMessage, now: datetime, room: int = TITLE_LENGTH) -> str:
    """Return the message in one line: ``Reboot scheduled: vm_0 at 22:15 UTC (15 min)``.

    With the severity it fits ``room``. If necessary, it has only one of the time of day and the time left
    (the latter if that is less than an hour), and a long VM name is shortened in its middle.
    """
    # Not in a style with escapes: shortening could part an escape from its character.
    message = cleaned(message, TITLE, now.tzinfo or UTC)
    room -= len(f"[{message.severity}] ")
    if isinstance(message, WatchMessage):
        begins, ends = _of_watch(message)
    else:
        begins, ends = list(_begins(message)), _ends(message, now)
    name = _subject(message)
    # A shorter word for what changed leaves room for the time; without the time, it is still worth more.
    for some in (begins[:-1], begins[-1:]):
        for begin, end in sorted(product(some, ends), key=lambda pair: not pair[1]):
            if len(begin) + len(name) + len(end) <= room:
                return f"{begin}{name}{end}"
    for begin in begins:
        left = room - len(begin) - len(ends[-1])
        if left >= _SHORTEST_NAME:
            return f"{begin}{_shortened(name, left)}{ends[-1]}"
    return _shortened(f"{begins[-1]}{_shortened(name, _SHORTEST_NAME)}{ends[-1]}", room)


def _of_watch(message: WatchMessage) -> tuple[Sequence[str], Sequence[str]]:
    if message.transition is WatchChange.BLIND:
        return ["Blind: events of "], [f" unknown for {_outage(message)}", " unknown"]
    return ["Recovered: events of "], [" known again"]


def _begins(message: Message) -> Iterator[str]:
    """Yield what stands before the VM's name, from the longest form."""
    kind = message.event.type
    yield from _what(message, kind)
    if kind not in EVENT_TYPES and len(kind) > _SHORTEST_TYPE:
        yield from _what(message, _shortened(kind, _SHORTEST_TYPE))


def _what(message: Message, kind: str) -> Iterator[str]:
    event, transition = message.event, message.transition
    if transition is Transition.HOOK_FAILED:
        begun = event.since(Transition.STARTED) is not None
        phase = "after" if event.ended is not None else "during" if begun else "before"
        yield f"Hook failed {phase} {kind}: "
        yield f"{kind} hook failed: "
        return
    if transition is Transition.VANISHED:
        yield f"{kind} vanished, outcome unknown: "
    elif transition is Transition.CANCELLED and event.changed_to:
        yield f"{kind} cancelled, became {_shortened(event.changed_to, _SHORTEST_TYPE)}: "
    elif transition is Transition.UPDATED:
        yield from (f"{kind} updated, {change}: " for change in _changes(message))
    yield f"{kind} {transition.value}: "


def _changes(message: Message) -> Iterator[str]:
    """Yield what an update changed, from the longest form: by how much the start moved, or else what."""
    by_field = {change.field: change for change in message.changes}
    if (start := by_field.get("not_before")) is not None:
        if isinstance(start.old, datetime) and isinstance(start.new, datetime):
            moved = start.new - start.old
            is_later, by = moved > timedelta(0), roughly(abs(moved))
            yield f"{'postponed' if is_later else 'moved up'} {by}"
            yield f"{by} {'later' if is_later else 'earlier'}"
        else:
            yield "start known" if isinstance(start.new, datetime) else "start unknown"
    elif names := [name for field, name in _CHANGED.items() if field in by_field]:
        yield f"{', '.join(names)} changed"


def _shortened(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    # Names of one scale set differ at their ends.
    head = (room - 3) // 2
    return f"{text[:head]}...{text[head + 3 - room :]}"


def _subject(message: AnyMessage) -> str:
    own = message.instance or _NAMELESS
    if isinstance(message, WatchMessage):
        return message.host or own
    if message.event.target is Affected.SELF:
        return own
    others = message.event.resources
    return f"other VM {others[0]}" if len(others) == 1 else f"{len(others)} other VMs"


def _ends(message: Message, now: datetime) -> Sequence[str]:
    """Return what stands after the VM's name, from the longest form: when, and how far off that is."""
    event = message.event
    is_hook = message.transition is Transition.HOOK_FAILED
    if event.ended is not None and event.outcome is not message.transition and not is_hook:
        return [f", over since {_clock(event.ended, now)}"]
    if event.ended is not None or event.is_started:
        is_outcome = message.transition is Transition.VANISHED or event.changed_to
        return ["" if is_outcome else _at(message.at, now), ""]
    if message.transition is Transition.APPROVED:
        return [", may start at any moment", ", may start now"]
    return _start(message, now)


def _start(message: Message, now: datetime) -> Sequence[str]:
    event = message.event
    if event.type == REBALANCE:
        # A recommendation starts nothing, and its type takes most of the room.
        return [""]
    if event.not_before is None:
        return [", start unknown" if event.not_before_unreadable else " at any moment", ""]
    if event.not_before <= now:
        return [f", was due {_clock(event.not_before, now)}"]
    at, left = _at(event.not_before, now), event.not_before - now
    if left < _URGENT:
        return [f"{at} ({roughly(left)})", f" in {roughly(left)}"]
    # Of an update, what changed is worth more than a time far ahead.
    return [f"{at} ({roughly(left)})", at, *([""] if message.transition is Transition.UPDATED else [])]


def _at(at: datetime, now: datetime) -> str:
    """Return a time of day, ``" at 22:15 UTC"``, or with the date of another day, ``", 5 Mar 22:15 UTC"``."""
    return f"{', ' if _is_far(at, now) else ' at '}{_clock(at, now)}"


def _clock(at: datetime, now: datetime) -> str:
    day = f"{at.day} {at:%b} " if _is_far(at, now) else ""
    return f"{day}{at:%H:%M %Z}"


def _is_far(at: datetime, now: datetime) -> bool:
    """Return whether a time of day alone could be taken for that of another day."""
    return abs(at - now) >= timedelta(hours=20)


def explanation(message: AnyMessage) -> str:
    """Return the consequences for the VMs, in one to three sentences."""
    if isinstance(message, WatchMessage):
        return _watch_explanation(message)
    event, meaning = message.event, _meaning(message)
    if event.target is Affected.OTHER:
        if event.ended is not None:
            return f"{meaning} This VM was not affected."
        return f"This VM is not affected. For those that are: {meaning}"
    if not message.instance:
        return f"{meaning} This VM's name is not known yet: the event may be another VM's."
    if not event.resources:
        return f"{meaning} Azure named no VM; it may be this one."
    return meaning


def _meaning(message: Message) -> str:
    """Return the consequences for a VM that the event affects."""
    event, transition = message.event, message.transition
    ended = _LEFT if event.left else _ENDED
    meaning = ended[event.outcome] if event.outcome in ended else effect(event.type)
    if event.changed_to:
        meaning = (
            f"Azure changed the type of the event from {event.type} to {event.changed_to}. "
            f"A new message about the {event.changed_to} follows, if this target gets those."
        )
    if transition is Transition.HOOK_FAILED:
        lack = "back in service" if event.ended is not None else "prepared"
        return f"A hook failed; the VM may not be {lack}. {meaning}"
    if transition is Transition.APPROVED:
        return f"This exporter approved the event: Azure may start it before the planned time. {meaning}"
    if transition is Transition.ADVISED and event.type != REBALANCE and event.outcome is None:
        return _if_scheduled(event.type, meaning)
    if transition is Transition.STARTED and _is_sudden(event):
        return f"{meaning} Azure gave no notice."
    if transition is Transition.COMPLETED and event.target is Affected.SELF:
        return meaning + _pause(event)
    return meaning


def _if_scheduled(event_type: str, meaning: str) -> str:
    if event_type not in EVENT_TYPES:
        return f"Not scheduled yet. {meaning}"
    first, _, rest = meaning.partition(" ")
    return f"Not scheduled yet; if it is, {first if first == 'Azure' else first.lower()} {rest}"


def _is_sudden(event: EventView) -> bool:
    """Return whether the exporter watched the start, and Azure had not announced the event before."""
    announced = (Transition.SCHEDULED, Transition.ADVISED)
    return event.started is not None and all(event.since(transition) is None for transition in announced)


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
