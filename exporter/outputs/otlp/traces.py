"""Export of spans with OpenTelemetry's SDK; loaded only to trace."""

from collections.abc import Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
)
from opentelemetry.trace.propagation import set_span_in_context

from exporter import __version__
from exporter.config import PROGRAM
from exporter.outputs.otlp.export import SCHEMA_URL, Attributes, Sdk, SdkExporter, nanoseconds, resource
from exporter.outputs.otlp.telemetry import Signal, Span

_SDK = Sdk(Signal.TRACES, OTLPSpanExporter, ConsoleSpanExporter, ExportTraceServiceResponse, "rejected_spans")


def exporter(attributes: Attributes, *, console: bool) -> SdkExporter:
    return SdkExporter(_SDK, _Recorder(attributes).record, console=console)


class _Recorder(sdk.SpanProcessor, IdGenerator):
    """Makes the SDK record finished spans, with their existing ids and times."""

    _span: Span

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._limits = sdk.SpanLimits()

    def record(self, spans: Sequence[Span]) -> list[sdk.ReadableSpan]:
        """Return spans as the SDK's exporters expect them."""
        self._recorded: list[sdk.ReadableSpan] = []
        self._tracer = self._new_tracer(self._attributes())
        for span in spans:
            self._record(span)
        return self._recorded

    def on_end(self, span: sdk.ReadableSpan) -> None:
        self._recorded.append(span)

    def generate_trace_id(self) -> int:
        return int(self._span.trace_id, 16)

    def generate_span_id(self) -> int:
        return int(self._span.span_id, 16)

    def _record(self, span: Span) -> None:
        self._span = span
        recorded = self._tracer.start_span(
            span.name,
            context=_parent(span),
            kind=SpanKind[span.kind.upper()],
            attributes=span.attributes,
            start_time=nanoseconds(span.start),
        )
        for event in span.events:
            recorded.add_event(event.name, event.attributes, timestamp=nanoseconds(event.at))
        if span.error:
            recorded.set_status(Status(StatusCode.ERROR, span.error))
        recorded.end(nanoseconds(span.end))

    def _new_tracer(self, attributes: Mapping[str, str]) -> Tracer:
        provider = sdk.TracerProvider(
            sampler=ALWAYS_ON,
            resource=resource(attributes),
            shutdown_on_exit=False,
            id_generator=self,
            span_limits=self._limits,
        )
        provider.add_span_processor(self)
        return provider.get_tracer(PROGRAM, __version__, schema_url=SCHEMA_URL)


def _parent(span: Span) -> Context:
    if not span.parent_id:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED)
    parent = SpanContext(int(span.trace_id, 16), int(span.parent_id, 16), is_remote=False, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(parent), Context())
