"""The runs of hooks that transitions cause, and how commands end."""

from datetime import datetime
from enum import StrEnum

import msgspec

from exporter.model.lifecycle import Life, Transition
from exporter.model.views import EventView, event_view
from exporter.timefmt import UtcTime


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
    life_key: str
    # From 1.
    sequence: int
    transition: Transition
    at: UtcTime
    instance: str
    event: EventView
    resource_type: str
    # The W3C header that makes what the hook sends a part of the event's trace.
    traceparent: str = ""

    def document(self, attempt: int) -> bytes:
        """Return the command's input: the API's EVENT as JSON, with ``transition``, ``at``, ``instance``."""
        facts = {
            "transition": self.transition,
            "at": self.at,
            "instance": self.instance,
            "attempt": attempt,
        }
        return msgspec.json.encode({**msgspec.to_builtins(self.event), **facts})


def job_of(hook: str, life: Life, at: datetime, instance: str, traceparent: str) -> Job:
    """Return the run of a hook for the newest transition of a life; ``at`` is its time."""
    sequence = len(life.transitions)
    return Job(
        hook=hook,
        life_key=life.key,
        sequence=sequence,
        transition=life.transitions[sequence - 1].transition,
        at=at,
        instance=instance,
        event=event_view(life),
        resource_type=life.event.resource_type,
        traceparent=traceparent,
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
