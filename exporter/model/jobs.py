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
    noted,
    step_of,
)
from exporter.model.views import EventView

Attribute = str | int | tuple[str, ...]
UtcTime = Annotated[datetime, msgspec.Meta(tz=True)]


class HookOutcome(StrEnum):
    """Outcome of a command: a metric label, a log field and a span attribute."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class Job(msgspec.Struct, frozen=True):
    """One run of one hook, with the facts at the time of the transition.

    ``sequence`` is the transition's number in the event's life, from 1: with the hook's name and the event's
    key (`Life.key`) it identifies the job for all time. ``at`` is aware and in UTC. ``nameless`` is that of
    `Life`.
    """

    hook: str
    key: str
    sequence: int
    transition: Transition
    at: UtcTime
    instance: str
    event: EventView
    resource_type: str
    nameless: bool = False

    def document(self, attempt: int) -> bytes:
        """Return the command's input: the API's EVENT as JSON, with ``transition``, ``at``, ``instance``."""
        facts = {
            "transition": self.transition,
            "at": self.at,
            "instance": self.instance,
            "attempt": attempt,
        }
        return msgspec.json.encode({**msgspec.to_builtins(self.event), **facts})


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended.

    ``status`` is its exit status, minus the number of the signal that ended it, or None if there is none.
    ``reason`` describes it. ``stopped`` is true if the command was ended early, or not begun, because the
    exporter stops. ``output`` is the end of its output, on one line.
    """

    outcome: HookOutcome
    status: int | None
    seconds: float
    reason: str
    stopped: bool = False
    output: str = ""


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process, told from a later one of the same number.

    ``started`` is when that was, in the kernel's ticks since the boot, of which ``boot`` is the id.
    """

    pid: int
    started: int
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
    """A finished span; ids are in hex, times aware and in UTC, ``parent_id`` is "" for a root span.

    Ids follow from the content, so that the same span always has the same id. ``error`` is the error, or "".
    ``kind`` is "client" for a request to another system.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: UtcTime
    end: UtcTime
    attributes: Mapping[str, Attribute]
    events: tuple[SpanEvent, ...] = ()
    error: str = ""
    kind: Literal["internal", "client"] = "internal"

    @property
    def traceparent(self) -> str:
        """Return the W3C header that makes the receiver's span a child of this one."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    @property
    def identity(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


class LogRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened, as a log record; ``end``, when that was, is aware and in UTC.

    ``severity`` is a value of `messages.Severity`, ``body`` one line. ``uid`` follows from the facts, so that
    a record that is sent twice has the same. ``trace_id`` and ``span_id``, in hex, are those of the root span
    of the life that it is about, or "". ``sampled`` is whether that span is exported.
    """

    name: str
    end: UtcTime
    severity: str
    body: str
    attributes: Mapping[str, Attribute]
    uid: str
    trace_id: str = ""
    span_id: str = ""
    sampled: bool = False

    @property
    def identity(self) -> tuple[str, str]:
        return self.uid, ""


class TraceJobs(msgspec.Struct, frozen=True):
    """What leaves by OTLP because of transitions: finished spans, events of unfinished root spans, records.

    The key of an event is `Life.key` with the transition's number in that life, from 1.
    """

    spans: Sequence[Span] = ()
    records: Sequence[LogRecord] = ()
    events: Mapping[tuple[str, int], SpanEvent] = {}


class WorkerReport(msgspec.Struct, frozen=True):
    """A transition that no document shows, of the life with this `Life.key`.

    ``instance`` is this VM's name as the worker knew it, None if that is not known any more. ``hook`` and
    ``run`` are those of `TransitionRecord`; ``detail`` describes what happened.
    """

    key: str
    transition: Transition
    at: datetime
    instance: str | None = None
    hook: str = ""
    run: int = 0
    detail: str = ""


class ApprovalRequest(msgspec.Struct, frozen=True):
    """A request to approve events, each a life with the rule that approves it.

    ``at`` is when it began, or when IMDS accepted it; ``asked`` is its start on the monotonic clock.
    ``problem`` is why it failed, or "". ``rejected`` is true if IMDS answered with an error, so that one bad
    id may be the cause; ``refused`` if nothing was approved for certain; ``withdrawn`` if nothing was sent,
    because it was no longer due.
    """

    events: tuple[tuple[Life, str], ...]
    at: datetime
    asked: float
    problem: str = ""
    rejected: bool = False
    refused: bool = False
    withdrawn: bool = False


def hook_failure(
    key: str, run: tuple[str, int], outcome: HookOutcome, at: datetime, *, reason: str = ""
) -> WorkerReport:
    """Return the finding for a run, a hook's name and a transition's number, that failed or timed out."""
    hook, number = run
    detail = f"hook {hook} {outcome.value.replace('_', ' ')}" + (f": {reason}" if reason else "")
    return WorkerReport(key, Transition.HOOK_FAILED, at, hook=hook, run=number, detail=detail)


def note(known: WatchState, finding: WorkerReport, instance: str | None) -> Effects | None:
    """Return the effects of a finding; None if it is a transition already, or must not become one.

    ``instance`` is this VM's name, None while it is unknown.
    """
    before = known.life(finding.key)
    if before is None or _is_noted(before, finding):
        return None
    if finding.transition is Transition.APPROVED and before.ended is not None:
        # Azure's answer came too late. It is counted and remembered, but nothing happens after the end.
        return None
    record = TransitionRecord(finding.transition, finding.at, finding.hook, finding.run)
    after = noted(before, record, instance)
    return step_of(known, Occurrence(after, finding.transition, finding.at, detail=finding.detail))


def note_pause(known: WatchState, lives: Iterable[Life], seconds: float) -> Effects:
    """Return the effects of a pause of this VM while these events were Started; it is not a transition."""
    changed = tuple(replace(life, paused_seconds=(life.paused_seconds or 0.0) + seconds) for life in lives)
    return Effects(known.replaced(*changed), changed=changed)


def note_clock_set(known: WatchState) -> Effects | None:
    """Return the effects of a step of the wall clock: the times of earlier starts are not known any more."""
    begun = (life for life in known.current.values() if life.started is not None)
    changed = tuple(replace(life, started=None) for life in begun)
    return Effects(known.replaced(*changed), changed=changed) if changed else None


def _is_noted(life: Life, finding: WorkerReport) -> bool:
    if finding.transition is Transition.APPROVED:
        return life.has(Transition.APPROVED)
    # A hook that runs for failures and fails itself would run forever.
    ran_for = life.transitions[finding.run - 1 : finding.run]
    return any(record.transition is Transition.HOOK_FAILED for record in ran_for) or any(
        record.transition is Transition.HOOK_FAILED
        and (record.hook, record.run) == (finding.hook, finding.run)
        for record in life.transitions
    )
