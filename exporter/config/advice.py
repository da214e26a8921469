"""What a configuration says without effect: no mistake, but hardly what was meant."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from exporter.config.checks import Finding
from exporter.config.match import Match, Whom
from exporter.config.settings import Config, Mode
from exporter.config.yamlnodes import Keys
from exporter.model.events import SCHEDULED, STARTED
from exporter.model.lifecycle import Transition

# The statuses, of those that a match can name, that an event can have at a transition; at all others, both.
_STATUS_AT = {
    Transition.ADVISED: (),
    Transition.SCHEDULED: (SCHEDULED,),
    Transition.STARTED: (STARTED,),
    Transition.APPROVED: (SCHEDULED,),
}
_ANY_STATUS = (SCHEDULED, STARTED)


def advice(config: Config) -> Iterator[Finding]:
    """Return the place of each part without effect, and why it has none."""
    for index, route in enumerate(config.notifications.routes):
        if reason := _never(route.match, config):
            yield ("notifications", "routes", index, "match"), f"nothing matches: {reason}"
    yield from _unused_targets(config)
    yield from _rules(config)
    for index, hook in enumerate(config.hooks):
        if reason := _never(hook.match, config):
            yield ("hooks", index, "match"), f"nothing matches: {reason}"
        if hook.command and (reason := _not_executable(hook.command[0])):
            yield ("hooks", index, "command"), reason


def _unused_targets(config: Config) -> Iterator[Finding]:
    # Without any route, each target gets everything.
    if not config.notifications.routes:
        return
    used = {name for route in config.notifications.routes for name in route.targets}
    for index, target in enumerate(config.notifications.targets):
        if target.name not in used:
            yield ("notifications", "targets", index), "no route names this target, so it gets no message"


def _rules(config: Config) -> Iterator[Finding]:
    here: Keys = ("approval", "rules")
    rules = config.approval.rules
    if rules and config.approval.mode is Mode.OFF:
        yield here, "no rule acts while approval.mode is off; set it to dry_run or on"
    if config.approval.mode is not Mode.OFF and all(rule.action == "hold" for rule in rules):
        yield ("approval", "mode"), "nothing is approved without a rule whose action is approve"
    for index, rule in enumerate(rules):
        earlier = next((one for one in rules[:index] if _covers(one.match, rule.match)), None)
        if earlier is not None:
            yield (
                (*here, index),
                f"never decides: the rule {earlier.name} above matches all that it matches",
            )
        elif reason := _never(rule.match, config):
            yield (*here, index, "match"), f"nothing matches: {reason}"


def _never(match: Match, config: Config) -> str:
    """Return why no event can match; "" if one may."""
    transitions = match.transitions
    statuses = set(match.statuses or _ANY_STATUS)
    if transitions is not None:
        possible = {status for one in transitions for status in _STATUS_AT.get(one, _ANY_STATUS)}
        if match.statuses is not None and not statuses & possible:
            return "no event has one of these statuses at one of these transitions"
        statuses &= possible
        if set(transitions) == {Transition.APPROVED} and config.approval.mode is not Mode.ON:
            return "nothing is approved unless approval.mode is on"
        if set(transitions) == {Transition.HOOK_FAILED} and not config.hooks:
            return "there are no hooks that could fail"
        if match.target is Whom.OTHER and set(transitions) <= {Transition.APPROVED, Transition.HOOK_FAILED}:
            return "nothing is approved, and no hook runs, for events of other VMs only"
    if match.min_notice and statuses == {STARTED}:
        return "no notice is left once an event has started; remove min_notice"
    return ""


def _covers(wide: Match, narrow: Match) -> bool:
    """Return whether everything that matches ``narrow`` certainly matches ``wide``."""
    lists = ("event_types", "event_sources", "statuses", "transitions", "resources")
    if wide.target not in (Whom.ANY, narrow.target) or wide.windows not in (None, narrow.windows):
        return False
    for field in lists:
        ours, theirs = getattr(wide, field), getattr(narrow, field)
        if ours is not None and (theirs is None or not set(theirs) <= set(ours)):
            return False
    for what in ("duration", "notice"):
        bounds = [(getattr(one, f"min_{what}"), getattr(one, f"max_{what}")) for one in (wide, narrow)]
        if not _within(*bounds):
            return False
    return True


def _within(wide: tuple[float | None, float | None], narrow: tuple[float | None, float | None]) -> bool:
    least, most = wide
    low, high = narrow
    # An unknown value satisfies no bound, so that only a bound makes sure that it is known.
    if (least is not None or most is not None) and low is None and high is None:
        return False
    above = least is None or least <= 0 or (low is not None and low >= least)
    return above and (most is None or (high is not None and high <= most))


def _not_executable(program: str) -> str:
    if Path(program).name == program:
        return "" if shutil.which(program) else f"{program} is not found in PATH"
    path = Path(program)
    if not path.exists():
        return f"{program} does not exist"
    return "" if path.is_file() and os.access(path, os.X_OK) else f"{program} is not executable"
