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

    lane: str  # jobs of one lane are done in order
    life_key: str  # `Life.key`, or `Outage.key`
    sequence: int  # the transition's number in that life, from 1; 0 for what no transition causes
    name: str = ""  # distinguishes jobs of one lane for the same transition


class Job(msgspec.Struct, frozen=True):
    """Work that a step causes, stored with it; only its output reads the payload."""

    output: str  # the name of the output
    key: JobKey
    payload: msgspec.Raw | None = None  # JSON; None to take the job of this key back, unless it has begun
    outcome: str | None = None  # of what is done already, and only remembered
