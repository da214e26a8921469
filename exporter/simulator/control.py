"""The simulator's own page and API: look, start a scenario, approve, cancel, stop, and cause faults."""

import re
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus

import msgspec

from exporter.errors import ConfigurationError
from exporter.simulator.engine import Event
from exporter.simulator.faults import Fault
from exporter.simulator.page import page
from exporter.simulator.simulation import Approval, Simulation
from exporter.web.http import JSON, Request, Response

# More than that nobody reads, and a browser would choke on it.
_SHOWN = 200
_APPROVALS_SHOWN = 20

_Action = Callable[[str, bytes], Response]


class EventState(msgspec.Struct, frozen=True):
    """An event as ``/api/v1/state`` shows it; ``status`` is Coming before it appears."""

    id: str
    scenario: str
    title: str
    type: str
    source: str
    status: str
    resources: tuple[str, ...]
    description: str
    duration_in_seconds: int
    appears: datetime
    starts: datetime
    ends: datetime


class ScenarioView(msgspec.Struct, frozen=True):
    """A scenario as ``/api/v1/scenarios`` lists it."""

    name: str
    title: str
    description: str
    events: int


class Next(msgspec.Struct, frozen=True):
    """What the playlist starts next, and when."""

    at: datetime
    scenario: str
    title: str


class State(msgspec.Struct, frozen=True):
    """The body of ``/api/v1/state``; ``events`` are at most 200 of ``event_count``.

    ``service`` is ``off``, ``empty`` (a short time after it was switched on) or ``on``.
    """

    vm_name: str
    speed: float
    now: datetime
    service: str
    document_incarnation: int
    event_count: int
    events: tuple[EventState, ...]
    coming: tuple[EventState, ...]
    next: Next | None
    polls: int
    last_poll: datetime | None
    approvals: tuple[Approval, ...]
    fault: Fault | None
    overridden: bool


class _Approve(msgspec.Struct):
    ids: list[str]


class _SwitchOff(msgspec.Struct, forbid_unknown_fields=True):
    empty_seconds: float | None = None


