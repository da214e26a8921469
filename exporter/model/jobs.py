"""Jobs: the work that a step causes for an output, and the outcomes of commands."""

from enum import StrEnum
from typing import NamedTuple

import msgspec


class HookOutcome(StrEnum):
    """Outcome of a command: a metric label, a log field and a span attribute."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class JobKey(NamedTuple):
    """The permanent identity of a job among those of its output."""

    # Jobs of one lane are done in order.
    lane: str
    # `Life.key`, or `Outage.key`.
    life_key: str
    # The transition's number in that life, from 1; 0 for what no transition causes.
    sequence: int
    # Distinguishes jobs of one lane for the same transition.
    name: str = ""


class Job(msgspec.Struct, frozen=True):
    """Work that a step causes, stored with it; only its output reads the payload."""

    # The name of the output.
    output: str
    key: JobKey
    # JSON; None to take the job of this key back, unless it has begun.
    payload: msgspec.Raw | None = None
    # Of what is done already, and only remembered.
    outcome: str | None = None
