"""Spans of events, messages, approvals and hooks, composed from facts without OpenTelemetry's SDK."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

from exporter.model.events import SCHEDULED, STARTED, trace_id
from exporter.model.facts import WorkFact
from exporter.model.lifecycle import ENDINGS, Change, Life, Occurrence, Transition, TransitionRecord
from exporter.model.tracing import root_id, span_id
from exporter.outputs.otlp.telemetry import Attribute, Span, SpanEvent
from exporter.timefmt import rfc3339

PREFIX = "azure.scheduled_event."  # the names under it are documented in docs/traces.md

# Transitions within a life that are not the edge of a phase.
_SPAN_EVENTS = (Transition.UPDATED, Transition.IMMINENT, Transition.HOOK_FAILED)


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


def work_span(fact: WorkFact, vm: str) -> Span:
    """Return the span of a message, a run of a hook or an approval.

    That of a message is from its transition until it was delivered or given up, that of an approval from the
    decision to Azure's response.
    """
    verb, kind, attributes = _describe(fact)
    event = {PREFIX + "id": fact.event_id, PREFIX + "type": fact.event_type}
    return Span(
        name=f"{verb} {fact.name}",
        trace_id=trace_id(fact.event_id),
        span_id=span_id(vm, fact.life_key, [verb, *([fact.name, str(fact.number)] if fact.number else [])]),
        parent_id=root_id(vm, fact.life_key),
        start=fact.begun,
        end=max(fact.begun, fact.at),
        attributes=event | attributes,
        error=fact.problem,
        kind=kind,
    )


def _describe(fact: WorkFact) -> tuple[str, Literal["internal", "client"], dict[str, Attribute]]:
    """Return the first word of the name of a span, its kind and its attributes."""
    if fact.output == "approval":
        return "approve", "client", {PREFIX + "approval.rule": fact.name}
    of_message = fact.output == "notifications"
    name = "notification.target" if of_message else "hook.name"
    outcome = "notification.outcome" if of_message else "hook.outcome"
    transition = {PREFIX + "transition": fact.transition.value} if fact.transition else {}
    attributes: dict[str, Attribute] = {
        **transition,
        PREFIX + name: fact.name,
        PREFIX + outcome: fact.outcome,
    }
    return ("notify", "client", attributes) if of_message else ("hook", "internal", attributes)


def _phase(name: Transition, status: str, occurrence: Occurrence, vm: str, start: datetime) -> Span:
    life = occurrence.life
    return Span(
        name=name.value,
        trace_id=trace_id(life.ids[0]),
        span_id=span_id(vm, life.key, [name.value]),
        parent_id=root_id(vm, life.key),
        start=start,
        end=max(start, occurrence.at),
        attributes=life_attributes(life) | {PREFIX + "status": status},
    )


def _root(occurrence: Occurrence, vm: str) -> Span:
    life = occurrence.life
    return Span(
        name=f"scheduled_event {life.event.event_type}",
        trace_id=trace_id(life.ids[0]),
        span_id=root_id(vm, life.key),
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
    attributes: dict[str, Attribute | None] = {
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
    return {PREFIX + name: value for name, value in attributes.items() if value is not None}
