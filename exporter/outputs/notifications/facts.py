"""The facts of a message, a line each."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from exporter.model.causes import cause
from exporter.model.events import Affected, normal_name
from exporter.model.lifecycle import Change, Transition
from exporter.model.messages import AnyMessage, Message, WatchChange, WatchMessage
from exporter.model.views import EventView
from exporter.model.wording import command_line, duration, impact, names, relative, requester, runbook, stamp
from exporter.outputs.notifications.styles import Style

_NO_NAME = "name not known yet"
_FIELDS = {
    "not_before": "start",
    "duration_seconds": "impact",
    "resources": "VMs",
    "description": "description",
}
_PROGRAM = "azure-scheduled-events-exporter"
_PROJECT = f"https://github.com/{_PROGRAM}/{_PROGRAM}"
_RUNBOOK_OF = {
    "started": "ScheduledEventStarted",
    "hook_failed": "ScheduledEventHookFailed",
    "blind": "ScheduledEventsBlind",
}
_VANISHED = f"{_PROJECT}/blob/main/docs/events.md#gone-outcome-unknown"
# What shows whether an event happened whose start was not seen. A VM that still runs was neither evicted nor
# deleted.
_CHECK = "whether the VM restarted (uptime, on Windows systeminfo)"
_CHECKS = {
    "Freeze": "whether the workload noticed a pause of the VM",
    "Redeploy": f"{_CHECK}, and whether its ephemeral disks are empty",
    "Preempt": "",
    "Terminate": "",
}
# The states of an approval in which the event waits for a person or for NotBefore.
_WAITS = ("hold", "limited", "failed")


class Fact(NamedTuple):
    """One line of a message: ``Starts: ...``; ``url`` is that of a link."""

    label: str
    text: str
    url: str = ""


def facts(
    message: AnyMessage,
    now: datetime,
    style: Style,
    *,
    portal_url: str = "",
    exporter_url: str = "",
    runbook_url: str = "",
) -> list[Fact]:
    """Return the lines of the body, the most urgent first; ``style`` writes the links."""
    if isinstance(message, WatchMessage):
        lines, is_concerned = _watch_facts(message, now), True
    else:
        lines, is_concerned = _event_facts(message, now), message.event.target is Affected.SELF
    vm = message.vm
    place = [
        Fact("Resource group", vm.resource_group),
        Fact("Location", vm.location and f"{vm.location}{vm.zone and f', zone {vm.zone}'}"),
        Fact("Scale set", vm.scale_set),
        Fact("VM size", vm.size),
        Fact("Tags", ", ".join(f"{name}: {value}" for name, value in vm.tags.items() if value)),
        _link("Azure portal", portal_url, style),
    ]
    links = [_link("Exporter", exporter_url, style), _link("Runbook", _runbook(message, runbook_url), style)]
    return [fact for fact in [*lines, *(place if is_concerned else []), *links] if fact.text]


def _link(label: str, url: str, style: Style) -> Fact:
    return Fact(label, url and style.link(url), url)


def _runbook(message: AnyMessage, own_url: str) -> str:
    """Return the page about what to do; "" if there is nothing to do."""
    is_pending = (
        isinstance(message, Message) and message.event.ended is None and message.event.target is Affected.SELF
    )
    if message.transition is Transition.VANISHED:
        return _VANISHED
    default = "ScheduledEventPending" if is_pending else ""
    name = _RUNBOOK_OF.get(message.transition.value, default)
    return runbook(name, own_url) if name else ""


def _whom(message: AnyMessage) -> Iterator[Fact]:
    is_concerned = isinstance(message, WatchMessage) or message.event.target is Affected.SELF
    yield Fact("This VM" if is_concerned else "Seen by", message.instance or _NO_NAME)
    if isinstance(message, WatchMessage):
        yield Fact("Host name", message.host)
    if message.vm.computer_name != message.instance:
        yield Fact("Computer name", message.vm.computer_name)
    if message.vm.node != message.vm.computer_name:
        yield Fact("Node", message.vm.node)


def _event_facts(message: Message, now: datetime) -> Iterator[Fact]:
    event, own = message.event, normal_name(message.instance or "")
    yield from _whom(message)
    if message.transition is Transition.ADVISED:
        yield Fact("Status", event.status)
    yield Fact("Reason", message.detail)
    if message.transition is Transition.VANISHED and event.target is Affected.SELF:
        yield Fact("To check", _CHECKS.get(event.type, _CHECK))
    for change in message.changes:
        yield Fact("Changed", _change(change))
    yield from _coming(message, now) if event.ended is None else _ending(event, event.ended, now)
    yield Fact("Cause", cause(event))
    yield from _approval(event)
    yield Fact("Requested by", requester(event.source))
    label = "Other VMs" if message.instance and event.target is Affected.SELF else "VMs"
    yield Fact(label, names([name for name in event.resources if normal_name(name) != own]))
    yield Fact("Description", event.description)
    yield Fact("Event", f"{event.type} {event.id}")


def _approval(event: EventView) -> Iterator[Fact]:
    """Yield what approved an event, or how to approve one that waits for it.

    An event that a user requested waits for it, whatever the configuration.
    """
    pending = event.ended is None and event.is_scheduled and event.target is Affected.SELF
    state, rule, reason = event.approval.state, event.approval.rule, event.approval.reason
    if state == "approved" and rule:
        yield Fact("Approved by", f"rule {rule}")
    if pending and (state in _WAITS or (state is None and event.source == "User")):
        yield Fact("Approval", f"on hold: {reason}" if reason else "")
        yield Fact("To start it now", command_line(_PROGRAM, "approve", event.id))


def _watch_facts(message: WatchMessage, now: datetime) -> Iterator[Fact]:
    yield from _whom(message)
    label = "No valid answer since" if message.never else "Last valid answer"
    yield Fact(label, _moment(message.since, now))
    if message.transition is WatchChange.RECOVERED:
        yield Fact("Recovered", _moment(message.at, now))
    yield Fact("Last error", message.error)


def _coming(message: Message, now: datetime) -> Iterator[Fact]:
    event = message.event
    if event.started is not None or event.is_started:
        yield _started(event, now, message.at)
    elif event.not_before_unreadable:
        yield Fact("Starts", "unknown; Azure's time could not be read")
    elif event.not_before is None:
        yield Fact("Starts", "at any moment; Azure gives no time")
    elif event.not_before > now:
        planned = _moment(event.not_before, now)
        approved = message.transition is Transition.APPROVED
        yield Fact("Starts", f"any moment now (planned: {planned})" if approved else f"not before {planned}")
    else:
        yield Fact("Starts", f"at any moment; was due {_moment(event.not_before, now)}")
    # Events that remove the VM have no duration.
    if event.duration_seconds is not None or event.type not in ("Preempt", "Terminate"):
        yield Fact("Expected impact", impact(event.duration_seconds))


def _started(event: EventView, now: datetime, seen: datetime | None) -> Fact:
    """Return when the event started, or when that was first known if it was not observed."""
    if event.started is not None:
        return Fact("Started", _moment(event.started, now))
    return Fact("Started", f"already under way at {stamp(event.since(Transition.STARTED) or seen)}")


def _ending(event: EventView, ended: datetime, now: datetime) -> Iterator[Fact]:
    yield Fact("Changed to", event.changed_to or "")
    if event.started is not None or event.since(Transition.STARTED) is not None:
        yield _started(event, now, None)
    elif event.not_before is not None:
        yield Fact("Was due", stamp(event.not_before))
    if event.impact_seconds is not None:
        yield Fact("Ended", f"{_moment(ended, now)}, {duration(event.impact_seconds)} after it started")
    elif event.started is not None or event.outcome is Transition.VANISHED:
        yield Fact("Ended", f"{stamp(ended)} or before")
    else:
        yield Fact("Ended", f"{stamp(ended)} or shortly before")


def _change(change: Change) -> str:
    """Return what changed: ``start 22:15 -> 22:30``."""
    label = _FIELDS.get(change.field, change.field)
    return f"{label} {_value(change.field, change.old)} -> {_value(change.field, change.new)}"


def _value(field: str, value: object) -> str:
    if field == "duration_seconds" and (value is None or isinstance(value, int)):
        return impact(value)
    if value is None or isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, list | tuple):
        return names(value) or "none"
    return f'"{value}"' if value else "none"


def _moment(at: datetime, now: datetime) -> str:
    return f"{stamp(at)}, {relative(at, now)}"
