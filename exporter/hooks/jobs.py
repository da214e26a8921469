"""Jobs of hooks: which hooks run for a transition, decided purely, and the result of a run."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from exporter.config import Hook
from exporter.hooks.withheld import Withheld
from exporter.model.jobs import Job
from exporter.model.lifecycle import Occurrence
from exporter.model.views import event_view


class Command(msgspec.Struct, frozen=True):
    """What to run: program and arguments, its input, variables beside the exporter's, its time in seconds.

    It does not get those of the exporter's that are ``withheld``.
    """

    argv: tuple[str, ...]
    stdin: bytes
    environment: Mapping[str, str]
    timeout: float
    withheld: Withheld = msgspec.field(default_factory=Withheld)


def compose(
    hooks: Sequence[Hook], occurrences: Iterable[Occurrence], *, instance: str | None, now: datetime
) -> tuple[Job, ...]:
    """Return the jobs about what happened, in the order in which those of one event run.

    None while this VM does not know its name: it cannot tell whether it is meant.
    """
    if instance is None:
        return ()
    return tuple(
        _job(hook, one, instance)
        for one in occurrences
        for hook in hooks
        if hook.match.holds(one.tracked.event, target=one.tracked.target, now=now, transition=one.transition)
    )


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
