"""Spans of events, messages, approvals and hooks, built without I/O and without OpenTelemetry's SDK.

Ids are deterministic. The trace id is derived from the EventId, so that all VMs share a trace; a span id from
the VM, the event and what the span describes, so that it is the same after a restart, and children can refer
to their parents. (W3C Trace Context, "traceparent header": 16 bytes and 8 bytes, not all zero.)
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal

from exporter.model.events import SCHEDULED, STARTED, trace_id
from exporter.model.jobs import CommandResult, HookOutcome, Job
from exporter.model.lifecycle import ENDINGS, Change, Life, Occurrence, Transition, TransitionRecord
from exporter.model.messages import Message, Outcome
from exporter.model.telemetry import Attribute, Span, SpanEvent
from exporter.model.views import EventView, event_view
from exporter.timefmt import rfc3339

# The names under it are documented in docs/traces.md.
PREFIX = "azure.scheduled_event."

_ROOT = "root"
# Transitions within a life that are not the edge of a phase.
_SPAN_EVENTS = (Transition.UPDATED, Transition.IMMINENT, Transition.HOOK_FAILED)


def is_sampled(event_id: str, share: float) -> bool:
    """Return whether an event's trace is one of a share of all: every VM decides alike.

    By the rule of the SDK's `TraceIdRatioBased`, which is what collectors expect of ``traceidratio``.
    """
    return int(trace_id(event_id)[16:], 16) < round(share * 2**64)


def event_spans(occurrence: Occurrence, vm: str) -> Iterator[Span]:
    """Return the spans of the phases that a transition ends, and at the end of the life the root span."""
    life, transition = occurrence.life, occurrence.transition
    ends = transition in ENDINGS
    # If the start was not observed, the phase begins when it was noticed.
    scheduled, started = life.since(Transition.SCHEDULED), life.since(Transition.STARTED)
    if scheduled is not None and (transition is Transition.STARTED or (ends and started is None)):
        yield _phase(Transition.SCHEDULED, SCHEDULED, occurrence, vm, scheduled)
    if ends and started is not None:
        yield _phase(Transition.STARTED, STARTED, occurrence, vm, started)
    if ends:
        yield _root(occurrence, vm)


def transition_attributes(record: TransitionRecord, changes: Sequence[Change]) -> dict[str, Attribute]:
    """Return which hook failed, and what changed, old and new."""
    hook = {PREFIX + "hook.name": record.hook} if record.hook else {}
    return hook | {
        f"{PREFIX}{change.field}.{side}": _attribute(value)
        for change in changes
        for side, value in (("old", change.old), ("new", change.new))
        if value is not None
    }


def _attribute(value: object) -> Attribute:
    if isinstance(value, datetime):
        return rfc3339(value) or ""
    if isinstance(value, tuple):
        return tuple(map(str, value))
    return value if isinstance(value, int) else str(value)


def notification_span(message: Message, vm: str, at: datetime, outcome: Outcome) -> Span:
    """Return the span of a message, from its transition until it was delivered or given up."""
    attributes = {
        PREFIX + "transition": message.transition.value,
        PREFIX + "notification.target": message.target,
        PREFIX + "notification.outcome": outcome.value,
    }
    error = {
        Outcome.EXPIRED: "it did not arrive in time, and was given up",
        Outcome.REFUSED: "it was refused, and given up",
    }.get(outcome, "")
    return _child_span(
        f"notify {message.target}",
        message.event,
        (vm, message.key),
        what=("notify", message.target, str(message.sequence)),
        times=(message.at, at),
        attributes=attributes,
        error=error,
        kind="client",
    )


def approval_span(life: Life, vm: str, rule: str, times: tuple[datetime, datetime]) -> Span:
    """Return the span of an approval by this exporter, from the decision to Azure's response."""
    return _child_span(
        f"approve {rule}",
        event_view(life),
        (vm, life.key),
        what=("approve",),
        times=times,
        attributes={PREFIX + "approval.rule": rule},
        kind="client",
    )


def hook_span(
    job: Job, vm: str, times: tuple[datetime, datetime], result: CommandResult | None = None
) -> Span:
    """Return the span of a hook's run; ``result`` is None if only its ids matter."""
    attributes: dict[str, Attribute] = {
        PREFIX + "transition": job.transition.value,
        PREFIX + "hook.name": job.hook,
    }
    error = ""
    if result is not None:
        attributes[PREFIX + "hook.outcome"] = result.outcome.value
        error = "" if result.outcome is HookOutcome.SUCCEEDED else result.reason
    what = ("hook", job.hook, str(job.sequence))
    return _child_span(
        f"hook {job.hook}",
        job.event,
        (vm, job.life_key),
        what=what,
        times=times,
        attributes=attributes,
        error=error,
    )


def _child_span(  # noqa: PLR0913  # a span has as many sides
    name: str,
    event: EventView,
    life: tuple[str, str],
    *,
    what: Sequence[str],
    times: tuple[datetime, datetime],
    attributes: Mapping[str, Attribute],
    error: str = "",
    kind: Literal["internal", "client"] = "internal",
) -> Span:
    """Return a span below the root of a life.

    ``life`` is the VM and the key of the life; together with ``what`` these identify what the span describes.
    """
    start, end = times
    return Span(
        name=name,
        trace_id=trace_id(event.id),
        span_id=_span_id(*life, *what),
        parent_id=_span_id(*life, _ROOT),
        start=start,
        end=max(start, end),
        attributes={PREFIX + "id": event.id, PREFIX + "type": event.type} | dict(attributes),
        error=error,
        kind=kind,
    )


def _phase(name: Transition, status: str, occurrence: Occurrence, vm: str, start: datetime) -> Span:
    life = occurrence.life
    return Span(
        name=name.value,
        trace_id=trace_id(life.ids[0]),
        span_id=_span_id(vm, life.key, name.value),
        parent_id=_span_id(vm, life.key, _ROOT),
        start=start,
        end=max(start, occurrence.at),
        attributes=life_attributes(life) | {PREFIX + "status": status},
    )


def _root(occurrence: Occurrence, vm: str) -> Span:
    life = occurrence.life
    return Span(
        name=f"scheduled_event {life.event.event_type}",
        trace_id=trace_id(life.ids[0]),
        span_id=_span_id(vm, life.key, _ROOT),
        parent_id="",
        start=life.first_seen,
        end=max(life.first_seen, occurrence.at),
        attributes=life_attributes(life) | {PREFIX + "outcome": occurrence.transition.value},
        events=tuple(
            SpanEvent(record.transition.value, record.at, transition_attributes(record, record.changes))
            for record in life.transitions
            if record.transition in _SPAN_EVENTS
        ),
    )


def life_attributes(life: Life) -> dict[str, Attribute]:
    event = life.event
    found: dict[str, Attribute | None] = {
        "id": life.ids[0],
        "type": event.event_type,
        "source": event.event_source,
        "status": event.event_status,
        "description": event.description,
        "resources": event.resources,
        "duration_seconds": event.duration_seconds,
        # Azure clears NotBefore at the start, so the last announced one is used.
        "not_before": rfc3339(life.announced),
        "changed_to": life.changed_to,
    }
    return {PREFIX + name: value for name, value in found.items() if value is not None}


def root_span_id(life: Life, vm: str) -> str:
    return _span_id(vm, life.key, _ROOT)


def _span_id(*facts: str) -> str:
    # A name from the command line may not be valid Unicode.
    return hashlib.sha256("\0".join(facts).encode(errors="surrogatepass")).hexdigest()[:16]
