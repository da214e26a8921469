"""The exporter's web application: routes, access checks and compression."""

import asyncio
import gzip
import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from urllib.parse import parse_qs

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, gzip_accepted
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from exporter.errors import ConfigurationError, StoppingError
from exporter.serving import JSON, Request, Response, text
from exporter.web import api
from exporter.web.auth import Guard
from exporter.web.settings import WebSettings
from exporter.web.site import Site

log = logging.getLogger(__name__)

_Handler = Callable[[Request], Response | Awaitable[Response]]

_READ = ("GET", "HEAD")
_ACT = ("POST",)
# Below this size compression does not save a packet.
_SMALLEST_TO_COMPRESS = 1400
# Level 9, gzip's default, takes several times as long to save a few per cent more.
_COMPRESSION_LEVEL = 3


class WebApp:
    """The application of a site: its routes and the processing of requests."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._guard = Guard(site.clock)
        self._started = site.clock.now()
        self._last_scrape: datetime | None = None
        self.routes: dict[str, tuple[tuple[str, ...], _Handler]] = {
            "/": (_READ, self._landing),
            "/metrics": (_READ, self._metrics),
            "/api/v1/events": (_READ, self._events),
            "/api/v1/status": (_READ, self._status),
            "/-/healthy": (_READ, lambda _: text("The exporter is healthy.")),
            "/-/ready": (_READ, self._ready),
            "/-/in-service": (_READ, self._in_service),
            "/-/reload": (_ACT, self._reload),
        }

    async def __call__(self, request: Request) -> Response:
        """Respond to a request, if its client is allowed to send it."""
        settings = WebSettings()
        admitted = False
        try:
            settings = self._site.settings()
            response = await self._guard.refusal(settings, request)
            if response is None:
                admitted = True
                response = await self._answer(request)
        except Exception:
            log.exception("request failed", extra={"method": request.method, "path": request.path})
            response = text("500 Internal Server Error; the exporter's log says why", 500)
        configured = {name.lower(): value for name, value in settings.headers.items()}
        headers = {**response.headers, **configured}
        return replace(response, headers=headers, authenticated=admitted and bool(settings.users))

    async def _answer(self, request: Request) -> Response:
        route = self.routes.get(request.path.rstrip("/") or "/")
        if route is None:
            return text("404 Not Found; / lists what there is", 404)
        methods, handler = route
        if request.method not in methods:
            return text("405 Method Not Allowed", 405, {"allow": ", ".join(methods)})
        answer = handler(request)
        return await answer if inspect.isawaitable(answer) else answer

    def _metrics(self, request: Request) -> Response:
        response = _exposition(self._site.registry, request)
        self._last_scrape = self._site.clock.now()
        return response

    def _landing(self, _: Request) -> Response:
        # Imported on first use: most VMs' pages are never viewed.
        from exporter.web.page import landing

        return landing(self._site)

    def _events(self, _: Request) -> Response:
        return _json(api.events(self._site.snapshot(), self._site.approval))

    def _status(self, _: Request) -> Response:
        site = self._site
        return _json(api.status(site.snapshot(), site.health, self._started, self._last_scrape))

    def _ready(self, _: Request) -> Response:
        snapshot = self._site.snapshot()
        if snapshot.ready:
            return text("The exporter is ready.")
        reason = snapshot.last_error or "its first answer can take up to two minutes"
        return text(f"Not ready: no valid document from {snapshot.endpoint} yet: {reason}", 503)

    def _in_service(self, _: Request) -> Response:
        reason = self._site.in_service()
        return text(f"Out of service: {reason}", 503) if reason else text("In service.")

    async def _reload(self, _: Request) -> Response:
        if not self._site.lifecycle_enabled:
            return text("403 Forbidden; start with --web.enable-lifecycle to allow this", 403)
        try:
            await asyncio.wrap_future(self._site.reload())
        except ConfigurationError as error:
            return text(f"Reload failed, keeping the current configuration: {error}", 500)
        except StoppingError as error:
            return text(f"503 Service Unavailable; {error}", 503)
        return text("Reloaded.")


def _json(body: api.Events | api.Status) -> Response:
    return Response(msgspec.json.encode(body), JSON)


def _exposition(registry: CollectorRegistry, request: Request) -> Response:
    """Render the registry in the format and the compression that the client requests.

    ``name[]``, repeatable, selects series by name, as in prometheus_client's own server.
    """
    encode: Callable[[Collector], bytes]
    try:
        encode, content_type = choose_encoder(request.header(b"accept"))
    except TypeError:  # raised by prometheus_client for a format version that is not a number
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    if content_type.startswith("application/openmetrics-text"):
        # Our names are the same under every escaping scheme, and this one takes half the time.
        encode = partial(openmetrics.generate_latest, escaping=openmetrics.ALLOWUTF8)
    names = parse_qs(request.query).get("name[]")
    body = encode(registry.restricted_registry(names) if names else registry)
    headers = {"vary": "accept, accept-encoding"}
    if len(body) >= _SMALLEST_TO_COMPRESS and gzip_accepted(request.header(b"accept-encoding")):
        body = gzip.compress(body, _COMPRESSION_LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, content_type, headers=headers)
