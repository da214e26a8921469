"""What an OTLP receiver got, decoded with OpenTelemetry's own protobuf classes."""

import gzip
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from exporter.outputs.otlp.telemetry import LogRecord, Signal, Span, SpanEvent
from tests.receivers import Receiver

_REQUESTS: dict[Signal, Any] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
}
_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}


def messages(receiver: Receiver, signal: Signal) -> list[Any]:
    """Return the requests of a signal, in protobuf's classes."""
    found = [request for request in tuple(receiver.requests) if request.path.endswith(f"/v1/{signal}")]
    assert {request.headers["content-type"] for request in found} <= {"application/x-protobuf"}
    bodies = (_UNPACK[one.headers.get("content-encoding", "")](one.body) for one in found)
    return [_REQUESTS[signal].FromString(body) for body in bodies]


def spans(receiver: Receiver) -> list[Span]:
    return [span for _, span in spans_with_hosts(receiver)]


def spans_with_hosts(receiver: Receiver) -> list[tuple[str, Span]]:
    """Return each span, and the ``host.name`` of its resource."""
    return [
        (values(group.resource.attributes)["host.name"], _span(span))
        for message in messages(receiver, Signal.TRACES)
        for group in message.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def log_records(receiver: Receiver) -> list[LogRecord]:
    return [
        _record(record)
        for message in messages(receiver, Signal.LOGS)
        for group in message.resource_logs
        for scope in group.scope_logs
        for record in scope.log_records
    ]


def pushes(receiver: Receiver) -> list[dict[str, Any]]:
    """Return the metrics of each request, in protobuf's classes, by name."""
    return [
        {
            metric.name: metric
            for group in message.resource_metrics
            for scope in group.scope_metrics
            for metric in scope.metrics
        }
        for message in messages(receiver, Signal.METRICS)
    ]


def values(attributes: Any) -> dict[str, Any]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _span(span: Any) -> Span:
    kind = trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower()
    assert kind in ("internal", "client")
    assert bool(span.status.message) == (span.status.code == trace_pb2.Status.STATUS_CODE_ERROR)
    return Span(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start=_time(span.start_time_unix_nano),
        end=_time(span.end_time_unix_nano),
        attributes=values(span.attributes),
        events=tuple(SpanEvent(e.name, _time(e.time_unix_nano), values(e.attributes)) for e in span.events),
        error=span.status.message,
        kind="client" if kind == "client" else "internal",
    )


def _record(record: Any) -> LogRecord:
    attributes = values(record.attributes)
    return LogRecord(
        name=record.event_name,
        end=_time(record.time_unix_nano),
        severity=record.severity_text,
        body=record.body.string_value,
        uid=attributes.pop("log.record.uid"),
        attributes=attributes,
        trace_id=record.trace_id.hex(),
        span_id=record.span_id.hex(),
        sampled=bool(record.flags),
    )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(item) for item in value.array_value.values)
    return getattr(value, kind) if kind else None


def _time(nanoseconds: int) -> datetime:
    at = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    return at.replace(microsecond=nanoseconds % 1_000_000_000 // 1000)
