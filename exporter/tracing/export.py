"""Export of spans with OpenTelemetry's SDK: the only module that imports it, loaded only to trace.

Sources of the resource attributes: the pages "Resource" > "Cloud", "Host" and "Service" of OpenTelemetry's
semantic conventions, and the registry's page "Azure". The name of the scale set is that of the Collector's
Azure detector, because the conventions have none.
"""

import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import requests
from google.protobuf.message import DecodeError
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export import SpanExporter as SdkExporter
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
from exporter.model.jobs import Span
from exporter.model.vm import VirtualMachine
from exporter.tracing import environment
from exporter.tracing.adapter import ObservingAdapter
from exporter.tracing.worker import ExportOutcome

log = logging.getLogger(__name__)

Attributes = Callable[[], Mapping[str, str]]

# The version of the semantic conventions that defines all attributes below.
_SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The data is invalid and must not be sent again (OTLP specification, "OTLP/HTTP Response"; proxies and
# collectors also respond with 413 and 422, where the specification has only 400).
_BAD_DATA = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)
_MESSAGE_LIMIT = 200
# At each attempt these log full URLs, whose path may be a token, and the values of malformed headers.
_LEAKY_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.util.re")


def resource_attributes(facts: VirtualMachine, instance: str) -> dict[str, str]:
    """Return the known attributes of program and VM; ``instance`` is the configured name of this VM."""
    name = instance or facts.name or socket.gethostname()
    # A name from the command line may have bytes that are not Unicode, which cannot be encoded.
    name = name.encode(errors="backslashreplace").decode()
    found = {
        "service.name": PROGRAM,
        "service.version": __version__,
        "service.instance.id": facts.vm_id or name,
        "cloud.provider": "azure",
        "cloud.platform": "azure.vm",
        "cloud.region": facts.location,
        "cloud.availability_zone": facts.zone,
        "cloud.account.id": facts.subscription_id,
        "cloud.resource_id": facts.resource_id,
        "host.id": facts.vm_id,
        "host.name": name,
        "host.type": facts.size,
        "azure.resource_group.name": facts.resource_group,
        "azure.vm.scaleset.name": facts.scale_set,
    }
    return {key: value for key, value in found.items() if value}


class SpanExporter:
    """Exports spans through one of the SDK's exporters, whose result decides; used by one thread.

    Raises:
        ValueError: a variable of OpenTelemetry's has an invalid value.
    """

    def __init__(
        self, exporter: SdkExporter, attributes: Attributes, adapter: ObservingAdapter | None = None
    ) -> None:
        self._exporter = exporter
        self._recorder = _Recorder(attributes)
        self._adapter = adapter or ObservingAdapter()

    def export(self, spans: Sequence[Span]) -> ExportOutcome:
        """Export a batch. The SDK may make several attempts within ``OTEL_EXPORTER_OTLP_TIMEOUT``."""
        seen = self._adapter
        seen.reset()
        try:
            result = self._exporter.export(self._recorder.record(spans))
        except Exception as error:  # no exception may end the exporting thread
            log.debug("export failed", exc_info=True)
            return ExportOutcome(problem=seen.problem or f"{type(error).__name__} in the exporter")
        # For the SDK, answers such as 304 are a success, too.
        if result is SpanExportResult.SUCCESS and not seen.problem:
            return ExportOutcome(len(spans) - _rejected(seen.answer, len(spans)))
        problem = seen.problem or "the request could not be made; check the OTEL_EXPORTER_OTLP_* variables"
        return ExportOutcome(problem=problem, refused=seen.status in _BAD_DATA)

    def shutdown(self) -> None:
        """Abort an export in progress, and make later ones fail; safe to call from any thread."""
        self._exporter.shutdown()


def otlp_exporter(attributes: Attributes) -> SpanExporter:
    """Return an exporter for OTLP over HTTP, set up by the ``OTEL_EXPORTER_OTLP_*`` variables."""
    for name in _LEAKY_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    adapter = ObservingAdapter(environment.certificate(os.environ))
    session = requests.Session()
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    # The SDK would treat a redirect as success, or follow it without the spans.
    session.max_redirects = 0
    # Otherwise requests would replace a configured Authorization header by the ~/.netrc entry of the host.
    session.auth = lambda request: request
    # Spans are hours apart: firewalls would drop an idle connection.
    session.headers["Connection"] = "close"
    exporter = OTLPSpanExporter(
        endpoint=environment.endpoint(os.environ), timeout=environment.timeout(os.environ), session=session
    )
    return SpanExporter(exporter, attributes, adapter)


def console_exporter(attributes: Attributes) -> SpanExporter:
    """Return an exporter that prints to standard output, for ``OTEL_TRACES_EXPORTER=console``."""
    return SpanExporter(ConsoleSpanExporter(out=sys.stdout), attributes)


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
            start_time=_nanoseconds(span.start),
        )
        for event in span.events:
            recorded.add_event(event.name, event.attributes, timestamp=_nanoseconds(event.at))
        if span.error:
            recorded.set_status(Status(StatusCode.ERROR, span.error))
        recorded.end(_nanoseconds(span.end))

    def _new_tracer(self, attributes: Mapping[str, str]) -> Tracer:
        # OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME take precedence.
        configured = OTELResourceDetector().detect().attributes
        provider = sdk.TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create({**attributes, **configured}, _SCHEMA_URL),
            shutdown_on_exit=False,
            id_generator=self,
            span_limits=self._limits,
        )
        provider.add_span_processor(self)
        return provider.get_tracer(PROGRAM, __version__, schema_url=_SCHEMA_URL)


def _parent(span: Span) -> Context:
    if not span.parent_id:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED)
    parent = SpanContext(int(span.trace_id, 16), int(span.parent_id, 16), is_remote=False, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _rejected(answer: bytes, sent: int) -> int:
    """Return how many spans a successful response rejects (OTLP's partial success); log them."""
    try:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:
        # Many receivers respond with a short text.
        return 0
    rejected = min(max(partial.rejected_spans, 0), sent)
    if rejected or partial.error_message:
        reason = partial.error_message[:_MESSAGE_LIMIT]
        log.warning("spans rejected by the receiver", extra={"count": rejected, "reason": reason})
    return rejected


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
