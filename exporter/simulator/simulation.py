"""The simulation: the engine under a clock, with the service's habits around it."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from exporter.clock import Clock, SystemClock
from exporter.errors import ConfigurationError
from exporter.simulator.documents import events_document
from exporter.simulator.engine import Engine, Event, group
from exporter.simulator.faults import Fault, Faults
from exporter.simulator.scenario import Scenario, load_scenarios

PAUSE = 600.0
# How long the service waits for a request before it switches itself off.
_DAY = 86_400.0
# A little under the second that the limit speaks of: the way to here does not always take equally long, and a
# client that keeps to the limit is not to be refused for it.
_LIMIT_SECONDS = 0.9


class Approval(msgspec.Struct, frozen=True):
    """An id that a client has approved, and when (wall clock)."""

    event_id: str
    at: datetime


class Picture(msgspec.Struct, frozen=True):
    """The simulation at one instant, for whoever looks at it; times are wall-clock times.

    ``service`` is ``off`` until a request switches it on, and ``empty`` while it lists no events afterwards.
    """

    now: datetime
    service: Literal["off", "empty", "on"]
    incarnation: int
    events: tuple[Event, ...]
    coming: tuple[Event, ...]
    next_start: tuple[datetime, Scenario] | None
    polls: int
    last_poll: datetime | None
    approvals: tuple[Approval, ...]
    fault: Fault | None
    overridden: bool


class Simulation:
    """A simulated VM and its Scheduled Events; thread-safe.

    Simulated time runs ``speed`` times as fast as the clock, from construction on. The scenarios start one
    after another, ``pause`` simulated seconds apart, once or for ever. The first request switches the service
    on, as does the first one after 24 simulated hours without any: incarnations start again from 0, the
    answer takes ``first_call_delay`` real seconds, and then the document is empty for
    ``empty_after_switch_on`` simulated seconds. At most ``requests_per_second`` are answered, 0 lifts the
    limit. With ``idle`` no scenario starts unless it is asked for. With more than one of ``instances`` it is
    a group of VMs, ``vms``: each has a limit of its own, and scenarios affect one after the other.

    Raises:
        ConfigurationError: a number is out of its range.
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
        pause: float = PAUSE,
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
        self._engine = Engine(() if idle else scenarios, self.vms, pause=pause, loop=loop)
        self._given = {scenario.name: scenario for scenario in scenarios}
        self._first_call_delay = first_call_delay
        self._empty_after_switch_on = empty_after_switch_on
        self._began = self._clock.monotonic()
        self._began_at = self._clock.now()
        self._limit = requests_per_second
        self._admitted: dict[str, deque[float]] = {}
        self._faults = Faults()
        self._is_on = False
        self._ready_at = 0.0
        self._last_poll = 0.0
        self._polls = 0
        self._approvals: deque[Approval] = deque(maxlen=1000)
        self._override: bytes | None = None
        self._rendered: tuple[int, dict[str, bytes]] = (-1, {})
        self._lock = threading.Lock()

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Those that can be started by name: the bundled ones, and any others that it was made with."""
        return tuple(({scenario.name: scenario for scenario in load_scenarios()} | self._given).values())

    def start_scenario(self, name: str | Scenario) -> tuple[str, ...]:
        """Start a scenario now, beside all others, and return the ids of its events.

        Raises:
            ConfigurationError: no scenario has that name.
        """
        known = {scenario.name: scenario for scenario in self.scenarios}
        scenario = name if isinstance(name, Scenario) else known.get(name)
        if scenario is None:
            raise ConfigurationError(f"no scenario is named {name!r}; there are: {', '.join(known)}")
        with self._lock:
            return self._engine.start(scenario, self._elapsed())

    def set_document(self, document: bytes | Mapping[str, Any] | None) -> None:
        """Serve that instead, to the letter where it is bytes, under every API version; None: play on."""
        encoded = (
            document if document is None or isinstance(document, bytes) else msgspec.json.encode(document)
        )
        with self._lock:
            self._override = encoded

    def set_fault(self, fault: Fault | None) -> None:
        """Set the fault that requests meet, or remove it.

        Raises:
            ConfigurationError: one of its numbers is out of its range.
        """
        if fault is not None:
            fault.check()
        with self._lock:
            self._faults.current = fault

    def take_fault(self, endpoint: str, method: str) -> Fault | None:
        """Return the fault that a request meets, and count it."""
        with self._lock:
            return self._faults.take(endpoint, method)

    def admit(self, vm: str = "") -> bool:
        """Count a request of a VM against its limit; False where it has to be refused with 429."""
        with self._lock:
            now = self._clock.monotonic()
            admitted = self._admitted.setdefault(vm, deque(maxlen=self._limit or 1))
            if self._limit and len(admitted) == self._limit and now - admitted[0] < _LIMIT_SECONDS:
                return False
            admitted.append(now)
            return True

    def switch_off(self, empty: float | None = None) -> None:
        """Switch the service off, as after 24 hours without a request; the next request switches it on.

        ``empty`` replaces ``empty_after_switch_on`` from then on.

        Raises:
            ConfigurationError: ``empty`` is out of its range.
        """
        if empty is not None:
            _check_empty(empty)
        with self._lock:
            self._is_on = False
            if empty is not None:
                self._empty_after_switch_on = empty

    def first_call_wait(self) -> float:
        """Return the real seconds until the service is switched on; the first request switches it on."""
        with self._lock:
            now = self._clock.monotonic()
            if self._is_off():
                self._is_on = True
                self._ready_at = now + self._first_call_delay
                self._last_poll = self._elapsed()
                ready = self._last_poll + self._first_call_delay * self.speed
                self._engine.switch_on(self._last_poll, ready + self._empty_after_switch_on)
                self._rendered = (-1, {})
            return max(0.0, self._ready_at - now)

    def _is_off(self) -> bool:
        return not self._is_on or self._elapsed() - self._last_poll >= _DAY

    def document(self, version: str) -> bytes:
        """Return the document as an API version knows it, and count a poll."""
        with self._lock:
            self._last_poll = self._elapsed()
            self._polls += 1
            if self._override is not None:
                return self._override
            self._engine.advance(self._last_poll)
            if self._rendered[0] != self._engine.incarnation:
                self._rendered = (self._engine.incarnation, {})
            bodies = self._rendered[1]
            if version not in bodies:
                engine = self._engine
                bodies[version] = events_document(engine.incarnation, engine.events, version, self.wall)
            return bodies[version]

    def knows(self, event_id: str) -> bool:
        """Return whether the document that was set by hand mentions an id; those of our own are GUIDs."""
        with self._lock:
            return self._override is not None and event_id.encode() in self._override

    def approve(self, event_ids: Sequence[str]) -> None:
        """Start Scheduled events now, for all their VMs; other ids are noted only."""
        with self._lock:
            now = self._clock.now()
            self._approvals.extend(Approval(event_id, now) for event_id in event_ids)
            self._engine.approve(event_ids, self._elapsed())

    @property
    def approvals(self) -> tuple[Approval, ...]:
        """What clients have approved, oldest first; the newest thousand."""
        with self._lock:
            return tuple(self._approvals)

    def cancel(self, event_id: str) -> bool:
        """Take an event back; False where none has that id."""
        with self._lock:
            return self._engine.cancel(event_id, self._elapsed())

    def clear(self) -> None:
        """Take all events back, those to come of scenarios under way too; the playlist goes on."""
        with self._lock:
            self._engine.clear(self._elapsed())

    def stop(self) -> None:
        """Do as `clear`, end the playlist, and remove the fault and the document that was set."""
        with self._lock:
            self._engine.stop(self._elapsed())
            self._faults.current = None
            self._override = None

    def picture(self) -> Picture:
        """Return everything at once; it counts as no poll."""
        with self._lock:
            engine = self._engine
            engine.advance(self._elapsed())
            upcoming = engine.next_start
            return Picture(
                now=self._clock.now(),
                service="off" if self._is_off() else "empty" if engine.empty else "on",
                incarnation=engine.incarnation,
                events=tuple(map(msgspec.structs.replace, engine.events)),
                coming=tuple(engine.coming),
                next_start=(self.wall(upcoming[0]), upcoming[1]) if upcoming else None,
                polls=self._polls,
                last_poll=self.wall(self._last_poll) if self._polls else None,
                approvals=tuple(self._approvals),
                fault=self._faults.current,
                overridden=self._override is not None,
            )

    def wall(self, simulated: float) -> datetime:
        """Return the wall-clock time of a simulated one (seconds since the beginning)."""
        return self._began_at + timedelta(seconds=simulated / self.speed)

    def _elapsed(self) -> float:
        return (self._clock.monotonic() - self._began) * self.speed


def _check_empty(seconds: float) -> None:
    if not 0 <= seconds <= _DAY:
        raise ConfigurationError("the document can be empty for 0 to 86400 seconds after a switch-on")
