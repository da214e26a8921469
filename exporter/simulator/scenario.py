"""Scenarios, read from YAML files: the events that Azure schedules for a group of VMs."""

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from exporter.config import loading, yamlfile
from exporter.config.values import Duration
from exporter.config.yamlfile import Keys, YamlFile
from exporter.errors import ConfigurationError, quoted
from exporter.timefmt import format_duration

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FILES = (".yaml", ".yml")


class EventChange(msgspec.Struct, frozen=True):
    """A change of an event, ``after`` it appeared; unspecified fields stay unchanged.

    ``notice`` is the time from the change to the new start, for an event that is still Scheduled then.
    """

    after: Duration
    vms: tuple[str, ...] | None = None
    notice: Duration | None = None
    description: str | None = None
    duration_in_seconds: int | None = None


class EventPlan(msgspec.Struct, frozen=True):
    """One event of a scenario; durations are simulated seconds.

    It appears ``after`` the scenario's start, is Advisory for ``advisory`` (0: never), Scheduled for
    ``notice`` (0: never), then Started for ``impact``, and then removed. With ``cancelled_after`` it is
    removed before it starts, that long after it appeared. With ``returns_after`` it is listed again under the
    same id, that long after its removal, and is not cancelled then. With ``renews_id`` it gets a new id at
    each change, including those of its status. ``duration_in_seconds`` is what Azure announces; -1 is
    unknown.
    """

    type: Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "SpotRebalanceRecommendation"]
    vms: tuple[str, ...]
    notice: Duration
    impact: Duration
    after: Duration = 0
    advisory: Duration = 0
    cancelled_after: Duration | None = None
    returns_after: Duration | None = None
    renews_id: bool = False
    changes: tuple[EventChange, ...] = ()
    source: Literal["Platform", "User"] = "Platform"
    description: str = ""
    duration_in_seconds: int = -1


class Scenario(msgspec.Struct, frozen=True):
    """One or more events; ``position`` orders the bundled scenarios.

    The first of ``vms`` is the simulated VM itself, and takes its name; the others are its neighbours.
    """

    name: str
    title: str
    description: str
    vms: tuple[str, ...]
    events: tuple[EventPlan, ...]
    position: int = 0


def load_scenarios(names: Sequence[str] | None = None) -> tuple[Scenario, ...]:
    """Load scenarios by name, or by path if it ends in .yaml or .yml; without names, all bundled ones."""
    bundled = _bundled()
    found = []
    for name in names or bundled:
        if name.endswith(_FILES):
            found.append(_scenario(yamlfile.read(Path(name))))
        elif name in bundled:
            found.append(bundled[name])
        else:
            raise ConfigurationError(f"no scenario is named {quoted(name)}; there are {', '.join(bundled)}")
    return tuple(found)


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
