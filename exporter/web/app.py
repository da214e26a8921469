"""The exporter's web application: routes and access checks."""

import gzip
import logging
import re
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
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
from exporter.metrics import Metrics
from exporter.model.views import Demonstration, Views
from exporter.serving.http import JSON, Handler, Request, Response, tagged, text
from exporter.web import api
from exporter.web.auth import Guard
from exporter.web.webfile import WebSettings

log = logging.getLogger(__name__)

_READ = ("GET", "HEAD")
_ACT = ("POST",)
MOST_IN_WORK = 64  # fewer than the connections that the server keeps, so that probes always find room
_BUSY = {"retry-after": "1", "connection": "close"}
_LEVEL = 3  # gzip's default, 9, takes several times as long to save a few per cent more
_PACKET_BYTES = 1400  # below this size compression does not save a packet
_WEIGHT = re.compile(r";\s*[qQ]\s*=\s*([01](?:\.[0-9]{0,3})?)\s*(?:;|$)")


class Renderings:
    """Renders large responses, one at a time.

    Requests that arrive while others are in work share the next rendering of what they ask for, so that each
    response is at least as new as its request, and a flood costs little more than one client.
    """

    def __init__(self) -> None:
        self._room = threading.BoundedSemaphore(MOST_IN_WORK)
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._queued: dict[Hashable, Future[Response]] = {}

    def render(self, what: Hashable, function: Callable[[], Response]) -> Response:
        """Return the result of a call of ``function`` begun after this one; a 503 if too many wait."""
        if not self._room.acquire(blocking=False):
            return text("503 Service Unavailable; too many requests", 503, _BUSY)
        try:
            with self._lock:
                is_shared = what in self._queued
                rendering = self._queued.setdefault(what, Future())
            if not is_shared:
                with self._turn:
                    self._run(what, function)
            return rendering.result()
        finally:
            self._room.release()

    def _run(self, what: Hashable, function: Callable[[], Response]) -> None:
        with self._lock:
            rendering = self._queued.pop(what)
        try:
            rendering.set_result(function())
        except Exception as error:  # noqa: BLE001  # raised to all that share it
            rendering.set_exception(error)


