"""What workers and the clock report to the watch, and the steps that it causes."""

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from exporter.model.jobs import HookOutcome, JobKey
from exporter.model.lifecycle import Life, Occurrence, Step, Transition, TransitionRecord, WatchState, step_of


class WorkerReport(msgspec.Struct, frozen=True):
    """A transition that no document shows."""

    life_key: str
    transition: Transition
    at: datetime
    hook: str = ""  # those of `TransitionRecord`
    run: int = 0
    detail: str = ""  # describes what happened


def hook_failure(run: JobKey, outcome: HookOutcome, at: datetime, reason: str = "") -> WorkerReport:
    """Return the report of a run of a hook that failed or timed out."""
    detail = f"hook {run.name} {outcome.value.replace('_', ' ')}" + (f": {reason}" if reason else "")
    return WorkerReport(run.life_key, Transition.HOOK_FAILED, at, run.name, run.sequence, detail)


def record_report(state: WatchState, report: WorkerReport) -> Step | None:
    """Return the step that a report causes; None if it is a transition already, or must not become one."""
    before = state.life(report.life_key)
    if before is None or _is_recorded(before, report):
        return None
    if report.transition is Transition.APPROVED and before.ended is not None:
        # Azure's answer came too late. It is counted and remembered, but nothing happens after the end.
        return None
    record = TransitionRecord(report.transition, report.at, report.hook, report.run)
    return step_of(
        state, Occurrence(before.with_record(record), report.transition, report.at, detail=report.detail)
    )


def record_pause(state: WatchState, lives: Iterable[Life], seconds: float) -> Step:
    """Return the step of a pause of this VM while these events were Started; it is not a transition."""
    changed = tuple(replace(life, paused_seconds=(life.paused_seconds or 0.0) + seconds) for life in lives)
    return Step(state.replaced(*changed), changed=changed)


def record_clock_set(state: WatchState) -> Step | None:
    """Return the step after the wall clock was set: the times of earlier starts are not known any more."""
    begun = (life for life in state.current.values() if life.started is not None)
    changed = tuple(replace(life, started=None) for life in begun)
    return Step(state.replaced(*changed), changed=changed) if changed else None


def _is_recorded(life: Life, report: WorkerReport) -> bool:
    if report.transition is Transition.APPROVED:
        return life.has(Transition.APPROVED)
    # A hook that runs for failures and fails itself would run forever.
    ran_for = life.transitions[report.run - 1 : report.run]
    return any(record.transition is Transition.HOOK_FAILED for record in ran_for) or any(
        record.transition is Transition.HOOK_FAILED and (record.hook, record.run) == (report.hook, report.run)
        for record in life.transitions
    )
