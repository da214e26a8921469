"""What hooks are to do: which of them run for what just happened, decided purely; what comes of a run."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from exporter.config import Hook
from exporter.hooks.withheld import Withheld
from exporter.model.lifecycle import Occurrence, Transition
from exporter.model.views import EventView, event_view


class HookOutcome(StrEnum):
    """How a command ended: a metric label, a log field and a span's attribute alike."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class Job(msgspec.Struct, frozen=True):
    """One run of one hook, with the facts as they were when the transition happened.

    ``sequence`` is the transition's number in the event's life, from 1: with the hook's name and the event's
    key (`TrackedEvent.key`) it names the job for all time. ``at`` is aware and in UTC.
    """

    hook: str
    key: str
    sequence: int
    transition: Transition
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    instance: str
    event: EventView
    resource_type: str

    def document(self, attempt: int) -> bytes:
        """Return the command's input: the API's EVENT as JSON, with ``transition``, ``at``, ``instance``."""
        facts = {
            "transition": self.transition,
            "at": self.at,
            "instance": self.instance,
            "attempt": attempt,
        }
        return msgspec.json.encode({**msgspec.to_builtins(self.event), **facts})


class Command(msgspec.Struct, frozen=True):
    """What to run: program and arguments, its input, variables beside the exporter's, its time in seconds.

    It does not get those of the exporter's that are ``withheld``.
    """

    argv: tuple[str, ...]
    stdin: bytes
    environment: Mapping[str, str]
    timeout: float
    withheld: Withheld = msgspec.field(default_factory=Withheld)


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended.

    ``status`` is its exit status, minus the number of the signal that ended it, or None where there is none.
    ``reason`` says it in words. ``stopped`` tells that it was ended early, or not begun, because the exporter
    stops: it failed by no fault of its own.
    """

    outcome: HookOutcome
    status: int | None
    seconds: float
    reason: str
    stopped: bool = False


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
