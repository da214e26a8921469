"""OpenTelemetry's SDK, kept at arm's length: the only module that imports it, and only inside its functions.

No tracer provider is made: spans whose ids and times are given need none, and none is left to flush at exit.
"""

import contextlib
import http.client
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Protocol

import msgspec
import urllib3

from exporter import __version__
from exporter.config import PROGRAM
from exporter.lean import requests
from exporter.tracing import environment
from exporter.tracing.spans import Span
from exporter.transport import DeadlineAdapter, cause

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# With these a receiver says that it will never take the data (OTLP specification, "OTLP/HTTP Response").
_BAD_DATA = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)
_TAKEN = range(200, 300)
# An answer is a few bytes, or a sentence about the spans that were rejected.
_ANSWER_LIMIT = 65536

Resource = Callable[[], Mapping[str, str]]


class Sent(msgspec.Struct, frozen=True):
    """How a try to send spans went: how many arrived, or why none did, in words.

    ``hopeless`` tells that it is the spans themselves that are not taken.
    """

    taken: int = 0
    problem: str = ""
    hopeless: bool = False


class Outlet(Protocol):
    """A way out for spans; used by one thread."""

    def send(self, spans: Sequence[Span]) -> Sent:
        """Try once; it raises nothing and ends within a bounded time."""
        ...

    def close(self) -> None:
        """Let go of what is held; nothing is sent afterwards."""
        ...


class OtlpOutlet:
    """Sends by OTLP over HTTP, as the ``OTEL_EXPORTER_OTLP_*`` variables say."""

    def __init__(self, resource: Resource) -> None:
        _quieten()
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        self._session = _Session()
        self._exporter = OTLPSpanExporter(
            endpoint=environment.endpoint(os.environ),
            timeout=environment.timeout(os.environ),
            session=self._session,
        )
        self._convert = _Converter(resource)
        # It says with every try what goes wrong, with all of the URL; `Sent` says it in our words.
        for name in ("proto.http.trace_exporter", "common.http"):
            logging.getLogger(f"opentelemetry.exporter.otlp.{name}").setLevel(logging.CRITICAL)

    def send(self, spans: Sequence[Span]) -> Sent:
        """Try once, for as long as ``OTEL_EXPORTER_OTLP_TIMEOUT`` allows."""
        self._session.forget()
        self._exporter.export(self._convert(spans))
        status, error = self._session.status, self._session.error
        if status in _TAKEN:
            rejected = _rejected(self._session.answer)
            return Sent(len(spans) - min(max(rejected, 0), len(spans)))
        if error is not None:
            return Sent(problem=_words(error))
        if status is None:
            return Sent(problem="the spans cannot be encoded", hopeless=True)
        phrase = f" ({HTTPStatus(status).phrase})" if status in HTTPStatus._value2member_map_ else ""
        return Sent(problem=f"it answered {status}{phrase}", hopeless=status in _BAD_DATA)

    def close(self) -> None:
        """Close the connections; a request that hangs does so until its timeout."""
        self._exporter.shutdown()


class ConsoleOutlet:
    """Prints to standard output, as ``OTEL_TRACES_EXPORTER=console`` asks for."""

    def __init__(self, resource: Resource) -> None:
        _quieten()
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        self._exporter = ConsoleSpanExporter(out=sys.stdout)
        self._convert = _Converter(resource)

    def send(self, spans: Sequence[Span]) -> Sent:
        """Print them."""
        try:
            self._exporter.export(self._convert(spans))
        except (OSError, ValueError) as error:
            return Sent(problem=f"standard output: {error}", hopeless=True)
        return Sent(len(spans))

    def close(self) -> None:
        """Do nothing: nothing can be under way."""


class _TryFailedError(Exception):
    """A request did not bring the spans home. Never leaves the module."""


