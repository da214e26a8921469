"""What the exporters of all signals share: OpenTelemetry's SDK over our own transport, and the resource.

Loaded only where a signal is on, as are the modules of the signals, `traces`, `metrics` and `logs`.

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
from typing import Any, NamedTuple

import h11
import requests
from google.protobuf.message import DecodeError
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from requests.adapters import BaseAdapter
from requests.certs import where  # type: ignore[attr-defined]  # documented, missing in the stubs
from requests.utils import select_proxy

from exporter import __version__
from exporter.config import PROGRAM
from exporter.errors import cause, one_line, without
from exporter.model.vm import VirtualMachine
from exporter.outputs.otlp import environment
from exporter.outputs.otlp.telemetry import Signal
from exporter.outputs.otlp.worker import ITEMS, ExportOutcome
from exporter.transport import LargeAnswerError, Request, Transport

log = logging.getLogger(__name__)

Attributes = Callable[[], Mapping[str, str]]

# The version of the semantic conventions that defines all attributes below.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The data is invalid and must not be sent again (OTLP specification, "OTLP/HTTP Response"; proxies and
# collectors also respond with 413 and 422, where the specification has only 400).
_BAD_DATA = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)
_ANSWER_LIMIT = 64 * 1024  # of an answer, also unpacked; one of the protocol has a few hundred bytes
# Those that session and SDK add; all others are from OTEL_EXPORTER_OTLP_HEADERS.
_PUBLIC_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-type", "user-agent"}
)
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
# These, and those below them, log full URLs, whose path may be a token, and values of malformed variables.
_LEAKY_LOGGERS = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.util.re")


def resource_attributes(facts: VirtualMachine, instance: str) -> dict[str, str]:
    """Return the known attributes of program and VM; ``instance`` is this VM's name if known otherwise."""
    name = instance or facts.name or socket.gethostname()
    # A name from the command line may have bytes that are not Unicode, which cannot be encoded.
    name = name.encode(errors="backslashreplace").decode()
    attributes = {
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
        "k8s.node.name": facts.node,
    }
    return {key: value for key, value in attributes.items() if value}


def resource(attributes: Mapping[str, str]) -> Resource:
    """Return a resource; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME take precedence."""
    configured = OTELResourceDetector().detect().attributes
    return Resource.create({**attributes, **configured}, SCHEMA_URL)


def nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


class Sdk(NamedTuple):
    """What the SDK has for a signal; ``rejected`` is the field of the response with a number of items."""

    signal: Signal
    otlp: Callable[..., Any]
    console: Callable[..., Any]
    response: Any
    rejected: str


