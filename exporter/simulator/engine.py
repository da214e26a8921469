"""The engine: plays scenarios. It has no clock and no I/O; its caller says what simulated time it is."""

import heapq
import itertools
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from exporter.simulator.scenario import EventPlan, Scenario

# Gives True where what it did changed the document.
_Action = Callable[[], bool]


class Event(msgspec.Struct, eq=False):
    """An event that is played; ``appears``, ``starts`` and ``ends`` are simulated times, planned or past."""

    event_id: str
    scenario: Scenario
    plan: EventPlan
    resources: tuple[str, ...]
    appears: float
    starts: float
    ends: float
    started: bool = False


class Engine:
    """Turns scenarios, simulated time, approvals and triggers into a list of events with an incarnation.

    Times are simulated seconds since the beginning, and never fall. ``incarnation`` grows by one at every
    instant at which the list changes, whether anybody looks or not. Scenarios of the playlist start ``pause``
    seconds after one another; one that is still under way is passed over.
    """

    def __init__(self, playlist: Sequence[Scenario], vm_name: str, *, pause: float, loop: bool) -> None:
        self.incarnation = 0
        self._playlist = tuple(playlist)
        self._vm_name = vm_name
        self._pause = pause
        self._loop = loop
        self._sequence = itertools.count()
        self._agenda: list[tuple[float, int, _Action]] = []
        self._coming: dict[str, Event] = {}
        self._listed: dict[str, Event] = {}
        self._next: tuple[float, Scenario] | None = None
        self._now = 0.0
        if self._playlist:
            self._plan_slot(0)

    @property
    def events(self) -> Sequence[Event]:
        """The events that the document lists, oldest first."""
        return tuple(self._listed.values())

    @property
    def coming(self) -> Sequence[Event]:
        """Events of scenarios under way that have not appeared yet."""
        return tuple(self._coming.values())

    @property
    def next_start(self) -> tuple[float, Scenario] | None:
        """When the playlist goes on, and with what; None where it has ended."""
        return self._next

    def advance(self, now: float) -> None:
        """Let everything happen that is due at ``now``."""
        while self._agenda and self._agenda[0][0] <= now:
            self._now = self._agenda[0][0]
            changed = False
            while self._agenda and self._agenda[0][0] == self._now:
                changed |= heapq.heappop(self._agenda)[2]()
            self.incarnation += changed
        self._now = max(self._now, now)

    def start(self, scenario: Scenario, now: float) -> tuple[str, ...]:
        """Start a scenario, and give the ids of its events; those without delay are listed at once."""
        self.advance(now)
        ids = self._start(scenario)
        self.advance(now)
        return ids

    def approve(self, event_ids: Iterable[str], now: float) -> None:
        """Let Scheduled events start now, for all their VMs; all other ids mean nothing."""
        self.advance(now)
        events = [self._listed.get(event_id.upper()) for event_id in event_ids]
        started = [event for event in events if event is not None and self._begin(event)]
        self.incarnation += bool(started)

    def cancel(self, event_id: str, now: float) -> bool:
        """Take an event back, whatever its status; False where none has that id."""
        self.advance(now)
        event = self._listed.get(event_id.upper())
        self.incarnation += event is not None and self._remove(event)
        return event is not None or self._coming.pop(event_id.upper(), None) is not None

    def clear(self, now: float) -> None:
        """Take all events back, those to come too; the playlist goes on."""
        self.advance(now)
        self.incarnation += bool(self._listed)
        self._listed.clear()
        self._coming.clear()

    def restart_incarnations(self) -> None:
        """Begin counting again, as the service does that was switched off for want of requests."""
        self.incarnation = 1 if self._listed else 0

    def resources(self, scenario: Scenario) -> dict[str, str]:
        """Map the scenario's VMs to those of the simulated VM's group."""
        return dict(zip(scenario.vms, group(self._vm_name, len(scenario.vms)), strict=True))

    def _at(self, time: float, action: _Action) -> None:
        heapq.heappush(self._agenda, (time, next(self._sequence), action))

    def _plan_slot(self, number: int) -> None:
        at, scenario = number * self._pause, self._playlist[number % len(self._playlist)]
        self._next = (at, scenario)
        self._at(at, partial(self._play_slot, number))

    def _play_slot(self, number: int) -> bool:
        scenario = self._playlist[number % len(self._playlist)]
        under_way = any(
            event.scenario is scenario for event in (*self._listed.values(), *self._coming.values())
        )
        if not under_way:
            self._start(scenario)
        self._next = None
        if self._loop or number + 1 < len(self._playlist):
            self._plan_slot(number + 1)
        return False

    def _start(self, scenario: Scenario) -> tuple[str, ...]:
        names = self.resources(scenario)
        ids = []
        for plan in scenario.events:
            appears = self._now + plan.after
            starts = appears + plan.notice
            event = Event(
                event_id=str(uuid.uuid4()).upper(),
                scenario=scenario,
                plan=plan,
                resources=tuple(names[vm] for vm in plan.vms),
                appears=appears,
                starts=starts,
                ends=starts + plan.impact,
            )
            self._coming[event.event_id] = event
            self._at(appears, partial(self._appear, event))
            ids.append(event.event_id)
        return tuple(ids)

    def _appear(self, event: Event) -> bool:
        if self._coming.pop(event.event_id, None) is None:
            return False
        self._listed[event.event_id] = event
        if event.plan.notice <= 0:
            return self._begin(event)
        self._at(event.starts, partial(self._begin, event))
        if event.plan.cancelled_after is not None:
            self._at(event.appears + event.plan.cancelled_after, partial(self._withdraw, event))
        return True

    def _begin(self, event: Event) -> bool:
        if event.started or event.event_id not in self._listed:
            return False
        event.started = True
        event.starts, event.ends = self._now, self._now + event.plan.impact
        self._at(event.ends, partial(self._remove, event))
        return True

    def _withdraw(self, event: Event) -> bool:
        return not event.started and self._remove(event)

    def _remove(self, event: Event) -> bool:
        return self._listed.pop(event.event_id, None) is not None


def group(vm_name: str, size: int) -> tuple[str, ...]:
    """Name a VM and its neighbours: of ``web_2`` ``web_0, web_1``, of ``db`` ``db_1, db_2``."""
    match = re.fullmatch(r"(.*_)(\d+)", vm_name, re.DOTALL)
    prefix, first = (match[1], 0) if match else (f"{vm_name}_", 1)
    names = (f"{prefix}{number}" for number in itertools.count(first))
    neighbours = (name for name in names if name != vm_name)
    return (vm_name, *itertools.islice(neighbours, size - 1))
