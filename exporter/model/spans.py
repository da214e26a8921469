"""Spans: what the state keeps until a receiver has taken it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

Attribute = str | int | tuple[str, ...]
UtcTime = Annotated[datetime, msgspec.Meta(tz=True)]


class SpanEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened at one moment during a span."""

    name: str
    at: UtcTime
    attributes: Mapping[str, Attribute] = {}


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """One span that is over; ids are in hex, times aware and in UTC, ``parent_id`` is "" for a root.

    Ids follow from what the span tells, so that the same span always has the same. ``error`` says in words
    what went wrong, or "". ``kind`` is "client" for a request to another system.
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
        """Return the W3C header that makes what gets it a child of this span."""
        return f"00-{self.trace_id}-{self.span_id}-01"


class LifeEvent(msgspec.Struct, frozen=True):
    """An event of a root span that is not over: of which life, and the transition's number in it, from 1."""

    life: str
    sequence: int
    event: SpanEvent


class TraceJobs(msgspec.Struct, frozen=True):
    """What transitions add to traces: spans that end with them, and events of spans that do not."""

    spans: Sequence[Span] = ()
    events: Sequence[LifeEvent] = ()
