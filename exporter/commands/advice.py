"""Parts of a configuration that never act, or not when their writer meant them to."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from exporter.config import Alertmanager, Config, Mode
from exporter.config.checks import Mistake
from exporter.config.match import STATUSES_AT, Match, Scope
from exporter.config.yamlfile import Keys, dotted
from exporter.model.events import EVENT_STATUSES, STARTED, normal_word
from exporter.model.lifecycle import Transition

_LATE = (
    "is compared only when a transition happens; for the time shortly before the start, add the same "
    "duration to events.imminent and use transitions: [imminent]"
)


def advice(config: Config) -> Iterator[Mistake]:
    """Return the place of each part that has no effect, and why."""
    if config.notifications.watch.after < config.imds.poll_interval:
        problem = "is less than imds.poll_interval, so a single failed poll makes it blind"
        yield ("notifications", "watch", "after"), problem
    yield from _routes(config)
    yield from _rules(config)
    if reason := _never(config.alertmanager.match, config):
        yield ("alertmanager", "match"), f"nothing matches: {reason}"
    if not config.alertmanager.urls and config.alertmanager != Alertmanager():
        yield ("alertmanager",), "no URL is set, so no alert is posted"
    for index, hook in enumerate(config.hooks):
        yield from _match(("hooks", index, "match"), hook.match, config)
        if hook.command and (reason := _not_executable(hook.command[0])):
            yield ("hooks", index, "command"), reason


def _routes(config: Config) -> Iterator[Mistake]:
    for index, route in enumerate(config.notifications.routes):
        place: Keys = ("notifications", "routes", index)
        yield from _match((*place, "match"), route.match, config)
        if route.leader == "first" and route.match.target is Scope.OTHER:
            yield (*place, "leader"), "never delivers with target: other; the leader is affected by the event"
    used = {name for route in config.notifications.routes for name in route.targets}
    for index, target in enumerate(config.notifications.targets):
        # Without any route, each target gets everything.
        if used and target.name not in used:
            yield ("notifications", "targets", index), "no route names this target, so it gets no message"


def _match(place: Keys, match: Match, config: Config) -> Iterator[Mistake]:
    """Warn of a match that nothing meets, or whose bound is compared only while the notice is longer."""
    if reason := _never(match, config):
        yield place, f"nothing matches: {reason}"
    bound, transitions = match.max_notice, match.transitions
    if bound is None or Transition.IMMINENT in (transitions or ()):
        return
    if transitions is not None or all(threshold > bound for threshold in config.events.imminent):
        yield (*place, "max_notice"), _LATE


def _rules(config: Config) -> Iterator[Mistake]:
    here: Keys = ("approval", "rules")
    rules = config.approval.rules
    if rules and config.approval.mode is Mode.OFF:
        yield here, "no rule acts while approval.mode is off; set it to dry_run or on"
    if config.approval.mode is not Mode.OFF and all(rule.action == "hold" for rule in rules):
        yield ("approval", "mode"), "nothing is approved without a rule whose action is approve"
    for index, rule in enumerate(rules):
        earlier = next((n for n, one in enumerate(rules[:index]) if _covers(one.match, rule.match)), None)
        if earlier is not None:
            reason = f"never decides: {dotted((*here, earlier))} above matches all that it matches"
            yield (*here, index), reason
        elif reason := _never(rule.match, config):
            yield (*here, index, "match"), f"nothing matches: {reason}"


def _never(match: Match, config: Config) -> str:
    """Return why no event can match; "" if one may."""
    transitions = match.transitions
    statuses = set(match.statuses or EVENT_STATUSES)
    if transitions is not None:
        possible = {status for one in transitions for status in STATUSES_AT.get(one, EVENT_STATUSES)}
        if match.statuses is not None and not statuses & possible:
            return "no event has one of these statuses at one of these transitions"
        statuses &= possible
        if reason := _never_happens(set(transitions), match.target, config):
            return reason
    if match.min_notice and statuses == {STARTED}:
        return "no notice is left once an event has started; remove min_notice"
    return ""


def _never_happens(transitions: set[Transition], target: Scope, config: Config) -> str:
    """Return why none of these transitions happens; "" if one may."""
    if transitions == {Transition.APPROVED} and config.approval.mode is not Mode.ON:
        return "nothing is approved unless approval.mode is on"
    if transitions == {Transition.IMMINENT} and not config.events.imminent:
        return "no event becomes imminent while events.imminent is empty"
    if transitions == {Transition.HOOK_FAILED} and not (config.hooks or config.kubernetes.drain.evicts):
        return "there are no hooks that could fail"
    spared = {Transition.APPROVED}
    if all(hook.match.target is Scope.SELF for hook in config.hooks):
        spared.add(Transition.HOOK_FAILED)
    if target is Scope.OTHER and transitions <= spared:
        return "for events of other VMs nothing is approved, and no hook runs without target: other or any"
    return ""


def _covers(wide: Match, narrow: Match) -> bool:
    """Return whether everything that matches ``narrow`` certainly matches ``wide``."""
    if wide.target not in (Scope.ANY, narrow.target) or wide.windows not in (None, narrow.windows):
        return False
    for field in ("event_types", "event_sources", "statuses", "transitions", "resources"):
        ours, theirs = _values(wide, field), _values(narrow, field)
        if ours is not None and (theirs is None or not theirs <= ours):
            return False
    return all(_within(wide.bounds(what), narrow.bounds(what)) for what in ("duration", "notice"))


def _within(wide: tuple[float | None, float | None], narrow: tuple[float | None, float | None]) -> bool:
    """Return whether every value, known or not, within the narrow bounds is within the wide ones."""
    (least, most), (low, high) = wide, narrow
    # An unknown value satisfies no bound, so only a bound ensures that it is known.
    known = wide == (None, None) or narrow != (None, None)
    return known and (low or 0) >= (least or 0) and _most(high) <= _most(most)


def _not_executable(command: str) -> str:
    path = Path(command)
    if path.name == command:
        return "" if shutil.which(command) else "the program is not found in PATH"
    if not path.exists():
        return "the program does not exist"
    return "" if path.is_file() and os.access(path, os.X_OK) else "the program is not executable"


def _values(match: Match, field: str) -> set[str] | None:
    """Return the values of a key as events are compared with them; None if it is not specified."""
    values = getattr(match, field)
    return None if values is None else set(map(normal_word, values))


def _most(bound: float | None) -> float:
    return float("inf") if bound is None else bound
