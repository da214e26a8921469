"""What a template may use: the names, what each holds, and the filters."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from exporter.config.match import notice
from exporter.model.lifecycle import Change, Transition
from exporter.model.messages import Message, Severity
from exporter.model.severity import severity
from exporter.model.views import ApprovalView, EventView
from exporter.notifications import words
from exporter.notifications.styles import Style

NAMES: Mapping[str, str] = {
    "event": "the event, with the fields of the API's EVENT",
    "transition": "what happened, like scheduled",
    "instance": "this VM's name, or none while it is not known",
    "at": "when it happened",
    "now": "when the message is sent",
    "time_left": "whole seconds from now to NotBefore, 0 once it is blank, past or cannot be read",
    "severity": "info, success, warning or critical",
    "changes": "for updated: each change's field, old and new",
    "headline": "what happened, in a line",
    "explanation": "what that means, in a sentence or two",
    "facts": "the lines of our own message, each with label and text",
}
EVENT_FIELDS = EventView.__struct_fields__


def variables(message: Message, now: datetime, style: Style) -> dict[str, Any]:
    """Return the values of `NAMES` for a message as of ``now``; all text in it is safe in its format.

    ``time_left`` is in whole seconds; times are aware and in UTC.
    """
    shown = cleaned(message, style)
    return {
        "event": shown.event,
        "transition": message.transition,
        "instance": shown.instance,
        "at": message.at,
        "now": now,
        "time_left": round(notice(words.as_event(message.event), now) or 0),
        "severity": weight(message),
        "changes": shown.changes,
        "headline": words.headline(shown, now, style),
        "explanation": words.explanation(shown, style),
        "facts": words.facts(shown, now, style),
    }


def weight(message: Message) -> Severity:
    """Return a message's severity."""
    started = message.event.since(Transition.STARTED) is not None
    return severity(message.transition, message.event.type, started=started)


def cleaned(message: Message, style: Style) -> Message:
    """Return the message with every text from outside made safe in this style."""
    event = message.event
    return replace(
        message,
        instance=_optional(message.instance, style) or None,
        changes=tuple(_cleaned_change(change, style) for change in message.changes),
        event=replace(
            event,
            id=style.data(event.id, 100),
            ids=tuple(style.data(known, 100) for known in event.ids),
            type=style.data(event.type, 40),
            source=style.data(event.source, 40),
            status=style.data(event.status, 40),
            resources=tuple(style.data(name, 100) for name in event.resources),
            description=style.data(event.description),
            approval=ApprovalView(
                state=_optional(event.approval.state, style),
                rule=_optional(event.approval.rule, style),
                reason=_optional(event.approval.reason, style),
            ),
        ),
    )


def _optional(text: str | None, style: Style) -> str | None:
    return None if text is None else style.data(text)


def _cleaned_change(change: Change, style: Style) -> Change:
    old, new = (_typed(change.field, value) for value in (change.old, change.new))
    field = style.data(change.field, 40)
    return Change(field, _cleaned_value(old, style), _cleaned_value(new, style))


def _typed(field: str, value: object) -> object:
    """Return a time its type again: the outbox keeps it as JSON does."""
    if field != "not_before" or not isinstance(value, str):
        return value
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return value
    return found if found.tzinfo else value


def _cleaned_value(value: object, style: Style) -> Any:
    if value is None or isinstance(value, bool | int | float | datetime):
        return value
    if isinstance(value, list | tuple):
        return tuple(_cleaned_value(item, style) for item in value)
    return style.data(str(value), 200)
