"""Jobs of hooks: which hooks run for a transition, decided purely, and the result of a run."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from exporter.config import Hook
from exporter.model.jobs import Job
from exporter.model.lifecycle import Occurrence, Transition
from exporter.model.views import event_view


class Command(msgspec.Struct, frozen=True):
    """What to run: program and arguments, its input, its variables, and its time in seconds.

    Of the variables, ``inherited`` are those of the exporter, ``environment`` those about the event.
    """

    argv: tuple[str, ...]
    stdin: bytes
    environment: Mapping[str, str]
    timeout: float
    inherited: Mapping[str, str]


def compose(
    hooks: Sequence[Hook], occurrences: Iterable[Occurrence], *, instance: str | None, now: datetime
) -> tuple[Job, ...]:
    """Return the jobs about what happened, in the order in which those of one event run.

    None while this VM's name is unknown, because the event may be another VM's.
    """
    if instance is None:
        return ()
    return tuple(
        _job(hook, one, instance)
        for one in occurrences
        for hook in hooks
        if _runs_for(hook, one.transition)
        and hook.match.holds(one.tracked.event, target=one.tracked.target, now=now, transition=one.transition)
    )


def _runs_for(hook: Hook, transition: Transition) -> bool:
    """Return whether a hook is for such transitions: for failures of hooks only if it says so."""
    return transition is not Transition.HOOK_FAILED or hook.match.transitions is not None


def _job(hook: Hook, occurrence: Occurrence, instance: str) -> Job:
    tracked = occurrence.tracked
    return Job(
        hook=hook.name,
        key=tracked.key,
        sequence=len(tracked.transitions),
        transition=occurrence.transition,
        at=occurrence.at,
        instance=instance,
        event=event_view(tracked),
        resource_type=tracked.event.resource_type,
    )
