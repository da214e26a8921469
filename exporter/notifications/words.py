"""The words of a message; `exporter.model.wording` has those that the page uses, too."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from exporter.model import wording as page
from exporter.model.events import STARTED, ScheduledEvent, Target, normal_name
from exporter.model.lifecycle import ENDINGS, Change, Transition
from exporter.model.messages import Message
from exporter.model.views import EventView
from exporter.notifications.samples import is_sample
from exporter.notifications.spans import UNKNOWN, duration, relative, utc
from exporter.notifications.styles import Style

VMS_SHOWN = 10
_FIELDS = {"not_before": "starts", "duration_seconds": "lasts", "resources": "VMs", "description": "text"}


class Fact(NamedTuple):
    """One line of a message: ``When: ...``."""

    label: str
    text: str


def as_event(view: EventView) -> ScheduledEvent:
    """Return what Azure said of an event, for the functions that take that."""
    return ScheduledEvent(
        event_id=view.id,
        event_type=view.type,
        event_status=view.status,
        resources=view.resources,
        not_before=view.not_before,
        duration_seconds=view.duration_seconds,
        description=view.description,
        event_source=view.source,
        doubts=view.doubts,
    )


def headline(message: Message, now: datetime, style: Style) -> str:
    """Return the message in one line: ``Reboot scheduled: vm_0 in 14 minutes``."""
    event, transition = message.event, message.transition
    tail = _tail(message, now)
    form = "{} {}: {}{}{}" if message.event.target is Target.SELF else "{} {} for another VM: {}{}{}"
    if event.target is Target.OTHER and len(event.resources) > 1:
        form = "{} {} for other VMs: {}{}{}"
    test = " (test)" if is_sample(event) else ""
    return style.phrase(form, event.type, transition.value, _subject(message, style), tail, test)


def explanation(message: Message, style: Style) -> str:
    """Return what it means for whom, in one to three sentences."""
    event = message.event
    meaning = _END_WORDS.get(message.transition) or page.effect(as_event(event))
    if message.transition is Transition.APPROVED:
        meaning = f"This exporter told Azure to go ahead. {meaning}"
    if event.target is Target.OTHER:
        ended = message.transition in ENDINGS
        form = (
            "{} This VM only saw it."
            if ended
            else "This VM is not affected; it only saw the event. For those affected: {}"
        )
        return style.phrase(form, meaning)
    if message.instance is None:
        return style.phrase("{} This VM's name is not known yet: the event may be another VM's.", meaning)
    if not event.resources:
        return style.phrase("{} Azure named no VM; it may be this one.", meaning)
    return style.phrase("{}", meaning)


_END_WORDS = {
    Transition.COMPLETED: "Completed: it is over.",
    Transition.CANCELLED: "Cancelled: Azure no longer plans it for this VM; it did not start.",
    Transition.VANISHED: "Vanished: Azure no longer lists it. Its end was not seen; it may have happened.",
}


def facts(message: Message, now: datetime, style: Style) -> list[Fact]:
    """Return the lines of the body, the most urgent first."""
    event = message.event
    lines = [
        Fact("This VM", style.code(message.instance) if message.instance else "name not known yet"),
        *(Fact("Changed", change_words(change, style)) for change in message.changes),
        *_moments(message, now),
    ]
    if message.transition not in ENDINGS:
        lines.append(Fact("Lasts", page.expected_duration(as_event(event))))
    lines.append(Fact("Asked for by", style.phrase("{}", page.source(as_event(event)))))
    others = _others(message)
    if others:
        label = "VMs" if event.target is Target.OTHER or message.instance is None else "Other VMs"
        lines.append(Fact(label, names(others, style)))
    if event.description:
        lines.append(Fact("Azure says", style.code(event.description)))
    lines.append(Fact("Event", style.phrase("{} {}", event.type, style.code(event.id))))
    return lines


def names(resources: Sequence[str], style: Style, most: int = VMS_SHOWN) -> str:
    """Enumerate VMs, the first ``most`` by name, the rest by number."""
    shown = style.join([style.code(name) for name in resources[:most]])
    hidden = len(resources) - most
    return style.phrase("{} and {} more", shown, hidden) if hidden > 0 else shown


def change_words(change: Change, style: Style) -> str:
    """Return what changed: ``starts 22:15 -> 22:30``."""
    label = _FIELDS.get(change.field, change.field)
    old, new = _value(change.field, change.old, style), _value(change.field, change.new, style)
    return style.phrase("{} {} {} {}", label, old, "->", new)


def _value(field: str, value: object, style: Style) -> str:
    if field == "duration_seconds" and isinstance(value, int | float):
        return duration(value)
    if field == "not_before":
        return utc(value) if isinstance(value, datetime) or value is None else style.code(value)
    if isinstance(value, list | tuple):
        return names([str(item) if not isinstance(item, str) else item for item in value], style) or "none"
    if value is None:
        return UNKNOWN
    return style.code(value) or "none"


def _tail(message: Message, now: datetime) -> str:
    event, transition = message.event, message.transition
    if transition is Transition.COMPLETED and event.impact_seconds is not None:
        return f" after {page.length(event.impact_seconds)}"
    if transition in ENDINGS:
        return ", outcome unknown" if transition is Transition.VANISHED else ""
    if event.status == STARTED:
        return f", about {page.length(event.duration_seconds)}" if event.duration_seconds else ""
    if event.not_before is None:
        return " at an unknown time" if as_event(event).not_before_unreadable else " at any moment"
    due = relative(event.not_before, now)
    if event.not_before <= now:
        return f", due {due}"
    return f" now {due}" if transition is Transition.UPDATED else f" {due}"


def _subject(message: Message, style: Style) -> str:
    event = message.event
    if event.target is Target.OTHER and event.resources:
        return names(event.resources, style, most=2)
    return style.code(message.instance) if message.instance else "this VM (name not known yet)"


def _others(message: Message) -> list[str]:
    own = normal_name(message.instance or "")
    return [name for name in message.event.resources if not own or normal_name(name) != own]


def _moments(message: Message, now: datetime) -> Iterator[Fact]:
    event, transition = message.event, message.transition
    if transition in ENDINGS:
        yield from _past(event, now)
    elif event.started is not None:
        yield Fact("Started", _moment(event.started, now))
    elif event.status == STARTED:
        yield Fact("Started", f"already under way at {utc(event.since(Transition.STARTED) or message.at)}")
    elif as_event(event).not_before_unreadable:
        yield Fact("When", "unknown; Azure's time could not be read")
    elif event.not_before is None:
        yield Fact("When", "at any moment; Azure gives no time")
    else:
        limits = "at the earliest" if event.not_before > now else "so it may start at any moment"
        yield Fact("When", f"{_moment(event.not_before, now)}, {limits}")


def _past(event: EventView, now: datetime) -> Iterator[Fact]:
    noticed = event.since(Transition.STARTED)
    if event.started is not None:
        yield Fact("Started", _moment(event.started, now))
    elif noticed is not None:
        yield Fact("Started", f"already under way at {utc(noticed)}")
    elif event.not_before is not None:
        yield Fact("Was due", utc(event.not_before))
    if event.ended is not None:
        yield Fact("Gone", _moment(event.ended, now))
    if event.impact_seconds is not None:
        yield Fact("Took", f"{page.length(event.impact_seconds)} from started to gone")
    elif noticed is not None:
        yield Fact("Took", "unknown; its start or its end was not observed")
    elif event.ended is not None and event.first_seen is not None:
        known = page.length(max(0.0, (event.ended - event.first_seen).total_seconds()))
        yield Fact("Took", f"never seen to start; listed for {known}")


def _moment(at: datetime, now: datetime) -> str:
    return f"{utc(at)}, {relative(at, now)}"
