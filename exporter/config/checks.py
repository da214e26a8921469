"""Checks across the keys of a configuration: those of the core, and what outputs need for theirs."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from exporter.config import Config, Mode
from exporter.config.match import STATUSES_AT, Match, Scope, Window
from exporter.config.yamlfile import Keys, dotted
from exporter.errors import did_you_mean
from exporter.model.events import EVENT_STATUSES, EVENT_TYPES, REBALANCE, STARTED
from exporter.model.lifecycle import Transition
from exporter.model.vm import tag_label

Fault = tuple[Keys, str]  # the place of a fault, and the fault with its remedy

_KNOWN_TYPES = (*EVENT_TYPES, REBALANCE)
_OWN_HEADERS = ("content-type", "content-length", "host", "traceparent", "transfer-encoding")
# Where variables are replaced, or are for the program that a hook runs.
_EXPANDED = ("url", "urls", "webhook", "headers", "command")
# In a template ${{ is a dollar sign before an expression.
_VARIABLE = re.compile(r"\$\{(?!\{)")
_NO_VARIABLE = "has a ${...}, which is replaced in addresses and headers of targets only; write the value"
_LATE = (
    "is compared only when a transition happens; for the time shortly before the start, add the same "
    "duration to events.imminent and use transitions: [imminent]"
)


def faults(config: Config) -> Iterator[Fault]:
    """Yield the faults that are not about one output."""
    for place, value in values(config, without=_EXPANDED):
        if isinstance(value, str) and _VARIABLE.search(value):
            yield place, _NO_VARIABLE
    for place, match in matches(config):
        yield from _match(place, match)
    yield from without_transitions(("in_service", "match"), config.in_service.match)
    yield from _tags(config)


def unknown_types(config: Config) -> Iterator[Fault]:
    """Yield the place of each unknown event type, and what may be meant; Azure may add types."""
    for place, match in matches(config):
        for index, word in enumerate(match.event_types or ()):
            if word not in _KNOWN_TYPES:
                remedy = did_you_mean(word, _KNOWN_TYPES, f"known are {', '.join(_KNOWN_TYPES)}")
                yield (*place, "event_types", index), f"{word!r} is not a known event type; {remedy}"


def values(
    value: object, place: Keys = (), *, without: Collection[str] = ()
) -> Iterator[tuple[Keys, object]]:
    """Yield the values in a configuration with their places, except those at the keys ``without``."""
    yield place, value
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        items = (
            (field.encode_name, getattr(value, field.name)) for field in fields if field.name not in without
        )
    elif isinstance(value, dict):
        items = value.items()
    elif isinstance(value, tuple):
        items = enumerate(value)
    for key, inner in items:
        yield from values(inner, (*place, key), without=without)


def matches(config: Config) -> Iterator[tuple[Keys, Match]]:
    return ((place, value) for place, value in values(config) if isinstance(value, Match))


def unique(place: Keys, names: Sequence[str]) -> Iterator[Fault]:
    """Yield the places of names that an earlier item of a list has, too."""
    for index, name in enumerate(names):
        if (first := names.index(name)) < index:
            fault = f"{name!r} is the name of {dotted((*place, first))}, too; names must be unique"
            yield (*place, index, "name"), fault


def headers(place: Keys, given: Mapping[str, str]) -> Iterator[Fault]:
    """Yield the faults of the headers of requests."""
    for name, value in given.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            yield (*place, "headers"), "has a name that is not a valid HTTP header; use letters, digits and -"
        elif name.lower() in _OWN_HEADERS:
            yield (*place, "headers", name), "is set by the exporter; remove the key"
        elif not value.isprintable():
            yield (*place, "headers", name), "has a character that is not allowed in a header; remove it"


def without_transitions(place: Keys, match: Match) -> Iterator[Fault]:
    """Yield the fault of a match of events as they are now that asks for transitions."""
    if match.transitions is not None:
        yield (*place, "transitions"), "has no meaning here: use statuses"


def useless(place: Keys, match: Match, config: Config) -> Iterator[Fault]:
    """Warn of a match of transitions that none meets, or whose bound is compared only before it holds."""
    if reason := never(match, config):
        yield place, f"nothing matches: {reason}"
    bound, transitions = match.max_notice, match.transitions
    if bound is None or Transition.IMMINENT in (transitions or ()):
        return
    if transitions is not None or all(threshold > bound for threshold in config.events.imminent):
        yield (*place, "max_notice"), _LATE


def never(match: Match, config: Config) -> str:
    """Return why no event can match; "" if one may."""
    transitions = match.transitions
    statuses = set(match.statuses or EVENT_STATUSES)
    if transitions is not None:
        possible = {
            status for transition in transitions for status in STATUSES_AT.get(transition, EVENT_STATUSES)
        }
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


def _tags(config: Config) -> Iterator[Fault]:
    labels: dict[str, int] = {}
    for index, tag in enumerate(config.metrics.tags):
        first = labels.setdefault(tag_label(tag), index)
        if config.metrics.tags[first] != tag:
            here: Keys = ("metrics", "tags")
            yield (*here, index), f"{tag!r} becomes the same label as {dotted((*here, first))}; keep one"


def _match(place: Keys, match: Match) -> Iterator[Fault]:
    for field in match.__struct_fields__:
        if getattr(match, field) == ():
            yield (*place, field), "is empty, so nothing matches; remove the key to match everything"
    for what in ("duration", "notice"):
        least, most = match.bounds(what)
        if least is not None and most is not None and least > most:
            fault = f"is more than max_{what}, so nothing matches; correct one of them"
            yield (*place, f"min_{what}"), fault
    yield from _windows((*place, "windows"), match.windows or ())


def _windows(place: Keys, windows: Sequence[Window]) -> Iterator[Fault]:
    for index, window in enumerate(windows):
        here = (*place, index)
        if not window.days:
            yield (*here, "days"), "is empty, so nothing matches; remove the key for all days"
        if window.start == window.end:
            yield here, "ends when it begins; for a whole day leave from and to out"
