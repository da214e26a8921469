"""The variables of templates; docs/notifications.md describes each."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from exporter.model.events import Target
from exporter.model.lifecycle import Change
from exporter.model.messages import AnyMessage, Message
from exporter.model.views import ApprovalView
from exporter.notifications import words
from exporter.notifications.styles import Style
from exporter.notifications.words import Fact

NAMES = (
    "event",
    "transition",
    "instance",
    "vm",
    "at",
    "now",
    "time_left",
    "severity",
    "changes",
    "detail",
    "headline",
    "explanation",
    "facts",
)


class Vm(msgspec.Struct, frozen=True):
    """The variable ``vm``: facts about this VM, "" where unknown; URLs are safe in every format."""

    resource_group: str
    subscription_id: str
    location: str
    zone: str
    scale_set: str
    size: str
    id: str
    resource_id: str
    portal_url: str
    exporter_url: str


def variables(message: AnyMessage, now: datetime, style: Style, exporter_url: str = "") -> dict[str, Any]:
    """Return the values of `NAMES` for a message as of ``now``; all text in it is safe in its format.

    A message about the watch has no ``event``, ``changes``, ``detail`` and ``time_left``. ``time_left`` is in
    whole seconds; times are aware and in UTC.
    """
    shown = cleaned(message, style)
    vm = _vm(shown, message.vm.portal_url, exporter_url)
    found: dict[str, Any] = {
        "transition": message.transition,
        "instance": shown.instance,
        "vm": vm,
        "at": message.at,
        "now": now,
        "severity": message.severity,
        "headline": words.headline(shown, now),
        "explanation": words.explanation(shown),
        "facts": [*words.facts(shown, now), *_place(shown, vm, style)],
    }
    if isinstance(shown, Message):
        start = shown.event.not_before
        left = max(0.0, (start - now).total_seconds()) if start else 0.0
        found |= {"event": shown.event, "changes": shown.changes, "detail": shown.detail}
        found["time_left"] = round(left)
    return found


def cleaned(message: AnyMessage, style: Style) -> AnyMessage:
    """Return the message with every text from outside made safe in this style."""
    instance = _optional(message.instance, style) or None
    vm = replace(message.vm, **{name: style.data(text, 300) for name, text in asdict(message.vm).items()})
    if not isinstance(message, Message):
        return replace(message, instance=instance, vm=vm, error=style.data(message.error))
    event = message.event
    return replace(
        message,
        instance=instance,
        vm=vm,
        changes=tuple(_cleaned_change(change, style) for change in message.changes),
        detail=style.data(message.detail),
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


def _vm(message: AnyMessage, portal_url: str, exporter_url: str) -> Vm:
    vm = message.vm
    return Vm(
        resource_group=vm.resource_group,
        subscription_id=vm.subscription_id,
        location=vm.location,
        zone=vm.zone,
        scale_set=vm.scale_set,
        size=vm.size,
        id=vm.vm_id,
        resource_id=vm.resource_id,
        portal_url=portal_url,
        exporter_url=exporter_url,
    )


def _place(message: AnyMessage, vm: Vm, style: Style) -> list[Fact]:
    """Return the lines on where this VM is, if it is concerned, and where to look."""
    zone = f", zone {vm.zone}" if vm.zone else ""
    place = (
        ("Resource group", vm.resource_group),
        ("Location", vm.location and f"{vm.location}{zone}"),
        ("Scale set", vm.scale_set),
        ("VM size", vm.size),
        ("Azure portal", vm.portal_url and style.link(vm.portal_url)),
    )
    concerned = not isinstance(message, Message) or message.event.target is Target.SELF
    exporter = ("Exporter", vm.exporter_url and style.link(vm.exporter_url))
    return [Fact(label, text) for label, text in (*(place if concerned else ()), exporter) if text]


def _optional(text: str | None, style: Style) -> str | None:
    return None if text is None else style.data(text)


def _cleaned_change(change: Change, style: Style) -> Change:
    old, new = (_cleaned_value(value, style) for value in (change.old, change.new))
    return Change(style.data(change.field, 40), old, new)


def _cleaned_value(value: object, style: Style) -> Any:
    if value is None or isinstance(value, bool | int | float | datetime):
        return value
    if isinstance(value, list | tuple):
        return tuple(_cleaned_value(item, style) for item in value)
    return style.data(str(value), 200)