class SdkExporter:
    """Exports through one of the SDK's exporters, whose result decides; used by one thread.

    ``prepare`` returns a batch as that exporter expects it. With ``console`` it is printed to standard
    output, else sent by OTLP over HTTP, set up by the ``OTEL_EXPORTER_OTLP_*`` variables.
    """

    def __init__(self, sdk: Sdk, prepare: Callable[[Sequence[Any]], Any], *, console: bool) -> None:
        """Set it up.

        Raises:
            ValueError: a variable of OpenTelemetry's has an invalid value.
        """
        self._sdk = sdk
        self._prepare = prepare
        self._adapter = TransportAdapter(environment.certificate(sdk.signal, os.environ))
        self._exporter = sdk.console(out=sys.stdout) if console else self._over_http()

    def export(self, items: Sequence[Any]) -> ExportOutcome:
        """Export a batch. The SDK may make several attempts within ``OTEL_EXPORTER_OTLP_TIMEOUT``."""
        seen = self._adapter
        seen.reset()
        try:
            result = self._exporter.export(self._prepare(items))
        except Exception as error:  # no exception may end the exporting thread
            log.debug("export failed", exc_info=True)
            return ExportOutcome(problem=seen.problem or f"{type(error).__name__} in the exporter")
        # For the SDK, answers such as 304 are a success, too.
        if result.name == "SUCCESS" and not seen.problem:
            return self._accepted()
        problem = seen.problem or "the request could not be made; check the OTEL_EXPORTER_OTLP_* variables"
        return ExportOutcome(problem=problem, refused=seen.status in _BAD_DATA, retry_after=seen.retry_after)

    def shutdown(self) -> None:
        """Abort an export in progress, and make later ones fail; safe to call from any thread."""
        self._exporter.shutdown()

    def _over_http(self) -> Any:
        for name in _LEAKY_LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        session = requests.Session()
        session.mount("http://", self._adapter)
        session.mount("https://", self._adapter)
        # The SDK would treat a redirect as success, or follow it without the data.
        session.max_redirects = 0
        # requests would replace a configured Authorization header by the ~/.netrc entry of the host.
        session.auth = lambda request: request
        session.headers["Connection"] = "close"
        session.headers["Accept-Encoding"] = "identity"
        return self._sdk.otlp(
            endpoint=environment.endpoint(self._sdk.signal, os.environ),
            timeout=environment.timeout(self._sdk.signal, os.environ),
            session=session,
        )

    def _accepted(self) -> ExportOutcome:
        """Return what a successful response rejects (OTLP's partial success), and log it."""
        try:
            partial_success = self._sdk.response.FromString(self._adapter.answer).partial_success
        except DecodeError:
            # Many receivers respond with a short text.
            return ExportOutcome()
        rejected = max(getattr(partial_success, self._sdk.rejected), 0)
        reason = one_line(without(partial_success.error_message, self._adapter.secrets))
        items = ITEMS.get(self._sdk.signal)
        if items and (rejected or reason):
            log.warning("%s rejected by the receiver", items, extra={"count": rejected, "reason": reason})
        return ExportOutcome(rejected=rejected, reason=reason)


class TransportAdapter(BaseAdapter):
    """The way of a session's requests: our transport, with one deadline and a bound of the answer.

    ``certificate`` is the file with the certificates to trust, "" for the default ones; a session prefers
    ``REQUESTS_CA_BUNDLE`` to its own setting. `status`, `answer` and `problem` are those of the latest
    request: the SDK's exporters return only success or failure. `secrets` is what its answer may repeat and
    nothing may show.
    """

    def __init__(self, certificate: str) -> None:
        super().__init__()
        self._certificate = certificate
        self.secrets: tuple[str, ...] = ()
        self.reset()

    def reset(self) -> None:
        self.status: int | None = None
        self.answer = b""
        self.problem = ""
        self.retry_after = 0.0

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
        former = self.problem
        self.reset()
        url = request.url or ""
        body = request.body.encode() if isinstance(request.body, str) else request.body
        headers = {name: text for name, text in request.headers.items() if name.lower() != "content-length"}
        self.secrets = (url, *(text for name, text in headers.items() if name.lower() not in _PUBLIC_HEADERS))
        try:
            proxy = _proxy(url, proxies or {})
            self.secrets += (proxy,)
            answer = Transport(
                url, limit=_ANSWER_LIMIT, tls=partial(_tls, self._certificate or verify, cert), proxy=proxy
            ).send(
                Request(request.method or "POST", url, headers, body if isinstance(body, bytes) else b""),
                timeout,
            )
        except TimeoutError as error:
            # A retry of the SDK has the time that is left, which may be none.
            self.problem = former or f"timed out: no complete answer within {timeout:.3g} s"
            raise requests.ConnectionError(self.problem) from error
        except requests.RequestException as error:
            self.problem = str(error)
            raise
        except (OSError, h11.RemoteProtocolError, LargeAnswerError) as error:
            self.problem = cause(error, self.secrets)
            raise requests.ConnectionError(self.problem) from error
        self.status, self.answer = answer.status, _unpacked(answer.body, answer.header(b"content-encoding"))
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            self.problem = f"the receiver answered with status {answer.status}"
        self.retry_after = answer.retry_after(datetime.now(UTC))
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
    proxy = select_proxy(url, dict(proxies)) or ""
    scheme, _, rest = proxy.rpartition("://")
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
