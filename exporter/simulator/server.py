"""The simulator's HTTP servers: the paths of IMDS, and the simulator's page and API."""

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from email.utils import format_datetime
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace

from exporter.errors import ConfigurationError
from exporter.serving.addresses import listen
from exporter.serving.http import JSON, TEXT, HangUpError, Request, Response, tagged
from exporter.serving.pages import html_page
from exporter.serving.server import Server
from exporter.simulator.documents import (
    EVENTS_VERSIONS,
    INSTANCE_VERSIONS,
    PREVIEW,
    as_text,
    instance_document,
    lookup,
)
from exporter.simulator.engine import Event
from exporter.simulator.simulation import Fault, Simulator

_SHOWN = 200  # more would make the page slow
_APPROVALS_SHOWN = 20

# Raised by decoding the body of a request.
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_Action = Callable[[str, bytes], Response]


class _Approve(msgspec.Struct):
    ids: list[str]


class _SwitchOff(msgspec.Struct, forbid_unknown_fields=True):
    empty_seconds: float | None = None


class Control:
    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        name = r"/([^/]+)"
        # The page is static: its script fetches the state and inserts it as text.
        routes: dict[str, dict[str, _Action]] = {
            "/": {"GET": lambda _, __: html_page("exporter.simulator")},
            "/api/v1/scenarios": {"GET": lambda _, __: _json(_scenarios(simulator))},
            f"/api/v1/scenarios{name}/start": {"POST": self._start},
            "/api/v1/state": {"GET": lambda _, __: _json(_state(simulator))},
            "/api/v1/approve": {"POST": self._approve},
            "/api/v1/events": {"DELETE": self._clear},
            f"/api/v1/events{name}": {"DELETE": self._cancel},
            "/api/v1/faults": {"PUT": self._set_fault, "DELETE": self._remove_fault},
            "/api/v1/stop": {"POST": self._stop},
            "/api/v1/switch-off": {"POST": self._switch_off},
        }
        self._routes = [(re.compile(f"{pattern}()"), actions) for pattern, actions in routes.items()]

    def answer(self, request: Request, body: bytes) -> Response:
        path = request.path.rstrip("/") or "/"
        for pattern, actions in self._routes:
            match = pattern.fullmatch(path)
            if match:
                return _act(actions, request, match[1], body)
        return refused(HTTPStatus.NOT_FOUND, "Not found")

    def _start(self, name: str, _body: bytes) -> Response:
        if name not in {scenario.name for scenario in self._simulator.scenarios}:
            return refused(HTTPStatus.NOT_FOUND, f"no scenario is named {name!r}")
        return _json({"ids": self._simulator.start_scenario(name)})

    def _approve(self, _name: str, body: bytes) -> Response:
        try:
            ids = msgspec.json.decode(body, type=_Approve).ids
        except MALFORMED:
            return refused(HTTPStatus.BAD_REQUEST, 'send {"ids": [EVENT_ID, ...]}')
        self._simulator.approve(ids)
        return _json({})

    def _clear(self, _name: str, _body: bytes) -> Response:
        self._simulator.clear()
        return _json({})

    def _cancel(self, event_id: str, _body: bytes) -> Response:
        if not self._simulator.cancel(event_id):
            return refused(HTTPStatus.NOT_FOUND, "no event has that id")
        return _json({})

    def _stop(self, _name: str, _body: bytes) -> Response:
        self._simulator.stop()
        return _json({})

    def _switch_off(self, _name: str, body: bytes) -> Response:
        try:
            empty = msgspec.json.decode(body or b"{}", type=_SwitchOff).empty_seconds
        except MALFORMED:
            return refused(HTTPStatus.BAD_REQUEST, 'send {"empty_seconds": SECONDS}')
        self._simulator.switch_off(empty)
        return _json({})

    def _set_fault(self, _name: str, body: bytes) -> Response:
        try:
            fault = msgspec.json.decode(body, type=Fault)
        except MALFORMED as error:
            return refused(HTTPStatus.BAD_REQUEST, f"not a valid fault: {error}")
        self._simulator.set_fault(fault)
        return _json(fault)

    def _remove_fault(self, _name: str, _body: bytes) -> Response:
        self._simulator.set_fault(None)
        return _json(None)


def refused(status: HTTPStatus, message: str, headers: Mapping[str, str] = {}) -> Response:
    return Response(msgspec.json.encode({"error": message}), JSON, status.value, headers)


def _act(actions: dict[str, _Action], request: Request, name: str, body: bytes) -> Response:
    action = actions.get("GET" if request.method == "HEAD" else request.method)
    if action is None:
        allowed = ", ".join((*actions, "HEAD") if "GET" in actions else actions)
        return refused(HTTPStatus.METHOD_NOT_ALLOWED, "Method not allowed", {"allow": allowed})
    if request.method == "POST" and not _is_deliberate(request):
        return refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send content-type: application/json")
    try:
        return action(name, body)
    except ConfigurationError as error:
        return refused(HTTPStatus.BAD_REQUEST, str(error))


def _is_deliberate(request: Request) -> bool:
    """Return whether a page of another site cannot have sent this without a CORS preflight."""
    kind = request.header(b"content-type").partition(";")[0].strip().lower()
    return kind == "application/json" or bool(request.header(b"x-requested-with"))


