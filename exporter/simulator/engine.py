"""Scenarios, read from YAML files, and the engine that plays them.

It has no clock and no I/O; callers pass the simulated time.
"""

import heapq
import itertools
import math
import re
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from exporter.config import loading, yamlfile
from exporter.config.yamlfile import Keys, YamlFile
from exporter.errors import ConfigurationError, did_you_mean
from exporter.timefmt import Duration, format_duration

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FILES = (".yaml", ".yml")


class EventChange(msgspec.Struct, frozen=True):
    """A change of an event, ``after`` it appeared; unspecified fields stay unchanged."""

    after: Duration
    vms: tuple[str, ...] | None = None
    notice: Duration | None = None  # from the change to the new start, while the event is still Scheduled
    description: str | None = None
    duration_in_seconds: int | None = None


class EventPlan(msgspec.Struct, frozen=True):
    """One event of a scenario; durations are simulated seconds."""

    type: Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "SpotRebalanceRecommendation"]
    vms: tuple[str, ...]
    notice: Duration  # for which it is Scheduled; 0: never
    impact: Duration  # for which it is Started, before it is removed
    after: Duration = 0  # from the start of the scenario until it appears
    advisory: Duration = 0  # for which it is Advisory before; 0: never
    cancelled_after: Duration | None = None  # from its appearance until it is removed without a start
    returns_after: Duration | None = None  # from its removal until it is listed again, under the same id
    renews_id: bool = False  # whether it gets a new id at each change, including those of its status
    changes: tuple[EventChange, ...] = ()
    source: Literal["Platform", "User"] = "Platform"
    description: str = ""
    duration_in_seconds: int = -1  # what Azure announces; -1: unknown


class Scenario(msgspec.Struct, frozen=True):
    """One or more events."""

    name: str
    title: str
    description: str
    vms: tuple[str, ...]  # the first is the simulated VM itself, and takes its name; then its neighbours
    events: tuple[EventPlan, ...]
    position: int = 0  # among the bundled scenarios


def load_scenarios(names: Sequence[str] | None = None) -> tuple[Scenario, ...]:
    """Load scenarios by name, or by path if it ends in .yaml or .yml; without names, all bundled ones."""
    bundled = _bundled()
    scenarios = []
    for name in names or bundled:
        if name.endswith(_FILES):
            scenarios.append(_scenario(yamlfile.read(Path(name))))
        elif name in bundled:
            scenarios.append(bundled[name])
        else:
            shown = yamlfile.repeated(name, ()) or "the value"
            raise ConfigurationError(f"--scenario: {shown} is not a scenario; {did_you_mean(name, bundled)}")
    return tuple(scenarios)


@cache
def _bundled() -> dict[str, Scenario]:
    folder = resources.files("exporter.simulator").joinpath("scenarios")
    files = [file for file in folder.iterdir() if file.name.endswith(_FILES)]
    parsed = [yamlfile.parse(file.read_text(encoding="utf-8"), Path(file.name)) for file in files]
    scenarios = sorted(map(_scenario, parsed), key=lambda scenario: (scenario.position, scenario.name))
    return {scenario.name: scenario for scenario in scenarios}


def _scenario(file: YamlFile) -> Scenario:
    scenario = loading.convert(file, Scenario)
    if not _NAME.fullmatch(scenario.name):
        raise file.error(("name",), "must be of lower-case letters, digits and single hyphens")
    if not scenario.vms or len(set(scenario.vms)) < len(scenario.vms):
        raise file.error(("vms",), "must name each VM of the group once, at least one")
    if not scenario.events:
        raise file.error(("events",), "must hold an event at least")
    for index, event in enumerate(scenario.events):
        _check(file, ("events", index), event, scenario.vms)
    return scenario


def _check(file: YamlFile, keys: Keys, event: EventPlan, group: tuple[str, ...]) -> None:
    _check_content(file, keys, event, group)
    starts = _check_changes(file, keys, event, group)
    if event.cancelled_after is not None and not 0 < event.cancelled_after < starts:
        problem = f"must be more than 0s and less than {format_duration(starts)}, when the event starts"
        raise file.error((*keys, "cancelled_after"), problem)
    if event.returns_after is not None and event.returns_after <= 0:
        raise file.error((*keys, "returns_after"), "must be more than 0s")


def _check_changes(file: YamlFile, keys: Keys, event: EventPlan, group: tuple[str, ...]) -> float:
    """Return when the event starts after all changes, in seconds from its appearance."""
    previous, starts = 0.0, event.advisory + event.notice
    for index, change in enumerate(event.changes):
        place = (*keys, "changes", index)
        _check_content(file, place, change, group)
        ends = starts + event.impact if event.cancelled_after is None else event.cancelled_after
        if not previous < change.after < ends:
            bounds = f"more than {format_duration(previous)} and less than {format_duration(ends)}"
            raise file.error((*place, "after"), f"must be {bounds}, when the event goes")
        if change.notice is not None:
            if not event.advisory <= change.after < starts:
                raise file.error((*place, "notice"), "can change only while the event is Scheduled")
            starts = change.after + change.notice
        if not event.renews_id and change == EventChange(change.after):
            raise file.error(place, "must have at least one of vms, notice, description, duration_in_seconds")
        previous = change.after
    return starts


