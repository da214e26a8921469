"""An OTLP receiver of all signals, which decodes with OpenTelemetry's own protobuf classes."""

import gzip
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.http_server import Request
from tests.notifications.receivers import Receiver

_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}


class Arrived(msgspec.Struct, frozen=True):
    """A span as a receiver sees it; ids in hex, "" where there is no parent; times aware and in UTC.

    ``schemas`` are the schema URLs of its resource and its scope.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: datetime
    end: datetime
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: tuple[tuple[str, datetime, dict[str, Any]], ...]
    failed: bool
    kind: str
    schemas: tuple[str, str]

    def fact(self, name: str) -> Any:
        return self.attributes.get(f"azure.scheduled_event.{name}")


class ArrivedRecord(msgspec.Struct, frozen=True):
    """A log record as a receiver sees it; as `Arrived`."""

    name: str
    at: datetime
    severity: int
    severity_text: str
    body: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    trace_id: str
    span_id: str
    flags: int


def spans(receiver: Receiver) -> list[Arrived]:
    return [
        span
        for request in tuple(receiver.requests)
        if request.path.endswith("/v1/traces")
        for span in decode(request)
    ]


def log_records(receiver: Receiver) -> list[ArrivedRecord]:
    return [
        ArrivedRecord(
            name=record.event_name,
            at=_time(record.time_unix_nano),
            severity=record.severity_number,
            severity_text=record.severity_text,
            body=record.body.string_value,
            attributes=_values(record.attributes),
            resource=_values(group.resource.attributes),
            trace_id=record.trace_id.hex(),
            span_id=record.span_id.hex(),
            flags=record.flags,
        )
        for request in tuple(receiver.requests)
        if request.path.endswith("/v1/logs")
        for group in ExportLogsServiceRequest.FromString(_body(request)).resource_logs
        for scope in group.scope_logs
        for record in scope.log_records
    ]


def pushes(receiver: Receiver) -> list[dict[str, Any]]:
    """Return the metrics of each request, in protobuf's classes, by name."""
    return [
        {
            metric.name: metric
            for group in ExportMetricsServiceRequest.FromString(_body(request)).resource_metrics
            for scope in group.scope_metrics
            for metric in scope.metrics
        }
        for request in tuple(receiver.requests)
        if request.path.endswith("/v1/metrics")
    ]


def values(attributes: Any) -> dict[str, Any]:
    return _values(attributes)


def _body(request: Request) -> bytes:
    assert request.headers["content-type"] == "application/x-protobuf"
    return _UNPACK[request.headers.get("content-encoding", "")](request.body)


def decode(request: Request) -> list[Arrived]:
    message = ExportTraceServiceRequest.FromString(_body(request))
    return [
        _arrived(span, _values(group.resource.attributes), (group.schema_url, scope.schema_url))
        for group in message.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _arrived(span: Any, resource: dict[str, Any], schemas: tuple[str, str]) -> Arrived:
    return Arrived(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start=_time(span.start_time_unix_nano),
        end=_time(span.end_time_unix_nano),
        attributes=_values(span.attributes),
        resource=resource,
        events=tuple(
            (event.name, _time(event.time_unix_nano), _values(event.attributes)) for event in span.events
        ),
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        schemas=schemas,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


def _time(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).replace(
        microsecond=nanoseconds % 1_000_000_000 // 1000
    )
