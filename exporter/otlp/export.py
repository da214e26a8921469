"""Export of spans with OpenTelemetry's SDK, over our own transport; loaded only to trace.

Sources of the resource attributes: the pages "Resource" > "Cloud", "Host" and "Service" of OpenTelemetry's
semantic conventions, and the registry's page "Azure". The name of the scale set is that of the Collector's
Azure detector, because the conventions have none.
"""

import contextlib
import io
import logging
import os
import socket
import ssl
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from http import HTTPStatus
from typing import Any

import h11
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
from requests.adapters import BaseAdapter
from requests.certs import where  # type: ignore[attr-defined]  # documented, missing in the stubs
from requests.utils import select_proxy

from exporter import __version__
from exporter.config import PROGRAM
from exporter.errors import cause
from exporter.model.jobs import Span
from exporter.model.vm import VirtualMachine
from exporter.otlp import environment
from exporter.otlp.worker import ExportOutcome
from exporter.transport import LargeAnswerError, Request, Transport

log = logging.getLogger(__name__)

Attributes = Callable[[], Mapping[str, str]]

# The version of the semantic conventions that defines all attributes below.
_SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The data is invalid and must not be sent again (OTLP specification, "OTLP/HTTP Response"; proxies and
# collectors also respond with 413 and 422, where the specification has only 400).
_BAD_DATA = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)
_MESSAGE_LIMIT = 200
# Of an answer, also unpacked; one of the protocol has a few hundred bytes.
_ANSWER_LIMIT = 64 * 1024
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
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


class TransportAdapter(BaseAdapter):
    """The way of a session's requests: our transport, with one deadline and a bound of the answer.

    ``certificate`` is the file with the certificates to trust; a session prefers ``REQUESTS_CA_BUNDLE`` to
    its own setting. `status`, `answer` and `problem` are those of the latest request: the SDK's exporters
    return only success or failure.
    """

    def __init__(self, certificate: str = "") -> None:
        super().__init__()
        self._certificate = certificate
        self.reset()

    def reset(self) -> None:
        self.status: int | None = None
        self.answer = b""
        self.problem = ""

    def send(  # noqa: PLR0917  # the signature of the base class
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a request, and return its answer.

        Raises:
            requests.ConnectionError: there is no answer, or none of the protocol.
        """
        del stream
        self.reset()
        url = request.url or ""
        body = request.body.encode() if isinstance(request.body, str) else request.body
        headers = {name: text for name, text in request.headers.items() if name.lower() != "content-length"}
        try:
            answer = Transport(
                url,
                limit=_ANSWER_LIMIT,
                tls=partial(_tls, self._certificate or verify, cert),
                proxy=_proxy(url, proxies or {}),
            ).send(
                Request(request.method or "POST", url, headers, body if isinstance(body, bytes) else b""),
                timeout,
            )
        except TimeoutError as error:
            self.problem = f"timed out: no complete answer within {timeout:.3g} s"
            raise requests.ConnectionError(self.problem) from error
        except requests.RequestException as error:
            self.problem = str(error)
            raise
        except (OSError, h11.RemoteProtocolError, LargeAnswerError) as error:
            self.problem = cause(error)
            raise requests.ConnectionError(self.problem) from error
        self.status, self.answer = answer.status, _unpacked(answer.body, answer.header(b"content-encoding"))
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            self.problem = f"the receiver answered with status {answer.status}"
        response = requests.Response()
        response.request, response.url, response.status_code = request, url, answer.status
        response.headers.update({name.decode(): value.decode("latin-1") for name, value in answer.headers})
        response.headers.pop("Content-Encoding", None)
        response.raw = io.BytesIO(self.answer)
        return response

    def close(self) -> None:
        """Do nothing: no connection is kept. Pushes are a minute apart or more; firewalls drop idle ones."""


def _proxy(url: str, proxies: Mapping[str, str]) -> str:
    """Return the URL of the proxy for a URL; "" for none."""
    found = select_proxy(url, dict(proxies)) or ""
    scheme, _, rest = found.rpartition("://")
    if scheme.lower() not in ("", "http"):
        raise requests.exceptions.InvalidProxyURL("only http:// proxies are supported")
    return f"http://{rest}" if rest else ""


def _tls(trusted: bool | str, cert: str | tuple[str, str] | None) -> ssl.SSLContext:
    """Return the context of a connection; files are read for each one, because they are renewed."""
    if trusted is True and not cert:
        return _usual_tls()
    try:
        context = _trusting(where() if trusted is True else str(trusted))
        if cert:
            context.load_cert_chain(*([cert] if isinstance(cert, str) else cert))
    except OSError as error:
        raise OSError(f"a certificate of the OTEL_EXPORTER_OTLP_* variables: {cause(error)}") from None
    return context


@cache
def _usual_tls() -> ssl.SSLContext:
    # Reading these 150 certificates takes longer than a handshake.
    return _trusting(where())


def _trusting(path: str) -> ssl.SSLContext:
    if os.path.isdir(path):  # noqa: PTH112  # never raises
        return ssl.create_default_context(capath=path)
    return ssl.create_default_context(cafile=path)


def _unpacked(body: bytes, encoding: str) -> bytes:
    """Return an answer's body, unpacked, as far as it is within the limit."""
    if not encoding:
        return body
    with contextlib.suppress(zlib.error):  # the status is sufficient
        return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, _ANSWER_LIMIT)
    return b""


class SpanExporter:
    """Exports spans through one of the SDK's exporters, whose result decides; used by one thread.

    Raises:
        ValueError: a variable of OpenTelemetry's has an invalid value.
    """

    def __init__(
        self, exporter: SdkExporter, attributes: Attributes, adapter: "TransportAdapter | None" = None
    ) -> None:
        self._exporter = exporter
        self._recorder = _Recorder(attributes)
        self._adapter = adapter or TransportAdapter()

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
    adapter = TransportAdapter(environment.certificate(os.environ))
    session = requests.Session()
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    # The SDK would treat a redirect as success, or follow it without the spans.
    session.max_redirects = 0
    # Otherwise requests would replace a configured Authorization header by the ~/.netrc entry of the host.
    session.auth = lambda request: request
    session.headers["Connection"] = "close"
    session.headers["Accept-Encoding"] = "identity"
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
