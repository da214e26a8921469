"""The jobs that transitions cause (hook runs, spans, records) and the reports of workers."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from exporter.model.lifecycle import (
    Effects,
    Life,
    Occurrence,
    Transition,
    TransitionRecord,
    WatchState,
    step_of,
    with_transition,
)
from exporter.model.views import EventView, event_view

Attribute = str | int | tuple[str, ...]
UtcTime = Annotated[datetime, msgspec.Meta(tz=True)]


class HookOutcome(StrEnum):
    """Outcome of a command: a metric label, a log field and a span attribute."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class Job(msgspec.Struct, frozen=True):
    """One run of one hook, with the facts at the time of the transition.

    The hook, the life and the number of the transition in it identify the job for all time.
    """

    hook: str
    life_key: str = msgspec.field(name="key")
    # From 1.
    sequence: int
    transition: Transition
    at: UtcTime
    instance: str
    event: EventView
    resource_type: str
    # That of `Life`.
    name_was_unknown: bool = msgspec.field(default=False, name="nameless")

    def document(self, attempt: int) -> bytes:
        """Return the command's input: the API's EVENT as JSON, with ``transition``, ``at``, ``instance``."""
        facts = {
            "transition": self.transition,
            "at": self.at,
            "instance": self.instance,
            "attempt": attempt,
        }
        return msgspec.json.encode({**msgspec.to_builtins(self.event), **facts})


def job_of(hook: str, life: Life, sequence: int, at: datetime, instance: str) -> Job:
    """Return the run of a hook for a transition of a life, by its number from 1; ``at`` is its time."""
    return Job(
        hook=hook,
        life_key=life.key,
        sequence=sequence,
        transition=life.transitions[sequence - 1].transition,
        at=at,
        instance=instance,
        event=event_view(life),
        resource_type=life.event.resource_type,
        name_was_unknown=life.name_was_unknown,
    )


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended."""

    outcome: HookOutcome
    # Its exit status, minus the number of the signal that ended it, or None if there is none.
    status: int | None
    seconds: float
    # Describes the outcome.
    reason: str
    # Whether it was ended early, or not begun, because the exporter stops.
    stopped: bool = False
    # The end of its output, on one line.
    output: str = ""


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process, told from a later one of the same number."""

    pid: int
    # In the kernel's ticks since the boot.
    started: int
    # The id of the boot.
    boot: str


class Signal(StrEnum):
    """What leaves by OTLP; the values are those of OpenTelemetry's variables, in lower case."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"


class SpanEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    at: UtcTime
    attributes: Mapping[str, Attribute] = {}


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finished span.

    Ids are in hex. They follow from the content, so that the same span always has the same id.
    """

    name: str
    trace_id: str
    span_id: str
    # "" for a root span.
    parent_id: str
    start: UtcTime
    end: UtcTime
    attributes: Mapping[str, Attribute]
    events: tuple[SpanEvent, ...] = ()
    # "" for none.
    error: str = ""
    # "client" for a request to another system.
    kind: Literal["internal", "client"] = "internal"

    @property
    def traceparent(self) -> str:
        """Return the W3C header that makes the receiver's span a child of this one."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    @property
    def identity(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


class LogRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened, as a log record."""

    name: str
    # When that was.
    end: UtcTime
    # A value of `messages.Severity`.
    severity: str
    # One line.
    body: str
    attributes: Mapping[str, Attribute]
    # Follows from the facts, so that a record that is sent twice has the same.
    uid: str
    # Of the root span of the life that it is about: the ids in hex, or "", and whether it is exported.
    trace_id: str = ""
    span_id: str = ""
    sampled: bool = False

    @property
    def identity(self) -> tuple[str, str]:
        return self.uid, ""


class TraceJobs(msgspec.Struct, frozen=True):
    """What leaves by OTLP because of transitions."""

    # Finished ones.
    spans: Sequence[Span] = ()
    records: Sequence[LogRecord] = ()


class WorkerReport(msgspec.Struct, frozen=True):
    """A transition that no document shows."""

    life_key: str
    transition: Transition
    at: datetime
    # Those of `TransitionRecord`.
    hook: str = ""
    run: int = 0
    # Describes what happened.
    detail: str = ""


class ApprovalRequest(msgspec.Struct, frozen=True):
    """A request to approve events."""

    events: tuple[tuple[Life, str], ...]  # each with the rule that approves it
    at: datetime  # when it began, or when IMDS accepted it
    asked: float  # its start on the monotonic clock
    problem: str = ""  # why it failed
    rejected: bool = False  # whether IMDS answered with an error, so that one bad id may be the cause
    refused: bool = False  # whether nothing was approved for certain
    withdrawn: bool = False  # whether nothing was sent, because it was no longer due


def hook_failure(
    life_key: str, run: tuple[str, int], outcome: HookOutcome, at: datetime, *, reason: str = ""
) -> WorkerReport:
    """Return the report of a run, a hook's name and a transition's number, that failed or timed out."""
    hook, number = run
    detail = f"hook {hook} {outcome.value.replace('_', ' ')}" + (f": {reason}" if reason else "")
    return WorkerReport(life_key, Transition.HOOK_FAILED, at, hook=hook, run=number, detail=detail)


def record_report(known: WatchState, report: WorkerReport, instance: str | None) -> Effects | None:
    """Return the effects of a report; None if it is a transition already, or must not become one.

    ``instance`` is this VM's name, None while it is unknown.
    """
    before = known.life(report.life_key)
    if before is None or _is_recorded(before, report):
        return None
    if report.transition is Transition.APPROVED and before.ended is not None:
        # Azure's answer came too late. It is counted and remembered, but nothing happens after the end.
        return None
    record = TransitionRecord(report.transition, report.at, report.hook, report.run)
    after = with_transition(before, record, instance)
    return step_of(known, Occurrence(after, report.transition, report.at, detail=report.detail))


def record_pause(known: WatchState, lives: Iterable[Life], seconds: float) -> Effects:
    """Return the effects of a pause of this VM while these events were Started; it is not a transition."""
    changed = tuple(replace(life, paused_seconds=(life.paused_seconds or 0.0) + seconds) for life in lives)
    return Effects(known.replaced(*changed), changed=changed)


def record_clock_set(known: WatchState) -> Effects | None:
    """Return the effects of a step of the wall clock: the times of earlier starts are not known any more."""
    begun = (life for life in known.current.values() if life.started is not None)
    changed = tuple(replace(life, started=None) for life in begun)
    return Effects(known.replaced(*changed), changed=changed) if changed else None


def _is_recorded(life: Life, report: WorkerReport) -> bool:
    if report.transition is Transition.APPROVED:
        return life.has(Transition.APPROVED)
    # A hook that runs for failures and fails itself would run forever.
    ran_for = life.transitions[report.run - 1 : report.run]
    return any(record.transition is Transition.HOOK_FAILED for record in ran_for) or any(
        record.transition is Transition.HOOK_FAILED and (record.hook, record.run) == (report.hook, report.run)
        for record in life.transitions
    )
