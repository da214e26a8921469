"""The engine with a clock, and with the service's limits, delays and faults."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from exporter.clock import Clock, SystemClock
from exporter.errors import ConfigurationError
from exporter.simulator.documents import events_document
from exporter.simulator.engine import Engine, Event, Scenario, group, load_scenarios

_DAY = 86_400.0  # the service switches itself off after this long without a request
# A little under a second: latency varies, and a client that respects the limit must not be refused.
_LIMIT_SECONDS = 0.9
_MOST_APPROVALS = 1000


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault of requests for ``/metadata``: of the next ``count`` ones, or of all until it is removed.

    ``error`` responds with ``status``, ``throttle`` with 429, both with ``retry_after`` if it is given;
    ``forbidden`` responds with 403 and closes the connection, as the Guest Proxy Agent of Azure's Metadata
    Security Protocol does; ``garbage`` responds with 200 and invalid JSON; ``delay`` waits ``seconds`` before
    a correct response, ``drip`` sends it a byte every ``seconds``; ``drop`` closes the connection without a
    response. ``endpoint`` and ``method`` restrict it.
    """

    mode: Literal["error", "throttle", "forbidden", "delay", "garbage", "drop", "drip"]
    status: int = 500
    retry_after: int | None = None
    seconds: float = 1.0
    count: int | None = None
    endpoint: Literal["scheduledevents", "instance"] | None = None
    method: Literal["GET", "POST"] | None = None

    def __post_init__(self) -> None:
        if not 300 <= self.status <= 599 or self.status == 304:
            raise ConfigurationError("status must be from 300 to 599, and not 304, which has no body")
        if self.retry_after is not None and not 0 <= self.retry_after <= 3600:
            raise ConfigurationError("retry_after must be from 0 to 3600 seconds, or null")
        if not 0 <= self.seconds <= 3600:
            raise ConfigurationError("seconds must be from 0 to 3600")
        if self.count is not None and self.count < 1:
            raise ConfigurationError("count must be 1 or more, or null")


class Accepted(msgspec.Struct, frozen=True):
    """An id that a client has approved, and when (wall clock)."""

    event_id: str
    at: datetime


class SimulationState(msgspec.Struct, frozen=True):
    """A snapshot of the simulation; times are wall-clock times."""

    now: datetime
    service: Literal["off", "empty", "on"]  # off until a request, then empty while no events are listed
    incarnation: int
    events: tuple[Event, ...]
    coming: tuple[Event, ...]
    next_start: tuple[datetime, Scenario] | None
    polls: int
    last_poll: datetime | None
    approvals: tuple[Accepted, ...]
    fault: Fault | None


