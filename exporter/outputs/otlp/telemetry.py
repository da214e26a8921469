"""Spans and log records, as they are composed from facts."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry

from exporter.metrics import Outcomes
from exporter.timefmt import UtcTime

Attribute = str | int | tuple[str, ...]


class Signal(StrEnum):
    """What leaves by OTLP; the values are those of OpenTelemetry's variables, in lower case."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"


class ItemOutcome(StrEnum):
    EXPORTED = "exported"
    DROPPED = "dropped"


class PushOutcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"


def counters(registry: CollectorRegistry) -> dict[Signal, Outcomes]:
    return {
        Signal.TRACES: Outcomes(registry, "spans", "Spans by export outcome.", ItemOutcome),
        Signal.LOGS: Outcomes(registry, "log_records", "Log records by export outcome.", ItemOutcome),
        Signal.METRICS: Outcomes(registry, "metric_pushes", "Pushes of all metrics by outcome.", PushOutcome),
    }


class SpanEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    at: UtcTime
    attributes: Mapping[str, Attribute] = {}


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finished span. Its ids, in hex, follow from the content: the same span always has the same id."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str  # "" for a root span
    start: UtcTime
    end: UtcTime
    attributes: Mapping[str, Attribute]
    events: tuple[SpanEvent, ...] = ()
    error: str = ""  # "" for none
    kind: Literal["internal", "client"] = "internal"  # "client" for a request to another system


class LogRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened, as a log record."""

    name: str
    end: UtcTime  # when that was
    severity: str  # a value of `messages.Severity`
    body: str  # one line
    attributes: Mapping[str, Attribute]
    uid: str  # follows from the facts, so that a record that is sent twice has the same
    trace_id: str = ""  # in hex, of the root span of the life that it is about
    span_id: str = ""  # of that span
    sampled: bool = False  # whether that span is exported
