"""The ASGI application: the service's own paths as IMDS has them, and the simulator's page and API."""

import asyncio
import hashlib
import logging
import re
import uuid
from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec

from exporter.serving import AsgiApp, HangUpError, Receive, Scope, Send
from exporter.simulator import instance
from exporter.simulator.control import Control
from exporter.simulator.documents import EVENTS_VERSIONS, PREVIEW
from exporter.simulator.faults import Fault
from exporter.simulator.simulation import Simulation
from exporter.web.http import JSON, TEXT, Request, Response, send_response

log = logging.getLogger(__name__)

_PLACE = re.compile(r"/metadata/(?:(scheduledevents)|(instance)(/.*)?|(versions))/?", re.DOTALL)
_VERSIONS = {"scheduledevents": EVENTS_VERSIONS, "instance": instance.INSTANCE_VERSIONS}
_METHODS = {"scheduledevents": ("GET", "POST"), "instance": ("GET",), "versions": ("GET",)}
# How often a wait looks at the clock, which a test may move by hand.
_LOOK_AGAIN = 0.05


class _StartRequest(msgspec.Struct):
    event_id: str = msgspec.field(name="EventId")


class _StartRequests(msgspec.Struct):
    requests: list[_StartRequest] = msgspec.field(name="StartRequests")


_start_requests = msgspec.json.Decoder(_StartRequests)


def create_app(simulation: Simulation, vm: str) -> AsgiApp:
    """Make the ASGI 3 application for one VM of a simulation; only an `AsgiServer` can drop connections."""
    application = _Application(simulation, vm)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await application.serve(scope, receive, send)

    return app


class _Application:
    def __init__(self, simulation: Simulation, vm: str) -> None:
        self._simulation = simulation
        self._vm = vm
        self._control = Control(simulation)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request.of(scope)
        match = _PLACE.fullmatch(request.path)
        place = match and (match[1] or match[2] or match[4])
        fault = self._simulation.take_fault(place, request.method) if place else None
        if fault and fault.mode == "drop":
            raise HangUpError
        body = (await receive())["body"]
        if place:
            response = await self._metadata(place, request, body, fault)
        else:
            response = self._control.answer(request, body)
        if fault and fault.mode == "drip":
            await _drip(send, response, fault.seconds)
        else:
            await send_response(send, response, {}, head=request.method == "HEAD")

    async def _metadata(self, place: str, request: Request, body: bytes, fault: Fault | None) -> Response:
        faulty = await _disturb(fault)
        if faulty is not None:
            return faulty
        refusal = _refusal(place, request)
        if refusal is not None:
            return refusal
        if not self._simulation.admit(self._vm):
            return _error(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests")
        if place != "scheduledevents":
            return self._facts(place, request)
        while (left := self._simulation.first_call_wait()) > 0:
            await asyncio.sleep(min(left, _LOOK_AGAIN))
        if request.method == "POST":
            return self._approve(body)
        return _tagged(request, self._simulation.document(_version(request)))

    def _facts(self, place: str, request: Request) -> Response:
        if place == "versions":
            return _tagged(request, msgspec.json.encode({"apiVersions": instance.INSTANCE_VERSIONS}))
        path = request.path.removeprefix("/metadata/instance")
        try:
            found = instance.lookup(instance.facts(self._vm, _version(request)), path)
        except LookupError:
            return _error(HTTPStatus.NOT_FOUND, "Not found")
        if _parameter(request, "format") == "text":
            return _tagged(request, instance.as_text(found).encode(errors="replace"), TEXT)
        if isinstance(found, str):
            # As in IMDS, which writes a value alone as text only, and only if it is asked to.
            return _error(HTTPStatus.BAD_REQUEST, "Bad request. A value has no JSON format; add format=text")
        return _tagged(request, msgspec.json.encode(found))

    def _approve(self, body: bytes) -> Response:
        try:
            ids = [one.event_id for one in _start_requests.decode(body).requests]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return _error(HTTPStatus.BAD_REQUEST, "Bad request. The body is malformed")
        if not ids or not all(self._simulation.knows(one) or _is_guid(one) for one in ids):
            return _error(HTTPStatus.BAD_REQUEST, "Bad request. EventId is invalid")
        self._simulation.approve(ids)
        return Response(b"", JSON)


def _refusal(place: str, request: Request) -> Response | None:
    """Check a request as IMDS does; Azure's page on IMDS, "Security and authentication", for the headers."""
    version = _version(request)
    bad = HTTPStatus.BAD_REQUEST
    if request.header(b"x-forwarded-for"):
        return _error(bad, "Bad request. Requests must not hold the X-Forwarded-For header")
    if request.header(b"metadata").lower() != "true" and (place, version) != ("scheduledevents", PREVIEW):
        return _error(bad, "Bad request. Required metadata header not specified")
    if request.method not in _METHODS[place]:
        allowed = (("allow", ", ".join(_METHODS[place])),)
        return _error(HTTPStatus.METHOD_NOT_ALLOWED, "Method not allowed", allowed)
    if place in _VERSIONS and version not in _VERSIONS[place]:
        said = f"api-version '{version}' is not supported" if version else "api-version was not specified"
        newest = list(reversed(_VERSIONS[place][-3:]))
        answer = {"error": f"Bad request. {said}", "newest-versions": newest}
        return Response(msgspec.json.encode(answer), JSON, bad.value)
    return None


async def _disturb(fault: Fault | None) -> Response | None:
    if fault is None:
        return None
    if fault.mode == "delay":
        await asyncio.sleep(fault.seconds)
    elif fault.mode == "error":
        return Response(b'{"error":"Simulated failure"}', JSON, fault.status)
    elif fault.mode == "throttle":
        return _error(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests")
    elif fault.mode == "garbage":
        return Response(b'{"DocumentIncarnation": 1, "Events": [{"EventId": \x00\xff <html>', JSON)
    return None


async def _drip(send: Send, response: Response, seconds: float) -> None:
    headers = [
        (b"content-type", response.content_type.encode()),
        (b"content-length", str(len(response.body)).encode()),
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    for index in range(len(response.body)):
        await send(
            {"type": "http.response.body", "body": response.body[index : index + 1], "more_body": True}
        )
        await asyncio.sleep(seconds)
    await send({"type": "http.response.body", "body": b""})


def _tagged(request: Request, body: bytes, content_type: str = JSON) -> Response:
    """Answer with an entity tag, and with 304 if the client has this very body (RFC 9110, 13.1.2)."""
    tag = f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"'
    known = [one.strip().removeprefix("W/") for one in request.header(b"if-none-match").split(",")]
    if request.method in ("GET", "HEAD") and (tag in known or "*" in known):
        return Response(b"", content_type, HTTPStatus.NOT_MODIFIED.value, (("etag", tag),))
    return Response(body, content_type, headers=(("etag", tag),))


def _version(request: Request) -> str:
    return _parameter(request, "api-version")


def _parameter(request: Request, name: str) -> str:
    return parse_qs(request.query).get(name, [""])[-1]


def _is_guid(value: str) -> bool:
    try:
        return str(uuid.UUID(value)) == value.lower()
    except ValueError:
        return False


def _error(status: HTTPStatus, message: str, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(msgspec.json.encode({"error": message}), JSON, status.value, headers)
