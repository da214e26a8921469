"""The ASGI application: the service's own paths as IMDS has them, and the simulator's page and API."""

import asyncio
import logging
import uuid
from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec

from exporter.serving import AsgiApp, HangUpError, Receive, Scope, Send
from exporter.simulator.control import Control
from exporter.simulator.documents import EVENTS_VERSIONS, INSTANCE_VERSIONS, PREVIEW
from exporter.simulator.faults import Fault
from exporter.simulator.simulation import Simulation
from exporter.web.http import JSON, Request, Response, send_response

log = logging.getLogger(__name__)

_PLACES = {"/metadata/scheduledevents": "scheduledevents", "/metadata/instance": "instance"}
_VERSIONS = {"scheduledevents": EVENTS_VERSIONS, "instance": INSTANCE_VERSIONS}
_METHODS = {"scheduledevents": ("GET", "POST"), "instance": ("GET",)}
# How often a wait looks at the clock, which a test may move by hand.
_LOOK_AGAIN = 0.05


class _StartRequest(msgspec.Struct):
    event_id: str = msgspec.field(name="EventId")


class _StartRequests(msgspec.Struct):
    requests: list[_StartRequest] = msgspec.field(name="StartRequests")


_start_requests = msgspec.json.Decoder(_StartRequests)


def create_app(simulation: Simulation) -> AsgiApp:
    """Make the ASGI 3 application of a simulation; only an `AsgiServer` can let it drop a connection."""
    application = _Application(simulation)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await application.serve(scope, receive, send)

    return app


class _Application:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._control = Control(simulation)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request.of(scope)
        place = _PLACES.get(request.path.rstrip("/"))
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
        if not self._simulation.admit():
            return _error(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests")
        if place == "instance":
            return Response(self._simulation.instance, JSON)
        while (left := self._simulation.first_call_wait()) > 0:
            await asyncio.sleep(min(left, _LOOK_AGAIN))
        if request.method == "POST":
            return self._approve(body)
        return Response(self._simulation.document(_version(request)), JSON)

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
    if version not in _VERSIONS[place]:
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


def _version(request: Request) -> str:
    return parse_qs(request.query).get("api-version", [""])[-1]


def _is_guid(value: str) -> bool:
    try:
        return str(uuid.UUID(value)) == value.lower()
    except ValueError:
        return False


def _error(status: HTTPStatus, message: str, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(msgspec.json.encode({"error": message}), JSON, status.value, headers)
