"""Checks across the keys of a configuration."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from exporter.config import Config, Target, Templates
from exporter.config.kubernetes import DRAIN
from exporter.config.match import Match, Scope, Window
from exporter.config.yamlfile import Keys, YamlFile, dotted
from exporter.errors import did_you_mean
from exporter.model.events import EVENT_TYPES, REBALANCE, SCHEDULED
from exporter.model.vm import tag_label

Mistake = tuple[Keys, str]

_KNOWN_TYPES = (*EVENT_TYPES, REBALANCE)

_OWN_HEADERS = ("content-type", "content-length", "host", "traceparent", "transfer-encoding")

_OWN_LABELS = ("alertname", "instance_name", "event_id", "event_type", "event_source", "severity")

# Where variables are replaced, or are for the program that a hook runs.
_EXPANDED = ("url", "urls", "webhook", "headers", "command")
# In a template ${{ is a dollar sign before an expression.
_VARIABLE = re.compile(r"\$\{(?!\{)")
_NO_VARIABLE = "has a ${...}, which is replaced in addresses and headers of targets only; write the value"
_NO_DRAIN = f"{DRAIN} never succeeds; set kubernetes.drain.enabled to true and mode to drain"


def findings(config: Config, file: YamlFile) -> Iterator[Mistake]:
    """Return the place and the fault, with its remedy, of each mistake.

    Nothing is found at faulty places of the ``file``, where values are left out of the configuration, and
    what a check reads elsewhere must be sound.
    """
    found: list[Iterable[Mistake]] = [
        ((keys, _NO_VARIABLE) for keys in _unexpanded(config, ())),
        *(_match(keys, match) for keys, match in _matches(config)),
        _tags(config),
        _notifications(config, file),
        _approval(config, file),
        _hooks(config),
        _drain(config),
        _alertmanager(config),
    ]
    for keys, fault in itertools.chain.from_iterable(found):
        if file.is_sound(*keys):
            yield keys, fault


def unknown_types(config: Config) -> Iterator[Mistake]:
    """Return the place of each unknown event type, and what may be meant; Azure may add types."""
    for place, match in _matches(config):
        for index, word in enumerate(match.event_types or ()):
            if word not in _KNOWN_TYPES:
                known = did_you_mean(word, _KNOWN_TYPES, f"known are {', '.join(_KNOWN_TYPES)}")
                yield (*place, "event_types", index), f"{word!r} is not a known event type; {known}"


def _unexpanded(value: object, place: Keys) -> Iterator[Keys]:
    """Yield the places of variables that stay as they are written."""
    if isinstance(value, str):
        if _VARIABLE.search(value):
            yield place
    elif isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            if field.name not in _EXPANDED:
                yield from _unexpanded(getattr(value, field.name), (*place, field.encode_name))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _unexpanded(inner, (*place, key))
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _unexpanded(inner, (*place, index))


def _tags(config: Config) -> Iterator[Mistake]:
    labels: dict[str, int] = {}
    for index, tag in enumerate(config.metrics.tags):
        first = labels.setdefault(tag_label(tag), index)
        if config.metrics.tags[first] != tag:
            here: Keys = ("metrics", "tags")
            yield (*here, index), f"{tag!r} becomes the same label as {dotted((*here, first))}; keep one"


def _notifications(config: Config, file: YamlFile) -> Iterator[Mistake]:
    settings, here = config.notifications, ("notifications",)
    known = [target.name for target in settings.targets]
    has_targets = file.is_sound(*here, "targets")
    yield from _unique((*here, "targets"), known)
    for index, target in enumerate(settings.targets):
        place: Keys = (*here, "targets", index)
        if file.is_sound(*place):
            defines_tags = bool(settings.apprise_config) or not file.is_sound(*here, "apprise_config")
            yield from _target(place, target, defines_tags=defines_tags)
    for index, route in enumerate(settings.routes):
        place = (*here, "routes", index, "targets")
        if not route.targets:
            yield place, "is empty; name at least one target"
        if has_targets:
            yield from _known(place, route.targets, known)
    if has_targets:
        yield from _known((*here, "watch", "targets"), settings.watch.targets or (), known)


def _known(place: Keys, targets: Sequence[str], known: Sequence[str]) -> Iterator[Mistake]:
    for index, name in enumerate(targets):
        if name not in known:
            remedy = did_you_mean(name, known, "correct it, or add it to notifications.targets")
            yield (*place, index), f"{name!r} is not a target; {remedy}"


def _target(place: Keys, target: Target, *, defines_tags: bool) -> Iterator[Mistake]:
    given = [key for key in ("url", "url_file", "tag", "webhook") if getattr(target, key)]
    if len(given) > 1:
        yield (*place, given[1]), f"{' and '.join(given)} are set; keep one"
    elif not given:
        yield place, "has no address; set one of url, url_file, tag or webhook"
    elif target.tag and not defines_tags:
        yield (*place, "tag"), "requires the file that defines it; set notifications.apprise_config"
    yield from _own_templates((*place, "templates"), target)
    if target.headers and not target.webhook:
        yield (*place, "headers"), "is for webhooks; in an Apprise URL write headers as ?+Name=value"
    yield from _headers(place, target.headers)
    if re.fullmatch("alertmanager(-[0-9]+)?", target.name):
        yield (*place, "name"), "is the name of what alertmanager.urls has; choose another name"
    if target.name.startswith("notify-") and target.name[7:].isdigit():
        yield (*place, "name"), "is what --notify calls its targets; choose another name"


def _own_templates(place: Keys, target: Target) -> Iterator[Mistake]:
    own = target.templates
    if own is None:
        return
    if target.webhook:
        for key in ("title", "format"):
            if getattr(own, key) != getattr(Templates(), key):
                yield (*place, key), "has no effect on a webhook, which has a body only; remove the key"
        if not own.body.strip():
            yield place, "has no body, so that the webhook gets the event itself; add it, or remove the key"
    elif own.content_type:
        yield (*place, "content_type"), "is for webhooks; remove the key"
    if own.content_type and not re.fullmatch(
        r"[\w.+-]+/[\w.+-]+( *; *[\w.+-]+=[\w.+-]+)*", own.content_type, re.ASCII
    ):
        yield (*place, "content_type"), "is not a media type; write it like application/json"


def _headers(place: Keys, headers: Mapping[str, str]) -> Iterator[Mistake]:
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            yield (*place, "headers"), "has a name that is not a valid HTTP header; use letters, digits and -"
        elif name.lower() in _OWN_HEADERS:
            yield (*place, "headers", name), "is set by the exporter; remove the key"
        elif not value.isprintable():
            yield (*place, "headers", name), "has a character that is not allowed in a header; remove it"


def _approval(config: Config, file: YamlFile) -> Iterator[Mistake]:
    here: Keys = ("approval",)
    if config.approval.max_per_hour < 1:
        yield (*here, "max_per_hour"), "must be at least 1; to approve nothing, set approval.mode to off"
    yield from _unique((*here, "rules"), [rule.name for rule in config.approval.rules])
    for index, rule in enumerate(config.approval.rules):
        yield from _never_applies((*here, "rules", index, "match"), rule.match)
    if file.is_sound("hooks") and file.is_sound("kubernetes"):
        yield from _required_hooks(config)


def _required_hooks(config: Config) -> Iterator[Mistake]:
    known = [hook.name for hook in config.hooks]
    if config.kubernetes.drain.evicts:
        known.append(DRAIN)
    for index, rule in enumerate(config.approval.rules):
        for number, name in enumerate(rule.require_hooks):
            if name not in known:
                remedy = did_you_mean(name, known, "correct it, or add it to hooks")
                fault = _NO_DRAIN if name == DRAIN else f"{name!r} is not the name of a hook; {remedy}"
                yield ("approval", "rules", index, "require_hooks", number), fault


def _never_applies(place: Keys, match: Match) -> Iterator[Mistake]:
    if match.target is Scope.OTHER:
        fault = (
            '"other" never applies: an event that does not affect this VM is never approved; remove the key'
        )
        yield (*place, "target"), fault
    if match.statuses and SCHEDULED not in match.statuses:
        fault = "never applies: only a Scheduled event can be approved; add Scheduled, or remove the key"
        yield (*place, "statuses"), fault


def _drain(config: Config) -> Iterator[Mistake]:
    drain = config.kubernetes.drain
    if 0 < drain.before <= drain.delete_before:
        fault = "is not shorter than before, so that no budget is respected; make it shorter"
        yield ("kubernetes", "drain", "delete_before"), fault


def _hooks(config: Config) -> Iterator[Mistake]:
    yield from _unique(("hooks",), [hook.name for hook in config.hooks])
    for index, hook in enumerate(config.hooks):
        if hook.name == DRAIN:
            yield ("hooks", index, "name"), f"{DRAIN} is the built-in drain; choose another name"
        if not hook.command or not hook.command[0].strip():
            yield ("hooks", index, "command"), 'is empty; write it like ["/usr/local/bin/drain"]'


def _alertmanager(config: Config) -> Iterator[Mistake]:
    settings, here = config.alertmanager, ("alertmanager",)
    yield from _headers(here, settings.headers)
    if settings.match.target is Scope.OTHER:
        fault = '"other" never applies: alerts are about events that affect this VM; remove the key'
        yield (*here, "match", "target"), fault
    for name, value in settings.labels.items():
        if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name):
            yield (*here, "labels", name), "is not a valid name of a label; use letters, digits and _"
        elif name in _OWN_LABELS:
            yield (*here, "labels", name), "is set by the exporter; choose another name"
        elif not value:
            yield (*here, "labels", name), "is empty, which is the same as no label; remove the label"


def _unique(place: Keys, names: Sequence[str]) -> Iterator[Mistake]:
    for index, name in enumerate(names):
        if (first := names.index(name)) < index:
            fault = f"{name!r} is the name of {dotted((*place, first))}, too; names must be unique"
            yield (*place, index, "name"), fault


def _matches(config: Config) -> Iterator[tuple[Keys, Match]]:
    yield ("in_service", "match"), config.in_service.match
    yield ("kubernetes", "drain", "match"), config.kubernetes.drain.match
    yield ("alertmanager", "match"), config.alertmanager.match
    for index, route in enumerate(config.notifications.routes):
        yield ("notifications", "routes", index, "match"), route.match
    for index, rule in enumerate(config.approval.rules):
        yield ("approval", "rules", index, "match"), rule.match
    for index, hook in enumerate(config.hooks):
        yield ("hooks", index, "match"), hook.match


def _match(place: Keys, match: Match) -> Iterator[Mistake]:
    for field in match.__struct_fields__:
        if getattr(match, field) == ():
            yield (*place, field), "is empty, so nothing matches; remove the key to match everything"
    if place[0] in ("in_service", "kubernetes", "approval", "alertmanager") and match.transitions is not None:
        yield (*place, "transitions"), "has no meaning here: use statuses"
    for what in ("duration", "notice"):
        least, most = match.bounds(what)
        if least is not None and most is not None and least > most:
            fault = f"is more than max_{what}, so nothing matches; correct one of them"
            yield (*place, f"min_{what}"), fault
    yield from _windows((*place, "windows"), match.windows or ())


def _windows(place: Keys, windows: Sequence[Window]) -> Iterator[Mistake]:
    for index, window in enumerate(windows):
        here = (*place, index)
        if not window.days:
            yield (*here, "days"), "is empty, so nothing matches; remove the key for all days"
        if window.start == window.end:
            yield here, "ends when it begins; for a whole day leave from and to out"
