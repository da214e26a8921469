"""The checks of the section `approval` of the configuration."""

from collections.abc import Iterator

from exporter.config import Config, Mode
from exporter.config.checks import Fault, never, unique, without_transitions
from exporter.config.kubernetes import DRAIN
from exporter.config.match import Match, Scope
from exporter.config.yamlfile import Keys, YamlFile, dotted
from exporter.errors import did_you_mean
from exporter.model.events import SCHEDULED, normal_word
from exporter.outputs.output import Section

_NO_DRAIN = f"{DRAIN} never succeeds; set kubernetes.drain.enabled to true and mode to drain"
_RULES: Keys = ("approval", "rules")


class ApprovalSection(Section):
    def faults(self, config: Config, file: YamlFile) -> Iterator[Fault]:
        if config.approval.max_per_hour < 1:
            fault = "must be at least 1; to approve nothing, set approval.mode to off"
            yield ("approval", "max_per_hour"), fault
        yield from unique(_RULES, [rule.name for rule in config.approval.rules])
        for index, rule in enumerate(config.approval.rules):
            place = (*_RULES, index, "match")
            yield from without_transitions(place, rule.match)
            yield from _never_applies(place, rule.match)
        if file.is_sound("hooks") and file.is_sound("kubernetes"):
            yield from _required_hooks(config)

    def advice(self, config: Config) -> Iterator[Fault]:
        rules = config.approval.rules
        if rules and config.approval.mode is Mode.OFF:
            yield _RULES, "no rule acts while approval.mode is off; set it to dry_run or on"
        if config.approval.mode is not Mode.OFF and all(rule.action == "hold" for rule in rules):
            yield ("approval", "mode"), "nothing is approved without a rule whose action is approve"
        for index, rule in enumerate(rules):
            above = (number for number in range(index) if _covers(rules[number].match, rule.match))
            if (earlier := next(above, None)) is not None:
                reason = f"never decides: {dotted((*_RULES, earlier))} above matches all that it matches"
                yield (*_RULES, index), reason
            elif reason := never(rule.match, config):
                yield (*_RULES, index, "match"), f"nothing matches: {reason}"


def _required_hooks(config: Config) -> Iterator[Fault]:
    names = [hook.name for hook in config.hooks]
    if config.kubernetes.drain.evicts:
        names.append(DRAIN)
    for index, rule in enumerate(config.approval.rules):
        for number, name in enumerate(rule.require_hooks):
            if name not in names:
                remedy = did_you_mean(name, names, "correct it, or add it to hooks")
                fault = _NO_DRAIN if name == DRAIN else f"{name!r} is not the name of a hook; {remedy}"
                yield (*_RULES, index, "require_hooks", number), fault


def _never_applies(place: Keys, match: Match) -> Iterator[Fault]:
    if match.target is Scope.OTHER:
        fault = (
            '"other" never applies: an event that does not affect this VM is never approved; remove the key'
        )
        yield (*place, "target"), fault
    if match.statuses and SCHEDULED not in match.statuses:
        fault = "never applies: only a Scheduled event can be approved; add Scheduled, or remove the key"
        yield (*place, "statuses"), fault


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
    is_known = wide == (None, None) or narrow != (None, None)
    return is_known and (low or 0) >= (least or 0) and _most(high) <= _most(most)


def _values(match: Match, field: str) -> set[str] | None:
    """Return the values of a key as events are compared with them; None if it is not specified."""
    values = getattr(match, field)
    return None if values is None else set(map(normal_word, values))


def _most(bound: float | None) -> float:
    return float("inf") if bound is None else bound