class Simulator:
    """A simulated VM and its Scheduled Events; thread-safe.

    Simulated time runs ``speed`` times as fast as real time, from construction on. Documents have wall-clock
    times of ``clock``, which may itself be fast: then they are simulated times. The first request switches
    the service on, as does the first one after 24 simulated hours without any: incarnations restart from 0,
    the response takes ``first_call_delay`` real seconds, and then the document is empty for
    ``empty_after_switch_on`` simulated seconds. The scenarios start one after another, ``pause`` simulated
    seconds apart, once or forever, from the first response on. At most ``requests_per_second`` are answered,
    0 lifts the limit. With ``idle``, scenarios start only on request. With more than one of ``instances``, a
    group of VMs, ``vms``, is simulated: each has its own request limit, and scenarios affect one after the
    other.
    """

    def __init__(  # noqa: PLR0913 - options, each with a default
        self,
        scenarios: Sequence[Scenario] = (),
        *,
        speed: float = 1.0,
        loop: bool = False,
        vm_name: str = "demo_0",
        first_call_delay: float = 0.0,
        empty_after_switch_on: float = 0.0,
        clock: Clock | None = None,
        pause: float = 600.0,
        requests_per_second: int = 5,
        idle: bool = False,
        instances: int = 1,
    ) -> None:
        if speed <= 0 or pause <= 0:
            raise ConfigurationError("speed and pause must be above 0")
        if not vm_name:
            raise ConfigurationError("the simulated VM needs a name")
        _check_empty(empty_after_switch_on)
        self.vm_name = vm_name
        self.vms = group(vm_name, instances)
        self.speed = speed
        self._clock = clock or SystemClock()
        self._engine = Engine(self.vms, pause=pause)
        self._playlist = () if idle else tuple(scenarios)  # until the first request
        self._loop = loop
        self._scenarios = {scenario.name: scenario for scenario in (*load_scenarios(), *scenarios)}
        self._first_call_delay = first_call_delay
        self._empty_after_switch_on = empty_after_switch_on
        self._began = self._clock.monotonic()
        self._began_at = self._clock.now()
        self._limit = requests_per_second
        self._admitted: dict[str, deque[float]] = {}
        self._fault: Fault | None = None
        self._ready_at: float | None = None
        self._polls = 0
        self._approvals: deque[Accepted] = deque(maxlen=_MOST_APPROVALS)
        self._override: bytes | None = None
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._clock.now()

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios that can be started by name: the bundled ones and those passed at construction."""
        return tuple(self._scenarios.values())

    def start_scenario(self, name: str | Scenario) -> tuple[str, ...]:
        """Start a scenario now, in parallel to all others, and return the ids of its events."""
        scenario = name if isinstance(name, Scenario) else self._scenarios.get(name)
        if scenario is None:
            raise ConfigurationError(f"no scenario is named {name!r}; there are {', '.join(self._scenarios)}")
        with self._lock:
            return self._engine.start(scenario, self._elapsed())

    def set_document(self, document: bytes | Mapping[str, Any]) -> None:
        """Serve this document under every API version, bytes verbatim."""
        encoded = document if isinstance(document, bytes) else msgspec.json.encode(document)
        with self._lock:
            self._override = encoded

    def set_fault(self, fault: Fault | None) -> None:
        with self._lock:
            self._fault = fault

    def take_fault(self, endpoint: str, method: str) -> Fault | None:
        """Return the fault that applies to a request, and count it."""
        with self._lock:
            fault = self._fault
            if fault is None or fault.endpoint not in {None, endpoint} or fault.method not in {None, method}:
                return None
            if fault.count is not None:
                left = fault.count - 1
                self._fault = msgspec.structs.replace(fault, count=left) if left else None
            return fault

    def admit(self, vm: str = "") -> bool:
        """Count a request against its VM's limit; return False if it has to be refused with 429."""
        if not self._limit:
            return True
        with self._lock:
            now = self._clock.monotonic()
            admitted = self._admitted.setdefault(vm, deque(maxlen=self._limit))
            if len(admitted) == self._limit and now - admitted[0] < _LIMIT_SECONDS:
                return False
            admitted.append(now)
            return True

    def switch_off(self, empty: float | None = None) -> None:
        """Switch off until the next request, as Azure does; ``empty`` replaces ``empty_after_switch_on``."""
        if empty is not None:
            _check_empty(empty)
        with self._lock:
            self._ready_at = None
            if empty is not None:
                self._empty_after_switch_on = empty

    def first_call_wait(self) -> float:
        """Return the real seconds until the service is on, at most 0 if it is; a request switches it on."""
        with self._lock:
            now = self._clock.monotonic()
            if self._ready_at is None or self._is_off():
                self._ready_at = now + self._first_call_delay
                self._last_poll = self._elapsed()
                ready = self._last_poll + self._first_call_delay * self.speed
                self._engine.switch_on(ready + self._empty_after_switch_on)
                self._play(ready)
            return self._ready_at - now

    def _play(self, at: float) -> None:
        """Begin the playlist, unless it has begun."""
        playlist, self._playlist = self._playlist, ()
        if playlist:
            self._engine.play(playlist, at, loop=self._loop)

    def _is_off(self) -> bool:
        return self._ready_at is None or self._elapsed() - self._last_poll >= _DAY

    def document(self, version: str) -> bytes:
        """Return the document of an API version, and count a poll."""
        with self._lock:
            self._last_poll = self._elapsed()
            self._polls += 1
            self._play(self._last_poll)
            if self._override is not None:
                return self._override
            self._engine.advance(self._last_poll)
            return events_document(self._engine.incarnation, self._engine.events, version, self.wall)

    def knows(self, event_id: str) -> bool:
        """Return whether the document set by `set_document` contains an id; generated ids are GUIDs."""
        with self._lock:
            return self._override is not None and event_id.encode() in self._override

    def approve(self, event_ids: Sequence[str]) -> None:
        """Start Scheduled events now, for all their VMs; other ids are only recorded."""
        with self._lock:
            now = self._clock.now()
            self._approvals.extend(Accepted(event_id, now) for event_id in event_ids)
            self._engine.approve(event_ids, self._elapsed())

    @property
    def approvals(self) -> tuple[Accepted, ...]:
        with self._lock:
            return tuple(self._approvals)

    def cancel(self, event_id: str) -> bool:
        with self._lock:
            return self._engine.cancel(event_id, self._elapsed())

    def clear(self) -> None:
        """Remove all events, including those to come of started scenarios; the playlist continues."""
        with self._lock:
            self._engine.clear(self._elapsed())

    def stop(self) -> None:
        """Do as `clear`, end the playlist, and remove the fault and the document that was set."""
        with self._lock:
            self._playlist = ()
            self._engine.stop(self._elapsed())
            self._fault = None
            self._override = None

    def picture(self) -> SimulationState:
        """Return a snapshot, which does not count as a poll."""
        with self._lock:
            engine = self._engine
            engine.advance(self._elapsed())
            upcoming = engine.next_start
            return SimulationState(
                now=self._clock.now(),
                service="off" if self._is_off() else "empty" if engine.empty else "on",
                incarnation=engine.incarnation,
                events=tuple(map(msgspec.structs.replace, engine.events)),
                coming=tuple(engine.coming),
                next_start=(self.wall(upcoming[0]), upcoming[1]) if upcoming else None,
                polls=self._polls,
                last_poll=self.wall(self._last_poll) if self._polls else None,
                approvals=tuple(self._approvals),
                fault=self._fault,
            )

    @property
    def pace(self) -> float:
        """How many simulated seconds pass in one of the wall clock."""
        return self.speed / self._clock.speed

    def wall(self, simulated: float) -> datetime:
        """Return the wall-clock time of a simulated one (seconds since the beginning)."""
        return self._began_at + timedelta(seconds=simulated / self.pace)

    def _elapsed(self) -> float:
        return (self._clock.monotonic() - self._began) * self.speed


def _check_empty(seconds: float) -> None:
    if not 0 <= seconds <= _DAY:
        raise ConfigurationError("the document can be empty for 0 to 86400 seconds after a switch-on")