class _Session(requests.Session):
    """Remembers how its last request ended, which the exporter that uses it does not tell.

    The exporter would try again by itself for as long as its timeout lasts, and could not be stopped in
    between without losing the spans; so it is given no error that it knows.
    """

    def __init__(self) -> None:
        super().__init__()
        # Spans come hours apart: what stands between would have forgotten the connection.
        self.headers["Connection"] = "close"
        self.headers["Accept-Encoding"] = "identity"
        self.mount("http://", DeadlineAdapter())
        self.mount("https://", DeadlineAdapter())
        self.forget()

    def forget(self) -> None:
        """Remember nothing."""
        self.status: int | None = None
        self.error: Exception | None = None
        self.answer = b""

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request, and remember how it ended."""
        self.forget()
        if self.verify is not True:
            # requests lets REQUESTS_CA_BUNDLE win over what a session was given.
            kwargs["verify"] = self.verify
        kwargs["stream"] = True
        try:
            response = super().request(*args, **kwargs)
        except Exception as error:
            self.error = error
            raise _TryFailedError from error
        with response:
            self.status = response.status_code
            if self.status not in _TAKEN:
                raise _TryFailedError
            # The status has said that the spans are taken; sending them again would double them.
            with contextlib.suppress(
                urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError
            ):
                self.answer = response.raw.read(_ANSWER_LIMIT, decode_content=False)
        return response

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002 - not our signature
        """Find none: even where redirects are not followed, requests reads what is in them."""
        return None


class _Converter:
    """Makes the SDK's spans of ours."""

    def __init__(self, resource: Resource) -> None:
        from opentelemetry.sdk.trace import SpanLimits
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._attributes = resource
        self._made_of: Mapping[str, str] | None = None
        self._resource: Any = None
        self._scope = InstrumentationScope(PROGRAM, __version__)
        self._limits = SpanLimits()

    def __call__(self, spans: Sequence[Span]) -> list[Any]:
        """Give spans that the SDK's exporters take."""
        attributes = self._attributes()
        if attributes != self._made_of:
            self._resource, self._made_of = _resource(attributes), attributes
        return [self._one(span) for span in spans]

    def _one(self, span: Span) -> Any:
        from opentelemetry.attributes import BoundedAttributes
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import Status, StatusCode

        limits = self._limits
        return ReadableSpan(
            span.name,
            context=_context(span, span.span_id),
            parent=_context(span, span.parent_id) if span.parent_id else None,
            resource=self._resource,
            attributes=BoundedAttributes(
                limits.max_span_attributes,
                dict(span.attributes),
                max_value_len=limits.max_span_attribute_length,
            ),
            events=[
                Event(name, attributes=BoundedAttributes(), timestamp=_nanoseconds(at))
                for name, at in span.marks
            ],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=self._scope,
        )


def _context(span: Span, span_id: str) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(
        int(span.trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )


def _resource(attributes: Mapping[str, str]) -> Any:
    """Let what the user says in ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME`` win."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    said = OTELResourceDetector().detect().attributes
    return Resource.create({**attributes, **said})


def _rejected(answer: bytes) -> int:
    """Read from an answer how many of the spans the receiver did not take, after all."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        return int(ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans)
    except DecodeError:
        # Many receivers answer with a word or two.
        return 0


def _words(error: Exception) -> str:
    """Say why nothing was sent, without what the variables hold: the text of these errors has it whole."""
    if isinstance(error, requests.exceptions.InvalidHeader | UnicodeError):
        return "a value in OTEL_EXPORTER_OTLP_HEADERS cannot be sent in a header"
    if isinstance(error, ValueError):
        return "its URL, or that of a proxy, cannot be used"
    return cause(error)


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


def _quieten() -> None:
    """Keep headers, which have secrets in them, out of the SDK's warning about malformed ones."""
    logger = logging.getLogger("opentelemetry.util.re")
    if not logger.filters:
        logger.addFilter(_without_values)


def _without_values(record: logging.LogRecord) -> bool:
    record.msg, record.args = "OTEL_EXPORTER_OTLP_HEADERS has an entry that is no name=value", ()
    return True
