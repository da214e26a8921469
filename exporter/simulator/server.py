"""The simulator's HTTP servers: the paths of IMDS, and the simulator's page and API."""

import asyncio
import contextlib
import re
import uuid
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace

from exporter.serving.addresses import listen
from exporter.serving.http import JSON, TEXT, HangUpError, Request, Response, tagged
from exporter.serving.server import Server
from exporter.simulator.control import MALFORMED, Control, refused
from exporter.simulator.documents import (
    EVENTS_VERSIONS,
    INSTANCE_VERSIONS,
    PREVIEW,
    as_text,
    instance_document,
    lookup,
)
from exporter.simulator.simulation import Fault, Simulator

_PLACE = re.compile(r"/metadata/(?:(scheduledevents)|(instance)(/.*)?|(versions))/?", re.DOTALL)
_VERSIONS = {"scheduledevents": EVENTS_VERSIONS, "instance": INSTANCE_VERSIONS}
_METHODS = {"scheduledevents": ("GET", "POST"), "instance": ("GET",), "versions": ("GET",)}
# How often a wait checks the clock, which a test may set.
_LOOK_AGAIN_SECONDS = 0.05


class _StartRequest(msgspec.Struct):
    event_id: str = msgspec.field(name="EventId")


class _StartRequests(msgspec.Struct):
    requests: list[_StartRequest] = msgspec.field(name="StartRequests")