def _scenarios(simulator: Simulator) -> list[dict[str, object]]:
    return [
        {
            "name": scenario.name,
            "title": scenario.title,
            "description": scenario.description,
            "events": len(scenario.events),
        }
        for scenario in simulator.scenarios
    ]


def _state(simulator: Simulator) -> dict[str, object]:
    picture = simulator.picture()
    upcoming = None
    if picture.next_start is not None:
        at, scenario = picture.next_start
        upcoming = {"at": at, "scenario": scenario.name, "title": scenario.title}
    return {
        "vm_name": simulator.vm_name,
        "speed": simulator.speed,
        "pace": simulator.pace,
        "now": picture.now,
        "service": picture.service,
        "document_incarnation": picture.incarnation,
        "event_count": len(picture.events),
        "events": [_event(simulator, event, event.status) for event in picture.events[:_SHOWN]],
        "coming": [_event(simulator, event, "Coming") for event in picture.coming[:_SHOWN]],
        "next": upcoming,
        "polls": picture.polls,
        "last_poll": picture.last_poll,
        "approvals": picture.approvals[-_APPROVALS_SHOWN:],
        "fault": picture.fault,
    }


def _event(simulator: Simulator, event: Event, status: str) -> dict[str, object]:
    return {
        "id": event.event_id,
        "scenario": event.scenario.name,
        "title": event.scenario.title,
        "type": event.plan.type,
        "source": event.plan.source,
        "status": status,
        "resources": event.resources,
        "description": event.description,
        "duration_in_seconds": event.duration_in_seconds,
        "appears": simulator.wall(event.appears),
        "starts": simulator.wall(event.starts),
        "ends": simulator.wall(event.ends),
    }


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), JSON)


_PLACE = re.compile(r"/metadata/(?:(scheduledevents)|(instance)(/.*)?|(versions))/?", re.DOTALL)
_VERSIONS = {"scheduledevents": EVENTS_VERSIONS, "instance": INSTANCE_VERSIONS}
_METHODS = {"scheduledevents": ("GET", "POST"), "instance": ("GET",), "versions": ("GET",)}
_LOOK_AGAIN_SECONDS = 0.05  # how often a wait checks the clock, which a test may set


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

    def __call__(self, request: Request) -> Response:
        match = _PLACE.fullmatch(request.path)
        place = match and (match[1] or match[2] or match[4])
        if not place:
            return self._control.answer(request, request.body)
        fault = self._simulator.take_fault(place, request.method)
        if fault and fault.mode == "drop":
            raise HangUpError
        response = self._metadata(place, request, fault)
        headers = {"date": format_datetime(self._simulator.now(), usegmt=True), **response.headers}
        response = replace(response, headers=headers)
        if fault and fault.mode == "drip":
            return replace(response, parts=_drip(response.body, fault.seconds))
        return response

    def _metadata(self, place: str, request: Request, fault: Fault | None) -> Response:
        faulty = _disturb(fault)
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
            time.sleep(min(left, _LOOK_AGAIN_SECONDS))
        if request.method == "POST":
            return self._approve(request.body)
        return _tagged(request, self._simulator.document(_version(request)))

    def _facts(self, place: str, request: Request) -> Response:
        if place == "versions":
            return _tagged(request, msgspec.json.encode({"apiVersions": INSTANCE_VERSIONS}))
        path = request.path.removeprefix("/metadata/instance")
        try:
            value = lookup(instance_document(self._vm, _version(request)), path)
        except LookupError:
            return refused(HTTPStatus.NOT_FOUND, "Not found")
        if _parameter(request, "format") == "text":
            return _tagged(request, as_text(value).encode(errors="replace"), TEXT)
        if isinstance(value, str):
            # Like IMDS, which returns a single value only with ``format=text``.
            return refused(HTTPStatus.BAD_REQUEST, "Bad request. A value has no JSON format; add format=text")
        return _tagged(request, msgspec.json.encode(value))

    def _approve(self, body: bytes) -> Response:
        try:
            ids = [start.event_id for start in msgspec.json.decode(body, type=_StartRequests).requests]
        except MALFORMED:
            return refused(HTTPStatus.BAD_REQUEST, "Bad request. The body is malformed")
        if not ids or not all(self._simulator.knows(event_id) or _is_guid(event_id) for event_id in ids):
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


def _disturb(fault: Fault | None) -> Response | None:
    if fault is None:
        return None
    wait = {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
    if fault.mode == "delay":
        time.sleep(fault.seconds)
    elif fault.mode == "error":
        return Response(b'{"error":"Simulated failure"}', JSON, fault.status, wait)
    elif fault.mode == "throttle":
        return refused(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests", wait)
    elif fault.mode == "forbidden":
        return Response(b"", TEXT, HTTPStatus.FORBIDDEN.value, {"connection": "close"})
    elif fault.mode == "garbage":
        return Response(b'{"DocumentIncarnation": 1, "Events": [{"EventId": \x00\xff <html>', JSON)
    return None


def _drip(body: bytes, seconds: float) -> Iterator[bytes]:
    for index in range(len(body)):
        yield body[index : index + 1]
        time.sleep(seconds)


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
