"""Parts of a configuration that never act, or not when their writer meant them to."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from exporter.config import Alertmanager, Config, Hook, Mode, Rule
from exporter.config.checks import Mistake
from exporter.config.kubernetes import DRAIN
from exporter.config.match import STATUSES_AT, Match, Scope
from exporter.config.yamlfile import Keys, dotted
from exporter.model.events import EVENT_STATUSES, EVENT_TYPES, SCHEDULED, STARTED, normal_word
from exporter.model.lifecycle import ENDINGS, Transition

# Transitions of an event that has not been approved yet.
_BEFORE_APPROVAL = {Transition.ADVISED, Transition.SCHEDULED, Transition.UPDATED, Transition.IMMINENT}

# At these a hook may begin what is to be undone at the end.
_BEGINNINGS = {Transition.SCHEDULED, Transition.IMMINENT, Transition.STARTED}
_INTERPRETERS = ("bash", "cmd", "env", "powershell", "pwsh", "python", "python3", "sh", "sudo")

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
    yield from _undone(config.hooks)
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


def _undone(hooks: Sequence[Hook]) -> Iterator[Mistake]:
    """Warn of what a hook begins, and another one undoes at some ends of the event only.

    A hook without transitions tells them apart itself.
    """
    beginning = [one for one in hooks if _BEGINNINGS & set(one.match.transitions or ())]
    for index, hook in enumerate(hooks):
        undoing = _undoing(hook, hooks, beginning) if hook in beginning else []
        is_late = set(hook.match.transitions or ()) <= {Transition.STARTED, *ENDINGS}
        left: dict[str, list[Transition]] = {}
        for event_type in (hook.match.event_types or ("",)) if undoing else ():
            match = replace(hook.match, event_types=(event_type,) if event_type else None)
            for end in (Transition.COMPLETED,) if is_late else ENDINGS:
                if not any(_runs(one.match, match, end) for one in undoing):
                    left.setdefault(event_type, []).append(end)
        if left:
            kinds = " or ".join(left)
            what = f"an event of type {kinds}" if kinds else "an event"
            how = " or ".join(end for end in ENDINGS if any(end in missing for missing in left.values()))
            places = " and ".join(dotted(("hooks", hooks.index(one))) for one in undoing)
            reason = f"{places} may not run then; if it is to undo it, widen its match"
            yield ("hooks", index), f"what it begins may stay where {what} is {how}: {reason}"


def _undoing(hook: Hook, hooks: Sequence[Hook], beginning: Sequence[Hook]) -> list[Hook]:
    """Return the hooks that are likely to undo what a hook begins.

    These are hooks of its program that run at an end. If there is none, they are those that run at ends only
    and match all that it matches, or nothing that any hook begins.
    """
    ends = [one for one in hooks if not set(ENDINGS).isdisjoint(one.match.transitions or ENDINGS)]
    if own := [one for one in ends if _program(one.command) == _program(hook.command)]:
        return own
    programs = {_program(one.command) for one in beginning}
    found = []
    for one in ends:
        if set(one.match.transitions or Transition) <= set(ENDINGS) and _program(one.command) not in programs:
            undone = [other for other in beginning if _covers(_lasting(one.match), _lasting(other.match))]
            if hook in undone or not (undone or _differing(one.match, hook.match)):
                found.append(one)
    return found


def _lasting(match: Match) -> Match:
    """Return a match without what is different at the beginning and at the end of an event."""
    return replace(match, transitions=None, statuses=None, windows=None, min_notice=None, max_notice=None)


def _runs(undoing: Match, beginning: Match, end: Transition) -> bool:
    """Return whether a hook certainly runs at the end of an event for which another ran at its beginning."""
    # The time of the end is not known before, nor is the notice then.
    is_timed = (undoing.windows, undoing.min_notice, undoing.max_notice) != (None, None, None)
    status = STARTED if end is Transition.COMPLETED else SCHEDULED
    return (
        not is_timed
        and end in (undoing.transitions or ENDINGS)
        and status in (undoing.statuses or EVENT_STATUSES)
        and _covers(_lasting(undoing), _lasting(beginning))
    )


def _program(command: Sequence[str]) -> str:
    """Return the program of a hook: of a shell or another interpreter, what it runs."""
    words = [word for word in command if not word.startswith("-")]
    while len(words) > 1 and Path(words[0]).stem in _INTERPRETERS:
        words.pop(0)
    return words[0] if words else ""


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
        yield from _required((*here, index, "require_hooks"), rule, config)


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


def _required(place: Keys, rule: Rule, config: Config) -> Iterator[Mistake]:
    """Warn of hooks that cannot run for what a rule approves, so that it waits forever."""
    hooks = {hook.name: hook.match for hook in config.hooks}
    if config.kubernetes.drain.evicts:
        hooks[DRAIN] = config.kubernetes.drain.match
    for number, name in enumerate(rule.require_hooks if rule.action == "approve" else ()):
        match = hooks.get(name)
        if match is not None and (reason := _apart(match, rule.match)):
            yield (*place, number), f"the hook never runs for what the rule matches: {reason}"
        elif name == DRAIN and (spared := _spared(config.kubernetes.drain.match, rule.match)):
            remedy = "add them to kubernetes.drain.match.event_types, or name the others in the rule's match"
            yield (*place, number), f"the Node is never drained for {', '.join(spared)}; {remedy}"


def _spared(drain: Match, rule: Match) -> list[str]:
    """Return the event types that a rule matches and the drain does not."""
    drained = _values(drain, "event_types")
    if drained is None:
        return []
    kinds = rule.event_types if rule.event_types is not None else EVENT_TYPES
    return [kind for kind in kinds if normal_word(kind) not in drained]


def _apart(hook: Match, rule: Match) -> str:
    """Return why no event before its start matches both; "" if one may."""
    if hook.target is Scope.OTHER:
        return "its target is other"
    if hook.transitions is not None and not _BEFORE_APPROVAL & set(hook.transitions):
        return "it runs for none of the transitions before the approval"
    if hook.statuses is not None and "Scheduled" not in hook.statuses:
        return "it runs for no Scheduled event"
    if field := _differing(hook, rule):
        return f"they have no {field} in common"
    pairs = ((hook, rule), (rule, hook))
    if any((one.min_duration or 0) > _most(other.max_duration) for one, other in pairs):
        return "they have no duration in common"
    return ""


def _differing(one: Match, other: Match) -> str:
    """Return the key of two matches whose values have nothing in common, or ""."""
    for field in ("event_types", "event_sources"):
        ours, theirs = _values(one, field), _values(other, field)
        if ours is not None and theirs is not None and not ours & theirs:
            return field
    return ""


def _values(match: Match, field: str) -> set[str] | None:
    """Return the values of a key as events are compared with them; None if it is not specified."""
    values = getattr(match, field)
    return None if values is None else set(map(normal_word, values))


def _most(bound: float | None) -> float:
    return float("inf") if bound is None else bound
