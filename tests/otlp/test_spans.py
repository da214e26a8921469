import uuid
from datetime import timedelta

from msgspec.structs import replace
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from exporter.config import Route
from exporter.model.events import trace_id
from exporter.model.jobs import HookOutcome, Span, SpanEvent, hook_failure, record_report
from exporter.model.lifecycle import Effects
from exporter.model.messages import Outcome
from exporter.notifications.planning import Plan
from exporter.otlp.spans import event_spans, is_sampled, notification_span, update_event
from tests.builders import FREEZE_ID, NOT_BEFORE, scheduled, started
from tests.lives import Story, at

VM = "westno_0"
TRACE = FREEZE_ID.replace("-", "").lower()


def spans(step: Effects) -> list[Span]:
    return [span for occurrence in step.occurrences for span in event_spans(occurrence, VM)]


def test_attributes() -> None:
    """The root has all that is known, the first id and the announced NotBefore too, which Azure drops."""
    life = Story()
    life.feed(scheduled())
    life.feed(started())
    (end,) = life.feed().occurrences
    renewed = replace(end, life=replace(end.life, ids=(FREEZE_ID, "another")))
    *_, root = event_spans(renewed, VM)
    assert root.trace_id == TRACE
    assert root.attributes == {
        "azure.scheduled_event.id": FREEZE_ID,
        "azure.scheduled_event.type": "Freeze",
        "azure.scheduled_event.source": "Platform",
        "azure.scheduled_event.status": "Started",
        "azure.scheduled_event.description": "Virtual machine is being paused.",
        "azure.scheduled_event.resources": ("WestNO_0", "WestNO_1"),
        "azure.scheduled_event.duration_seconds": 5,
        "azure.scheduled_event.not_before": "2026-03-04T22:15:00Z",
        "azure.scheduled_event.outcome": "completed",
    }


def test_changes_are_attributes_of_span_events() -> None:
    """An update that was kept has what changed, old and new, and a failed hook its name."""
    life = Story()
    life.feed(scheduled(duration_seconds=None))
    update = life.feed(
        scheduled(
            not_before=NOT_BEFORE + timedelta(minutes=5),
            resources=tuple(f"WestNO_{number}" for number in range(200)),
            description="x" * 2000,
        )
    )
    kept = update_event(update.occurrences[0])
    resources = kept.attributes["azure.scheduled_event.resources.new"]
    assert kept.attributes == {
        "azure.scheduled_event.not_before.old": "2026-03-04T22:15:00Z",
        "azure.scheduled_event.not_before.new": "2026-03-04T22:20:00Z",
        "azure.scheduled_event.duration_seconds.new": 5,
        "azure.scheduled_event.resources.old": ("WestNO_0", "WestNO_1"),
        "azure.scheduled_event.resources.new": resources,
        "azure.scheduled_event.description.old": "Virtual machine is being paused.",
        "azure.scheduled_event.description.new": "x" * 1000,
    }
    assert isinstance(resources, tuple)
    assert len(resources) == 100
    failure = record_report(
        update.known, hook_failure(FREEZE_ID.lower(), ("drain", 1), HookOutcome.FAILED, at(3)), VM
    )
    assert failure is not None
    life.known = failure.known
    (end,) = life.feed().occurrences
    *_, root = event_spans(end, VM, lambda life: {2: kept} if life == FREEZE_ID.lower() else {})
    failed = SpanEvent("hook_failed", at(3), {"azure.scheduled_event.hook.name": "drain"})
    assert root.events == (kept, failed)


def test_a_message_is_a_span() -> None:
    """From its transition to its arrival, below the root; its header names it as the parent."""
    life = Story()
    life.feed(scheduled())
    step = life.feed(started())
    (message,) = Plan([Route(("oncall",))]).compose(step.occurrences, instance="WestNO_0", now=life.now)
    span = notification_span(message, VM, at(9), Outcome.DELIVERED)
    root = spans(life.feed())[-1]
    assert (span.name, span.start, span.end, span.error) == ("notify oncall", at(2), at(9), "")
    assert (span.trace_id, span.parent_id) == (TRACE, root.span_id)
    assert span.traceparent == f"00-{TRACE}-{span.span_id}-01"
    assert span.attributes["azure.scheduled_event.transition"] == "started"
    assert notification_span(message, VM, at(9), Outcome.EXPIRED).error


def test_the_sampler_is_the_sdks() -> None:
    """Other services that sample by the trace id keep the same traces."""
    events = [str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))) for number in range(200)]
    for share in (0.0, 0.1, 0.5, 1.0):
        sampler = TraceIdRatioBased(share)
        decisions = [sampler.should_sample(None, int(trace_id(event), 16), "").decision for event in events]
        kept = [decision is Decision.RECORD_AND_SAMPLE for decision in decisions]
        assert [is_sampled(event, share) for event in events] == kept