def _check_content(
    file: YamlFile, keys: Keys, content: EventPlan | EventChange, group: tuple[str, ...]
) -> None:
    strangers = [vm for vm in content.vms or () if vm not in group]
    if strangers:
        raise file.error((*keys, "vms"), f"{strangers[0]} is not among the scenario's vms; add it there")
    if content.duration_in_seconds is not None and content.duration_in_seconds < -1:
        raise file.error((*keys, "duration_in_seconds"), "must be -1 (unknown), 0 (none) or more")


_Action = Callable[[], bool]  # returns whether it changed the list of events


class Event(msgspec.Struct):
    """The state of an event; ``appears`` and ``starts`` are simulated times, planned or past."""

    event_id: str  # the newest, if the plan renews it
    scenario: Scenario
    plan: EventPlan
    names: Mapping[str, str]  # the real names of the scenario's VMs
    status: Literal["Advisory", "Scheduled", "Started"]
    resources: tuple[str, ...]
    description: str
    duration_in_seconds: int
    appears: float
    starts: float

    @property
    def started(self) -> bool:
        return self.status == "Started"

    @property
    def ends(self) -> float:
        return self.starts + self.plan.impact


class Engine:
    """Turns scenarios, simulated time, approvals and triggers into a list of events with an incarnation.

    Times are simulated seconds since the beginning, and never fall. ``incarnation`` grows by one at every
    instant at which the list changes, whether or not it is fetched; while the document is ``empty`` after a
    switch-on, it does not change. Scenarios of the playlist start ``pause`` seconds after one another; a
    scenario that is still in progress is skipped. ``next_start`` is when the playlist continues, and with
    which scenario; None after its end. Each scenario affects the next of ``vms``; one that needs more VMs
    than exist affects made-up ones, too.
    """

    def __init__(self, vms: Sequence[str], *, pause: float) -> None:
        self.incarnation = 0
        self.empty = False
        self.next_start: tuple[float, Scenario] | None = None
        self._playlist: Iterator[Scenario] = iter(())
        self._vms = deque(vms)
        self._pause = pause
        self._sequence = itertools.count()
        self._agenda: list[tuple[float, int, _Action]] = []
        self._coming: dict[str, Event] = {}
        self._listed: dict[str, Event] = {}
        self._now = self._empty_until = -math.inf

    @property
    def events(self) -> Sequence[Event]:
        """The events that the document lists, oldest first."""
        return () if self.empty else tuple(self._listed.values())

    @property
    def coming(self) -> Sequence[Event]:
        """Events of started scenarios that have not appeared yet."""
        return tuple(self._coming.values())

    def play(self, playlist: Sequence[Scenario], at: float, *, loop: bool) -> None:
        self._playlist = itertools.cycle(playlist) if loop else iter(playlist)
        self._plan_next(at)

    def advance(self, now: float) -> None:
        """Carry out everything that is due at ``now``."""
        while self._agenda and self._agenda[0][0] <= now:
            self._now = self._agenda[0][0]
            changed = False
            while self._agenda and self._agenda[0][0] == self._now:
                changed |= heapq.heappop(self._agenda)[2]()
            self._count(changed=changed)
        self._now = max(self._now, now)

    def start(self, scenario: Scenario, now: float) -> tuple[str, ...]:
        self.advance(now)
        return self._start(scenario)

    def approve(self, event_ids: Iterable[str], now: float) -> None:
        """Start Scheduled events now, for all their VMs; other ids, including outdated ones, are ignored."""
        self.advance(now)
        listed = {event.event_id: event for event in self.events}
        approved = [listed.get(event_id.upper()) for event_id in event_ids]
        started = [self._begin(event) for event in approved if event and event.status == "Scheduled"]
        self._count(changed=any(started))

    def cancel(self, event_id: str, now: float) -> bool:
        """Remove an event for good, whatever its status; return False if none has that id."""
        self.advance(now)
        listed = self._listed.pop(event_id.upper(), None) is not None
        self._count(changed=listed)
        return listed or self._coming.pop(event_id.upper(), None) is not None

    def clear(self, now: float) -> None:
        """Remove all events for good, including those to come; the playlist continues."""
        self.advance(now)
        changed = bool(self._listed)
        self._listed.clear()
        self._coming.clear()
        self._count(changed=changed)

    def stop(self, now: float) -> None:
        """Do as `clear`, and end the playlist."""
        self._playlist, self.next_start = iter(()), None
        self.clear(now)

    def switch_on(self, empty_until: float) -> None:
        """Restart the incarnations with an empty document, as the service does when it is switched on."""
        self.incarnation = 0
        self.empty, self._empty_until = True, empty_until
        self._at(empty_until, lambda: False)

    def _at(self, time: float, action: _Action) -> None:
        heapq.heappush(self._agenda, (time, next(self._sequence), action))

    def _plan_next(self, at: float) -> None:
        scenario = next(self._playlist, None)
        self.next_start = None if scenario is None else (at, scenario)
        self._at(at, self._play_next)

    def _play_next(self) -> bool:
        if self.next_start is None:
            return False
        at, scenario = self.next_start
        events = (*self._listed.values(), *self._coming.values())
        if not any(event.scenario is scenario for event in events):
            self._start(scenario)
        self._plan_next(at + self._pause)
        return False

    def _start(self, scenario: Scenario) -> tuple[str, ...]:
        ids, names = [_new_id() for _ in scenario.events], self._cast(scenario)
        for event_id, plan in zip(ids, scenario.events, strict=True):
            self._expect(event_id, scenario, plan, names, self._now + plan.after)
        return tuple(ids)

    def _cast(self, scenario: Scenario) -> dict[str, str]:
        size = len(scenario.vms)
        names = tuple(dict.fromkeys((*self._vms, *group(self._vms[0], size))))[:size]
        self._vms.rotate(-min(size, len(self._vms)))
        return dict(zip(scenario.vms, names, strict=True))

    def _expect(
        self, event_id: str, scenario: Scenario, plan: EventPlan, names: Mapping[str, str], appears: float
    ) -> None:
        event = Event(
            event_id=event_id,
            scenario=scenario,
            plan=plan,
            status="Advisory" if plan.advisory else "Scheduled" if plan.notice else "Started",
            names=names,
            resources=tuple(names[vm] for vm in plan.vms),
            description=plan.description,
            duration_in_seconds=plan.duration_in_seconds,
            appears=appears,
            starts=appears + plan.advisory + plan.notice,
        )
        self._coming[event_id] = event
        self._at(appears, partial(self._appear, event))

    def _appear(self, event: Event) -> bool:
        if self._coming.pop(event.event_id, None) is None:
            return False
        self._listed[event.event_id] = event
        plan = event.plan
        for change in plan.changes:
            self._at(event.appears + change.after, partial(self._change, event, change))
        if plan.cancelled_after is not None:
            self._at(event.appears + plan.cancelled_after, partial(self._withdraw, event))
        if plan.advisory:
            self._at(event.appears + plan.advisory, partial(self._schedule, event))
        if event.started:
            self._at(event.ends, partial(self._end, event))
        else:
            self._at(event.starts, partial(self._begin_if_due, event))
        return True

    def _schedule(self, event: Event) -> bool:
        if not self._lists(event):
            return False
        event.status = "Scheduled"
        self._renew_id(event)
        return True

    def _begin_if_due(self, event: Event) -> bool:
        # A change may have postponed it meanwhile.
        return self._now >= event.starts and self._begin(event)

    def _begin(self, event: Event) -> bool:
        if event.started or not self._lists(event):
            return False
        event.status = "Started"
        event.starts = self._now
        self._at(event.ends, partial(self._end, event))
        self._renew_id(event)
        return True

    def _change(self, event: Event, change: EventChange) -> bool:
        if not self._lists(event):
            return False
        before = msgspec.structs.astuple(event)
        if change.vms is not None:
            event.resources = tuple(event.names[vm] for vm in change.vms)
        if change.description is not None:
            event.description = change.description
        if change.duration_in_seconds is not None:
            event.duration_in_seconds = change.duration_in_seconds
        if change.notice is not None and not event.started:
            event.starts = self._now + change.notice
            self._at(event.starts, partial(self._begin_if_due, event))
        self._renew_id(event)
        return msgspec.structs.astuple(event) != before

    def _withdraw(self, event: Event) -> bool:
        return not event.started and self._end(event)

    def _end(self, event: Event) -> bool:
        if not self._lists(event):
            return False
        del self._listed[event.event_id]
        returns_after = event.plan.returns_after
        if returns_after is not None:
            plan = msgspec.structs.replace(event.plan, cancelled_after=None, returns_after=None)
            self._expect(event.event_id, event.scenario, plan, event.names, self._now + returns_after)
        return True

    def _renew_id(self, event: Event) -> None:
        if event.plan.renews_id:
            del self._listed[event.event_id]
            event.event_id = _new_id()
            self._listed[event.event_id] = event

    def _lists(self, event: Event) -> bool:
        return self._listed.get(event.event_id) is event

    def _count(self, *, changed: bool) -> None:
        """Increment the incarnation if the document has changed."""
        was_empty, self.empty = self.empty, self._now < self._empty_until
        # All changes while the document was empty count as one, at the end of that time.
        self.incarnation += bool(self.events) if was_empty else changed


def _new_id() -> str:
    return str(uuid.uuid4()).upper()


def group(vm_name: str, size: int) -> tuple[str, ...]:
    """Return a VM and its neighbours: of ``web_2`` ``web_0, web_1``, of ``db`` ``db_1, db_2``."""
    match = re.fullmatch(r"(.*_)(\d+)", vm_name, re.DOTALL)
    prefix, first = (match[1], 0) if match else (f"{vm_name}_", 1)
    names = (f"{prefix}{number}" for number in itertools.count(first))
    neighbours = (name for name in names if name != vm_name)
    return (vm_name, *itertools.islice(neighbours, size - 1))