class SimulatorServer:
    """Serves each VM of a simulator on its own port: the given one and those after it, or any if it is 0."""

    def __init__(self, simulator: Simulator, address: str = "127.0.0.1:0") -> None:
        self.simulator = simulator
        with contextlib.ExitStack() as undo:
            listeners = [
                (vm, undo.enter_context(listen(_nth(address, number))))
                for number, vm in enumerate(simulator.vms)
            ]
            undo.pop_all()
        self._servers = {vm: Server(Application(simulator, vm), listener) for vm, listener in listeners}

    @property
    def url(self) -> str:
        """The endpoint to give to the client of the first VM: a URL without path."""
        return self._servers[self.simulator.vm_name].url

    @property
    def urls(self) -> dict[str, str]:
        return {vm: server.url for vm, server in self._servers.items()}

    def start(self) -> None:
        for server in self._servers.values():
            server.start()

    def stop(self, timeout: float = 1.0) -> None:
        for server in self._servers.values():
            server.stop(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _nth(address: str, number: int) -> str:
    host, _, port = address.rpartition(":")
    if not number or not (port.isascii() and port.isdigit()) or not int(port):
        return address
    return f"{host}:{int(port) + number}"


class Application:
    def __init__(self, simulator: Simulator, vm: str) -> None:
        self._simulator = simulator
        self._vm = vm
        self._control = Control(simulator)

    async def __call__(self, request: Request) -> Response:
        match = _PLACE.fullmatch(request.path)
        place = match and (match[1] or match[2] or match[4])
        if not place:
            return self._control.answer(request, request.body)
        fault = self._simulator.take_fault(place, request.method)
        if fault and fault.mode == "drop":
            raise HangUpError
        response = await self._metadata(place, request, fault)
        if fault and fault.mode == "drip":
            return replace(response, parts=_drip(response.body, fault.seconds))
        return response

    async def _metadata(self, place: str, request: Request, fault: Fault | None) -> Response:
        faulty = await _disturb(fault)
        if faulty is not None:
            return faulty
        refusal = _refusal(place, request)
        if refusal is not None:
            return refusal
        if not self._simulator.admit(self._vm):
            return refused(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests")
        if place != "scheduledevents":
            return self._facts(place, request)
        while (left := self._simulator.first_call_wait()) > 0:
            await asyncio.sleep(min(left, _LOOK_AGAIN_SECONDS))
        if request.method == "POST":
            return self._approve(request.body)
        return _tagged(request, self._simulator.document(_version(request)))

    def _facts(self, place: str, request: Request) -> Response:
        if place == "versions":
            return _tagged(request, msgspec.json.encode({"apiVersions": INSTANCE_VERSIONS}))
        path = request.path.removeprefix("/metadata/instance")
        try:
            found = lookup(instance_document(self._vm, _version(request)), path)
        except LookupError:
            return refused(HTTPStatus.NOT_FOUND, "Not found")
        if _parameter(request, "format") == "text":
            return _tagged(request, as_text(found).encode(errors="replace"), TEXT)
        if isinstance(found, str):
            # Like IMDS, which returns a single value only with ``format=text``.
            return refused(HTTPStatus.BAD_REQUEST, "Bad request. A value has no JSON format; add format=text")
        return _tagged(request, msgspec.json.encode(found))

    def _approve(self, body: bytes) -> Response:
        try:
            ids = [one.event_id for one in msgspec.json.decode(body, type=_StartRequests).requests]
        except MALFORMED:
            return refused(HTTPStatus.BAD_REQUEST, "Bad request. The body is malformed")
        if not ids or not all(self._simulator.knows(one) or _is_guid(one) for one in ids):
            return refused(HTTPStatus.BAD_REQUEST, "Bad request. EventId is invalid")
        self._simulator.approve(ids)
        return Response(b"", JSON)


def _refusal(place: str, request: Request) -> Response | None:
    """Check a request as IMDS does; Azure's page on IMDS, "Security and authentication", for the headers."""
    version = _version(request)
    bad = HTTPStatus.BAD_REQUEST
    if request.header(b"x-forwarded-for"):
        return refused(bad, "Bad request. Requests must not hold the X-Forwarded-For header")
    if request.header(b"metadata").lower() != "true" and (place, version) != ("scheduledevents", PREVIEW):
        return refused(bad, "Bad request. Required metadata header not specified")
    if request.method not in _METHODS[place]:
        allowed = {"allow": ", ".join(_METHODS[place])}
        return refused(HTTPStatus.METHOD_NOT_ALLOWED, "Method not allowed", allowed)
    if place in _VERSIONS and version not in _VERSIONS[place]:
        said = f"api-version '{version}' is not supported" if version else "api-version was not specified"
        newest = list(reversed(_VERSIONS[place][-3:]))
        answer = {"error": f"Bad request. {said}", "newest-versions": newest}
        # Of Scheduled Events, clients expect 404 for a version that is not available.
        is_missing = place == "scheduledevents" and re.fullmatch(r"\d{4}-\d\d-\d\d", version)
        status = HTTPStatus.NOT_FOUND if is_missing else bad
        return Response(msgspec.json.encode(answer), JSON, status.value)
    return None


async def _disturb(fault: Fault | None) -> Response | None:
    if fault is None:
        return None
    wait = {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
    if fault.mode == "delay":
        await asyncio.sleep(fault.seconds)
    elif fault.mode == "error":
        return Response(b'{"error":"Simulated failure"}', JSON, fault.status, wait)
    elif fault.mode == "throttle":
        return refused(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests", wait)
    elif fault.mode == "forbidden":
        return Response(b"", TEXT, HTTPStatus.FORBIDDEN.value, {"connection": "close"})
    elif fault.mode == "garbage":
        return Response(b'{"DocumentIncarnation": 1, "Events": [{"EventId": \x00\xff <html>', JSON)
    return None


async def _drip(body: bytes, seconds: float) -> AsyncIterator[bytes]:
    for index in range(len(body)):
        yield body[index : index + 1]
        await asyncio.sleep(seconds)


def _tagged(request: Request, body: bytes, content_type: str = JSON) -> Response:
    return tagged(request, Response(body, content_type))


def _version(request: Request) -> str:
    return _parameter(request, "api-version")


def _parameter(request: Request, name: str) -> str:
    return dict(parse_qsl(request.query)).get(name, "")


def _is_guid(value: str) -> bool:
    try:
        return str(uuid.UUID(value)) == value.lower()
    except ValueError:
        return False
