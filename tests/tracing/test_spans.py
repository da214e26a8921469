"""Tests of `exporter.tracing.spans`: what happened, as spans."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import Route
from exporter.model.events import ScheduledEvent, trace_id
from exporter.model.jobs import HookOutcome, Span, SpanEvent, hook_failure, note
from exporter.model.lifecycle import Step
from exporter.model.messages import Outcome
from exporter.notifications.planning import Plan
from exporter.tracing.spans import approval_span, event_spans, life_event, notification_span
from tests.builders import FREEZE_ID, NOT_BEFORE, scheduled, started
from tests.clocks import NOW
from tests.lives import Life, at

VM = "westno_0"
TRACE = FREEZE_ID.replace("-", "").lower()


def spans(*steps: Step, vm: str = VM) -> list[Span]:
    """Return all spans of what steps did."""
    return [span for step in steps for occurrence in step.occurrences for span in event_spans(occurrence, vm)]


def told(*steps: Step) -> list[Span]:
    """Return the spans of one target's messages about what steps did."""
    return [
        notification_span(message, VM, message.at, Outcome.DELIVERED)
        for step in steps
        for message in Plan([Route(("oncall",))]).compose(step.occurrences, instance="WestNO_0", now=NOW)
    ]


def test_a_whole_life() -> None:
    """Phases become spans when they end, the root last; all in the trace of the EventId, with real times."""
    life = Life()
    assert spans(life.feed(scheduled())) == []
    (announced,) = spans(life.feed(started()))
    under_way, root = spans(life.feed())
    assert [(s.name, s.start, s.end) for s in (announced, under_way, root)] == [
        ("scheduled", at(1), at(2)),
        ("started", at(2), at(3)),
        ("scheduled_event Freeze", at(1), at(3)),
    ]
    assert {s.trace_id for s in (announced, under_way, root)} == {TRACE}
    assert root.parent_id == ""
    assert announced.parent_id == under_way.parent_id == root.span_id
    assert len({announced.span_id, under_way.span_id, root.span_id}) == 3


def test_attributes() -> None:
    """The root has all that is known, the NotBefore that was announced too, though Azure blanks it."""
    life = Life()
    life.feed(scheduled())
    life.feed(started())
    *_, root = spans(life.feed())
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


def test_what_is_unknown_is_left_out() -> None:
    """No NotBefore and no duration make no attributes."""
    life = Life()
    life.feed(started(duration_seconds=None))
    (_, root) = spans(life.feed())
    assert {"azure.scheduled_event.not_before", "azure.scheduled_event.duration_seconds"}.isdisjoint(
        root.attributes
    )


def test_started_at_once() -> None:
    """What was never Scheduled has no such phase."""
    life = Life()
    assert spans(life.feed(started())) == []
    assert [span.name for span in spans(life.feed())] == ["started", "scheduled_event Freeze"]


@pytest.mark.parametrize(("incarnation", "outcome"), [(2, "cancelled"), (7, "vanished")])
def test_gone_while_scheduled(incarnation: int, outcome: str) -> None:
    """An event that is cancelled or whose end is not observed ends with what is known."""
    life = Life()
    life.feed(scheduled())
    announced, root = spans(life.feed(incarnation=incarnation))
    assert (announced.name, announced.end) == ("scheduled", at(2))
    assert root.attributes["azure.scheduled_event.outcome"] == outcome


def test_updates_are_span_events() -> None:
    """Every update marks the root at its time."""
    life = Life()
    life.feed(scheduled())
    life.feed(scheduled(duration_seconds=9))
    life.feed(
        scheduled(duration_seconds=9, not_before=NOT_BEFORE + timedelta(minutes=5)),
        after=timedelta(minutes=1),
    )
    *_, root = spans(life.feed())
    assert root.events == (SpanEvent("updated", at(2)), SpanEvent("updated", at(62)))
    assert root.attributes["azure.scheduled_event.not_before"] == "2026-03-04T22:20:00Z"


