"""What workers find out about lives: this exporter approved the event, a hook failed, the VM paused."""

from datetime import datetime

import msgspec
from msgspec.structs import replace

from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import Known, Occurrence, Step, TrackedEvent, Transition, TransitionRecord


class Finding(msgspec.Struct, frozen=True):
    """A transition that no document shows, of the life with this `TrackedEvent.key`.

    ``instance`` is this VM's name as the worker knew it, None where that is not known any more. ``hook`` and
    ``run`` are those of `TransitionRecord`; ``detail`` says what happened, for people.
    """

    key: str
    transition: Transition
    at: datetime
    instance: str | None = None
    hook: str = ""
    run: int = 0
    detail: str = ""


class Pause(msgspec.Struct, frozen=True):
    """A pause of this VM that was observed while the lives with these keys were under way."""

    keys: tuple[str, ...]
    seconds: float


def hook_failure(
    key: str, run: tuple[str, int], outcome: HookOutcome, at: datetime, *, reason: str = ""
) -> Finding:
    """Return the finding for a run, a hook's name and a transition's number, that failed or timed out."""
    hook, number = run
    detail = f"hook {hook} {outcome.value.replace('_', ' ')}" + (f": {reason}" if reason else "")
    return Finding(key, Transition.HOOK_FAILED, at, hook=hook, run=number, detail=detail)


def note(known: Known, finding: Finding, instance: str | None) -> Step | None:
    """Return the effects of a finding; None where it is a transition already, or must not become one.

    ``instance`` is this VM's name, None while it is unknown.
    """
    before = known.life(finding.key)
    if before is None or _is_noted(before, finding):
        return None
    record = TransitionRecord(finding.transition, finding.at, finding.hook, finding.run)
    # Hooks that wait for this VM's name are queued with the next document, and this transition's with them.
    is_hookable = instance is not None and before.hooked == len(before.transitions)
    records = (*before.transitions, record)
    after = replace(before, transitions=records, hooked=len(records) if is_hookable else before.hooked)
    occurrences = (Occurrence(after, finding.transition, finding.at, detail=finding.detail),)
    where = "current" if finding.key in known.current else "past"
    return Step(
        replace(known, **{where: {**getattr(known, where), finding.key: after}}),
        occurrences,
        occurrences if is_hookable else (),
        (after,),
        (),
        new_incarnation=False,
    )


def note_pause(known: Known, pause: Pause) -> Step | None:
    """Return the effects of a pause, which is no transition; None where no life is known any more."""
    lives = {key: known.current.get(key) or known.past.get(key) for key in pause.keys}
    after = {
        key: replace(life, paused_seconds=(life.paused_seconds or 0.0) + pause.seconds)
        for key, life in lives.items()
        if life is not None
    }
    if not after:
        return None
    current, past = (
        mapping | {key: life for key, life in after.items() if key in mapping}
        for mapping in (known.current, known.past)
    )
    changed = tuple(after.values())
    return Step(replace(known, current=current, past=past), (), (), changed, (), new_incarnation=False)


def _is_noted(life: TrackedEvent, finding: Finding) -> bool:
    if finding.transition is Transition.APPROVED:
        return life.has(Transition.APPROVED)
    # A hook that runs for failures and fails itself would go on forever.
    ran_for = life.transitions[finding.run - 1 : finding.run]
    return any(record.transition is Transition.HOOK_FAILED for record in ran_for) or any(
        record.transition is Transition.HOOK_FAILED
        and (record.hook, record.run) == (finding.hook, finding.run)
        for record in life.transitions
    )