class Control:
    """Answers everything outside ``/metadata``."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        name = r"/([^/]+)"
        fault: dict[str, _Action] = {
            "GET": lambda _, __: _json(simulation.picture().fault),
            "PUT": self._set_fault,
            "POST": self._set_fault,
            "DELETE": self._no_fault,
        }
        routes: dict[str, dict[str, _Action]] = {
            "/": {"GET": lambda _, __: page()},
            "/api/v1/scenarios": {"GET": lambda _, __: _json(_scenarios(simulation))},
            f"/api/v1/scenarios{name}/start": {"POST": self._start},
            "/api/v1/state": {"GET": lambda _, __: _json(_state(simulation))},
            "/api/v1/approve": {"POST": self._approve},
            "/api/v1/events": {"DELETE": self._clear},
            f"/api/v1/events{name}": {"DELETE": self._cancel},
            "/api/v1/faults": fault,
            "/api/v1/stop": {"POST": self._stop},
            "/api/v1/switch-off": {"POST": self._switch_off},
        }
        self._routes = [(re.compile(f"{pattern}()"), actions) for pattern, actions in routes.items()]

    def answer(self, request: Request, body: bytes) -> Response:
        """Answer a request; 404 and 405 included."""
        path = request.path.rstrip("/") or "/"
        for pattern, actions in self._routes:
            match = pattern.fullmatch(path)
            if match:
                return self._act(actions, request, match[1], body)
        return _refused(HTTPStatus.NOT_FOUND, "Not found")

    def _act(self, actions: dict[str, _Action], request: Request, name: str, body: bytes) -> Response:
        action = actions.get("GET" if request.method == "HEAD" else request.method)
        if action is None:
            allowed = (*actions, "HEAD") if "GET" in actions else tuple(actions)
            return _refused(
                HTTPStatus.METHOD_NOT_ALLOWED, "Method not allowed", (("allow", ", ".join(allowed)),)
            )
        if request.method == "POST" and not _is_deliberate(request):
            return _refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send content-type: application/json")
        try:
            return action(name, body)
        except ConfigurationError as error:
            return _refused(HTTPStatus.BAD_REQUEST, str(error))

    def _start(self, name: str, _: bytes) -> Response:
        if name not in {scenario.name for scenario in self._simulation.scenarios}:
            return _refused(HTTPStatus.NOT_FOUND, f"no scenario is named {name!r}")
        return _json({"ids": self._simulation.start_scenario(name)})

    def _approve(self, _: str, body: bytes) -> Response:
        try:
            ids = msgspec.json.decode(body, type=_Approve).ids
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return _refused(HTTPStatus.BAD_REQUEST, 'send {"ids": [EVENT_ID, ...]}')
        self._simulation.approve(ids)
        return _json({})

    def _clear(self, _: str, __: bytes) -> Response:
        self._simulation.clear()
        return _json({})

    def _cancel(self, name: str, _: bytes) -> Response:
        if not self._simulation.cancel(name):
            return _refused(HTTPStatus.NOT_FOUND, "no event has that id")
        return _json({})

    def _stop(self, _: str, __: bytes) -> Response:
        self._simulation.stop()
        return _json({})

    def _set_fault(self, _: str, body: bytes) -> Response:
        self._simulation.set_fault(Fault.parse(body))
        return _json(self._simulation.picture().fault)

    def _switch_off(self, _: str, body: bytes) -> Response:
        try:
            empty = msgspec.json.decode(body or b"{}", type=_SwitchOff).empty_seconds
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return _refused(HTTPStatus.BAD_REQUEST, 'send {"empty_seconds": SECONDS}')
        self._simulation.switch_off(empty)
        return _json({})

    def _no_fault(self, _: str, __: bytes) -> Response:
        self._simulation.set_fault(None)
        return _json(None)


def _is_deliberate(request: Request) -> bool:
    """Return whether another site's page cannot have sent this: its browser would ask us first."""
    kind = request.header(b"content-type").partition(";")[0].strip().lower()
    return kind == "application/json" or bool(request.header(b"x-requested-with"))


def _scenarios(simulation: Simulation) -> list[ScenarioView]:
    return [
        ScenarioView(one.name, one.title, one.description, len(one.events)) for one in simulation.scenarios
    ]


def _state(simulation: Simulation) -> State:
    picture = simulation.picture()
    upcoming = picture.next_start
    return State(
        vm_name=simulation.vm_name,
        speed=simulation.speed,
        now=picture.now,
        service=picture.service,
        document_incarnation=picture.incarnation,
        event_count=len(picture.events),
        events=_events(simulation, picture.events, listed=True),
        coming=_events(simulation, picture.coming, listed=False),
        next=Next(upcoming[0], upcoming[1].name, upcoming[1].title) if upcoming else None,
        polls=picture.polls,
        last_poll=picture.last_poll,
        approvals=picture.approvals[-_APPROVALS_SHOWN:],
        fault=picture.fault,
        overridden=picture.overridden,
    )


def _events(simulation: Simulation, events: tuple[Event, ...], *, listed: bool) -> tuple[EventState, ...]:
    return tuple(_event(simulation, event, listed=listed) for event in events[:_SHOWN])


def _event(simulation: Simulation, event: Event, *, listed: bool) -> EventState:
    return EventState(
        id=event.event_id,
        scenario=event.scenario.name,
        title=event.scenario.title,
        type=event.plan.type,
        source=event.plan.source,
        status=event.status if listed else "Coming",
        resources=event.resources,
        description=event.description,
        duration_in_seconds=event.duration_in_seconds,
        appears=simulation.wall(event.appears),
        starts=simulation.wall(event.starts),
        ends=simulation.wall(event.ends),
    )


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), JSON)


def _refused(status: HTTPStatus, message: str, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(msgspec.json.encode({"error": message}), JSON, status.value, headers)
