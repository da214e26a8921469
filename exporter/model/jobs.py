"""What hooks are to do, and how it ended."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from exporter.model.lifecycle import Transition
from exporter.model.views import EventView


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
