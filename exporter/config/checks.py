"""Checks across the keys of a configuration: `findings` of mistakes, `advice` on keys without effect."""

import os
import shutil
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from exporter.config import Config, Hook, Mode, Notifications, Target
from exporter.config.match import Match, Whom, Window
from exporter.config.yamlfile import Keys
from exporter.errors import quoted
from exporter.model.events import EVENT_TYPES, SCHEDULED, STARTED
from exporter.model.lifecycle import Transition
from exporter.timefmt import Duration

Finding = tuple[Keys, str]

_ANY_STATUS = (SCHEDULED, STARTED)
# The statuses that an event can have at a transition; both for transitions not listed here.
_STATUS_AT = {
    Transition.ADVISED: (),
    Transition.SCHEDULED: (SCHEDULED,),
    Transition.STARTED: (STARTED,),
    Transition.APPROVED: (SCHEDULED,),
}

# The same limit as in `exporter.model.events`.
_LONGEST_NAME = 256


def findings(config: Config) -> Iterator[Finding]:
    """Return the place and the fault, with its remedy, of each mistake."""
    if fault := fault_of_name(config.instance.name):
        yield ("instance", "name"), fault
    yield from _notifications(config.notifications)
    yield from _approval(config)
    yield from _hooks(config.hooks)
    for keys, match in _matches(config):
        yield from _match(keys, match)


def unknown_types(config: Config) -> Iterator[Finding]:
    """Return the place of each unknown event type, and what may be meant; Azure may add types."""
    for place, match in _matches(config):
        for index, event_type in enumerate(match.event_types or ()):
            if event_type not in EVENT_TYPES:
                near = get_close_matches(event_type.capitalize(), EVENT_TYPES, 1)
                known = f"did you mean {near[0]}?" if near else f"known are {', '.join(EVENT_TYPES)}"
                yield (
                    (*place, "event_types", index),
                    f"{quoted(event_type)} is not a known event type; {known}",
                )


def fault_of_name(name: str) -> str:
    """Return why a VM cannot have this name, or ""."""
    if len(name) > _LONGEST_NAME:
        return f"has {len(name)} characters; at most {_LONGEST_NAME} are allowed"
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"{quoted(name)} is not valid UTF-8"
    return ""


def _notifications(settings: Notifications) -> Iterator[Finding]:
    here: Keys = ("notifications",)
    yield from _names((*here, "targets"), [target.name for target in settings.targets])
    for index, target in enumerate(settings.targets):
        yield from _target((*here, "targets", index), target, settings.apprise_config)
    known = [target.name for target in settings.targets]
    for index, route in enumerate(settings.routes):
        place = (*here, "routes", index, "targets")
        if not route.targets:
            yield place, "is empty; name at least one target"
        yield from _known_targets(place, route.targets, known)
    yield from _known_targets((*here, "watch", "targets"), settings.watch.targets or (), known)


def _known_targets(place: Keys, names: Sequence[str], known: Sequence[str]) -> Iterator[Finding]:
    for number, name in enumerate(names):
        if name not in known:
            yield (*place, number), f"{quoted(name)} is not a target; {_there_are(known)}"


def _target(place: Keys, target: Target, apprise_config: str) -> Iterator[Finding]:
    given = [key for key in ("url", "url_file", "tag") if getattr(target, key)]
    if len(given) > 1:
        yield (*place, given[1]), f"{' and '.join(given)} are given; keep one"
    elif not given:
        yield place, "has no address; give one of url, url_file and tag"
    elif target.tag and not apprise_config:
        yield (*place, "tag"), "needs the file that has it; set notifications.apprise_config"
    if target.name.startswith("notify-") and target.name[7:].isdigit():
        yield (*place, "name"), f"{target.name!r} is what --notify calls its targets; choose another name"


def _approval(config: Config) -> Iterator[Finding]:
    here: Keys = ("approval",)
    if config.approval.max_per_hour < 1:
        yield (*here, "max_per_hour"), "must be at least 1; to approve nothing, set approval.mode to off"
    yield from _names((*here, "rules"), [rule.name for rule in config.approval.rules])
    known = [hook.name for hook in config.hooks]
    for index, rule in enumerate(config.approval.rules):
        place = (*here, "rules", index)
        yield from _never_applies((*place, "match"), rule.match)
        for number, name in enumerate(rule.require_hooks):
            if name not in known:
                yield (*place, "require_hooks", number), f"{quoted(name)} is not a hook; {_there_are(known)}"


