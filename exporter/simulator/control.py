"""The simulator's page and API: show the state, start, approve, cancel and stop, and inject faults."""

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec

from exporter.errors import ConfigurationError
from exporter.serving.http import JSON, Request, Response, html_page
from exporter.simulator.engine import Event
from exporter.simulator.simulation import Fault, Simulator

# More would make the page slow.
_SHOWN = 200
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
    """Return an error response, as JSON."""
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
        {"name": one.name, "title": one.title, "description": one.description, "events": len(one.events)}
        for one in simulator.scenarios
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
        "overridden": picture.overridden,
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