def test_changes_are_attributes_of_span_events() -> None:
    """An update that was kept has what changed, old and new, and a failed hook its name."""
    life = Life()
    life.feed(scheduled(duration_seconds=None))
    update = life.feed(
        scheduled(
            not_before=NOT_BEFORE + timedelta(minutes=5),
            resources=tuple(f"WestNO_{number}" for number in range(200)),
            description="x" * 2000,
        )
    )
    kept = life_event(update.occurrences[0])
    assert kept is not None
    assert (kept.life, kept.sequence) == (FREEZE_ID.lower(), 2)
    resources = kept.event.attributes["azure.scheduled_event.resources.new"]
    assert kept.event.attributes == {
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
    failure = note(update.known, hook_failure(kept.life, ("drain", 1), HookOutcome.FAILED, at(3)), VM)
    assert failure is not None
    assert life_event(failure.occurrences[0]) is None
    life.known = failure.known
    (end,) = life.feed().occurrences
    *_, root = event_spans(end, VM, lambda life: {2: kept.event} if life == kept.life else {})
    failed = SpanEvent("hook_failed", at(3), {"azure.scheduled_event.hook.name": "drain"})
    assert root.events == (kept.event, failed)


def test_each_vm_has_spans_of_its_own() -> None:
    """Two VMs that see one event share the trace and nothing else."""
    life = Life()
    life.feed(started())
    end = life.feed()
    one, other = spans(end), spans(end, vm="westno_1")
    assert {s.trace_id for s in one} == {s.trace_id for s in other}
    assert {s.span_id for s in one}.isdisjoint({s.span_id for s in other})


def test_a_restart_changes_no_id() -> None:
    """A new process creates matching spans for the same event."""
    first, second = Life(), Life()
    for life in (first, second):
        life.feed(scheduled())
        life.feed(started())
    second.restart()
    assert spans(first.feed()) == spans(second.feed())


def test_an_event_that_comes_back() -> None:
    """One that is listed again after its end gets another root, with the phases of its new life below."""
    life = Life()
    steps = [life.feed(scheduled()), life.feed(incarnation=9), life.feed(scheduled()), life.feed(started())]
    steps.append(life.feed())
    found = spans(*steps)
    assert [s.name for s in found] == [
        "scheduled",
        "scheduled_event Freeze",
        "scheduled",
        "started",
        "scheduled_event Freeze",
    ]
    assert found[0].parent_id == found[1].span_id
    assert found[2].parent_id == found[3].parent_id == found[4].span_id
    assert len({s.span_id for s in found}) == 5
    assert len({s.trace_id for s in found}) == 1


def test_a_clock_that_is_set_back() -> None:
    """No span ends before it begins."""
    life = Life()
    life.feed(scheduled())
    life.feed(started(), after=timedelta(hours=-1))
    assert all(span.end >= span.start for span in spans(life.feed(after=timedelta(hours=-1))))


def test_a_renewed_id_keeps_the_trace() -> None:
    """An event that continues under a new id stays in the trace of its first id."""
    life = Life()
    life.feed(scheduled())
    found = spans(life.feed(started(event_id="00000000-0000-0000-0000-00000000000a")), life.feed())
    assert {s.trace_id for s in found} == {TRACE}
    assert {s.attributes["azure.scheduled_event.id"] for s in found} == {FREEZE_ID}


def test_a_message_is_a_span() -> None:
    """From its transition to its arrival, below the root; its header names it as the parent."""
    life = Life()
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


def test_requests_are_client_spans() -> None:
    """Messages and approvals go to another system; phases and the root do not."""
    life = Life()
    life.feed(scheduled())
    step = life.feed(started())
    (tracked,) = step.known.current.values()
    approval = approval_span(tracked, VM, "short", (at(2), at(3)))
    assert (approval.name, approval.kind) == ("approve short", "client")
    assert [span.kind for span in told(step)] == ["client"]
    assert {span.kind for span in spans(step, life.feed())} == {"internal"}


EVENTS = st.sampled_from(
    [
        (),
        (scheduled(),),
        (scheduled(duration_seconds=9),),
        (started(),),
        (scheduled(event_id="b", event_type="Reboot"),),
        (started(event_id="b", event_type="Reboot"), scheduled()),
    ]
)


@given(st.lists(st.tuples(EVENTS, st.integers(-3, 5), st.booleans()), max_size=12))
def test_any_life_makes_sound_traces(feeds: list[tuple[tuple[ScheduledEvent, ...], int, bool]]) -> None:
    """No id is given twice, every child's parent comes, and no span ends before it begins."""
    life = Life()
    steps = []
    for events, jump, restart in feeds:
        steps.append(life.feed(*events, incarnation=life.incarnation + jump))
        if restart:
            life.restart()
    steps += [life.feed(incarnation=life.incarnation + 2)]
    found = spans(*steps) + told(*steps)
    ids = [span.span_id for span in found]
    assert len(ids) == len(set(ids))
    assert {span.parent_id for span in found if span.parent_id} <= set(ids)
    assert all(span.end >= span.start for span in found)
    assert all(span.trace_id == trace_id(str(span.attributes["azure.scheduled_event.id"])) for span in found)