def _never_applies(place: Keys, match: Match) -> Iterator[Finding]:
    if match.target is Whom.OTHER:
        yield (
            (*place, "target"),
            '"other" never applies: an event that does not affect this VM is never approved; remove the key',
        )
    if match.statuses and SCHEDULED not in match.statuses:
        yield (
            (*place, "statuses"),
            "never applies: only a Scheduled event can be approved; add Scheduled, or remove the key",
        )


def _hooks(hooks: Sequence[Hook]) -> Iterator[Finding]:
    yield from _names(("hooks",), [hook.name for hook in hooks])
    for index, hook in enumerate(hooks):
        if not hook.command or not hook.command[0].strip():
            yield ("hooks", index, "command"), 'names no program; write it like ["/usr/local/bin/drain"]'


def _names(place: Keys, names: Sequence[str]) -> Iterator[Finding]:
    for index, name in enumerate(names):
        if not name.strip():
            yield (*place, index, "name"), "is empty; give it a name"
        elif name in names[:index]:
            yield (*place, index, "name"), f"{quoted(name)} is there twice; names tell them apart"
        elif "://" in name:
            yield (*place, index, "name"), "is a URL, and names show in logs and metrics; give it a name"


def _there_are(known: Sequence[str]) -> str:
    return f"there are: {', '.join(map(quoted, known))}" if known else "there are none"


def _matches(config: Config) -> Iterator[tuple[Keys, Match]]:
    yield ("in_service", "match"), config.in_service.match
    for index, route in enumerate(config.notifications.routes):
        yield ("notifications", "routes", index, "match"), route.match
    for index, rule in enumerate(config.approval.rules):
        yield ("approval", "rules", index, "match"), rule.match
    for index, hook in enumerate(config.hooks):
        yield ("hooks", index, "match"), hook.match


def _match(place: Keys, match: Match) -> Iterator[Finding]:
    for field in match.__struct_fields__:
        if getattr(match, field) == ():
            yield (*place, field), "is empty and so never holds; leave the key out to take all"
    for index, event_type in enumerate(match.event_types or ()):
        if not event_type.strip():
            yield (*place, "event_types", index), "is empty; write an event type like Reboot"
    if place[0] in ("in_service", "approval") and match.transitions is not None:
        yield (*place, "transitions"), "has no meaning here: use statuses"
    for what in ("duration", "notice"):
        least, most = _bounds(match, what)
        if least is not None and most is not None and least > most:
            yield (*place, f"min_{what}"), f"{least} is more than max_{what}, {most}; nothing can match"
    yield from _windows((*place, "windows"), match.windows or ())


def _windows(place: Keys, windows: Sequence[Window]) -> Iterator[Finding]:
    for index, window in enumerate(windows):
        here = (*place, index)
        if not window.days:
            yield (*here, "days"), "is empty and so never holds; leave the key out for all days"
        if window.start == window.end:
            yield here, "ends when it begins; for a whole day leave from and to out"


def _bounds(match: Match, what: str) -> tuple[Duration | None, Duration | None]:
    return getattr(match, f"min_{what}"), getattr(match, f"max_{what}")


def advice(config: Config) -> Iterator[Finding]:
    """Return the place of each part that has no effect, and why."""
    for index, route in enumerate(config.notifications.routes):
        if reason := _never(route.match, config):
            yield ("notifications", "routes", index, "match"), f"nothing matches: {reason}"
    used = {name for route in config.notifications.routes for name in route.targets}
    for index, target in enumerate(config.notifications.targets):
        # Without any route, each target gets everything.
        if used and target.name not in used:
            yield ("notifications", "targets", index), "no route names this target, so it gets no message"
    yield from _rules(config)
    for index, hook in enumerate(config.hooks):
        if reason := _never(hook.match, config):
            yield ("hooks", index, "match"), f"nothing matches: {reason}"
        if hook.command and (reason := _not_executable(hook.command[0])):
            yield ("hooks", index, "command"), reason


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
    if wide.target not in (Whom.ANY, narrow.target) or wide.windows not in (None, narrow.windows):
        return False
    for field in ("event_types", "event_sources", "statuses", "transitions", "resources"):
        ours, theirs = getattr(wide, field), getattr(narrow, field)
        if ours is not None and (theirs is None or not set(theirs) <= set(ours)):
            return False
    return all(_within(_bounds(wide, what), _bounds(narrow, what)) for what in ("duration", "notice"))


def _within(wide: tuple[float | None, float | None], narrow: tuple[float | None, float | None]) -> bool:
    """Return whether every value, known or not, within the narrow bounds is within the wide ones."""
    (least, most), (low, high) = wide, narrow
    # An unknown value satisfies no bound, so only a bound ensures that it is known.
    if wide != (None, None) and narrow == (None, None):
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