class WebApp:
    """The web application: its routes and the processing of requests.

    ``settings`` is called for every request, so that a changed web configuration applies at once. Without
    ``reload`` nobody can reload.
    """

    def __init__(
        self,
        views: Views,
        metrics: Metrics,
        settings: Callable[[], WebSettings],
        reload: Callable[[], None] | None = None,
        *,
        demonstration: Demonstration | None = None,
    ) -> None:
        self._views = views
        self._registry = metrics.registry
        self._settings = settings
        self._reload_configuration = reload
        self._demonstration = demonstration
        self._guard = Guard(views.clock, metrics.registry)
        self._renderings = Renderings()
        self._started = views.clock.now()
        self._last_scrape: datetime | None = None
        self.routes: dict[str, tuple[tuple[str, ...], Handler]] = {
            "/": (_READ, self._landing),
            "/metrics": (_READ, self._metrics),
            "/api/v1/events": (_READ, self._events),
            "/api/v1/status": (_READ, self._status),
            "/-/healthy": (_READ, lambda _: text("The exporter is healthy.")),
            "/-/ready": (_READ, self._ready),
            "/-/in-service": (_READ, self._in_service),
            "/-/reload": (_ACT, self._reload),
        }

    def __call__(self, request: Request) -> Response:
        """Respond to a request, if its client is allowed to send it."""
        settings = WebSettings()
        admitted = False
        try:
            settings = self._settings()
            response = self._guard.refusal(settings, request)
            if response is None:
                admitted = True
                response = self._answer(request)
        except Exception:
            log.exception("request failed", extra={"method": request.method, "path": request.path})
            response = text("500 Internal Server Error; see the exporter's log", 500)
        configured = {name.lower(): value for name, value in settings.headers.items()}
        headers = {**response.headers, **configured}
        return replace(response, headers=headers, authenticated=admitted and bool(settings.users))

    def _answer(self, request: Request) -> Response:
        route = self.routes.get(request.path.rstrip("/") or "/")
        if route is None:
            return text("404 Not Found; start at /", 404)
        methods, handler = route
        if request.method not in methods:
            return text("405 Method Not Allowed", 405, {"allow": ", ".join(methods)})
        return handler(request)

    def _metrics(self, request: Request) -> Response:
        response = self._renderings.render(*_scrape(self._registry, request))
        self._last_scrape = self._views.clock.now()
        return response

    def _landing(self, request: Request) -> Response:
        # Imported on first use: most VMs' pages are never viewed.
        from exporter.web.page import landing

        page = self._renderings.render("page", lambda: landing(self._views, self._demonstration))
        return tagged(request, page)

    def _events(self, request: Request) -> Response:
        given = parse_qs(request.query).get("page", ["1"])[-1]
        if not re.fullmatch("[1-9][0-9]{0,4}", given):
            return text("400 Bad Request; page must be a number from 1 to 99999", 400)
        page, views = int(given), self._views

        def render() -> Response:
            snapshot = views.snapshot
            # The link to the next page is that of RFC 8288.
            more = {"link": f'<?page={page + 1}>; rel="next"'} if api.has_page(snapshot, page + 1) else {}
            events = api.events(snapshot, views.approval, page)
            return Response(msgspec.json.encode(events), JSON, headers=more)

        return self._renderings.render(("events", page), render)

    def _status(self, _: Request) -> Response:
        status = api.status(self._views, self._started, self._last_scrape)
        return Response(msgspec.json.encode(status), JSON)

    def _ready(self, _: Request) -> Response:
        snapshot = self._views.snapshot
        if snapshot.ready:
            return text("The exporter is ready.")
        reason = snapshot.last_error or "its first answer can take up to two minutes"
        return text(f"Not ready: no valid document from {snapshot.endpoint} yet: {reason}", 503)

    def _in_service(self, _: Request) -> Response:
        reason = self._views.out_of_service()
        return text(f"Out of service: {reason}", 503) if reason else text("In service.")

    def _reload(self, request: Request) -> Response:
        if self._reload_configuration is None:
            return text("403 Forbidden; start with --web.enable-lifecycle to allow this", 403)
        if _from_elsewhere(request):
            return text("403 Forbidden; the request comes from a page of another site", 403)
        try:
            self._reload_configuration()
        except ConfigurationError as error:
            return text(f"Reload failed, keeping the current configuration: {error}", 500)
        except StoppingError as error:
            return text(f"503 Service Unavailable; {error}", 503)
        return text("Reloaded.")


def _from_elsewhere(request: Request) -> bool:
    """Return whether a browser sends the request for a page of another site."""
    origin = request.header(b"origin")
    return request.header(b"sec-fetch-site") in ("cross-site", "same-site") or bool(
        origin and origin.partition("://")[2].lower() != request.header(b"host").lower()
    )


def _scrape(registry: CollectorRegistry, request: Request) -> tuple[Hashable, Callable[[], Response]]:
    """Return the form of the metrics that a request asks for, and the function that renders it.

    ``name[]``, repeatable, selects series by name, as in prometheus_client's own server.
    """
    encode: Callable[[Collector], bytes]
    try:
        encode, content_type = choose_encoder(_by_weight(request.header(b"accept")))
    except TypeError:  # raised by prometheus_client for a format version that is not a number
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    if content_type.startswith("application/openmetrics-text"):
        # Our names are the same under every escaping scheme, and this one takes half the time.
        encode = partial(openmetrics.generate_latest, escaping=openmetrics.ALLOWUTF8)
    compressed = gzip_accepted(_by_weight(request.header(b"accept-encoding")))
    names = tuple(sorted(set(parse_qs(request.query).get("name[]", ()))))

    def render() -> Response:
        data = encode(registry.restricted_registry(names) if names else registry)
        headers = {"vary": "accept, accept-encoding"}
        if compressed and len(data) >= _PACKET_BYTES:
            data = gzip.compress(data, _LEVEL, mtime=0)
            headers["content-encoding"] = "gzip"
        return Response(data, content_type, headers=headers)

    return (content_type, compressed, names), render


def _by_weight(header: str) -> str:
    """Return what a client accepts, the most wanted first, without what it refuses (RFC 9110, 12.4.2).

    prometheus_client does not look at weights.
    """

    def weight(entry: str) -> float:
        match = _WEIGHT.search(entry)
        return float(match[1]) if match else 1.0

    return ",".join(sorted(filter(weight, header.split(",")), key=weight, reverse=True))
