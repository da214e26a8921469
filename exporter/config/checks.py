"""Checks across the keys of a configuration."""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from exporter.config import Alertmanager, Config, Hook, Notifications, Target
from exporter.config.kubernetes import DRAIN
from exporter.config.match import Match, Scope, Window
from exporter.config.yamlfile import Keys
from exporter.errors import quoted
from exporter.model.events import EVENT_TYPES, LONGEST_NAME, REBALANCE, SCHEDULED
from exporter.model.vm import tag_label
from exporter.timefmt import format_duration

Mistake = tuple[Keys, str]

_KNOWN_TYPES = (*EVENT_TYPES, REBALANCE)

_OWN_HEADERS = ("content-type", "content-length", "host", "traceparent", "transfer-encoding")

_OWN_LABELS = ("alertname", "instance_name", "event_id", "event_type", "event_source", "severity")

# Shown in logs, messages or metrics, where a URL with a password must not appear.
_NOT_URLS = (
    ("instance", "name"),
    ("state", "directory"),
    ("kubernetes", "node"),
    ("kubernetes", "service_account"),
)
# Where variables are replaced, or are for the program that a hook runs.
_EXPANDED = ("url", "urls", "webhook", "headers", "command")
# In a template ${{ is a dollar sign before an expression.
_VARIABLE = re.compile(r"\$\{(?!\{)")
_NO_VARIABLE = "has a ${...}, which is replaced in addresses and headers of targets only; write the value"


def findings(config: Config) -> Iterator[Mistake]:
    """Return the place and the fault, with its remedy, of each mistake."""
    if fault := fault_of_name(config.instance.name):
        yield ("instance", "name"), fault
    for section, key in _NOT_URLS:
        if "://" in getattr(getattr(config, section), key):
            yield (section, key), "is a URL, which is not possible here"
    for keys in _unexpanded(config, ()):
        yield keys, _NO_VARIABLE
    labels: dict[str, str] = {}
    for index, tag in enumerate(config.metrics.tags):
        first = labels.setdefault(label := tag_label(tag), tag)
        if first != tag:
            fault = f"becomes the label {label}, as {quoted(first)} does; keep one"
            yield ("metrics", "tags", index), fault
    yield from _notifications(config.notifications)
    yield from _approval(config)
    yield from _hooks(config.hooks)
    yield from _alertmanager(config.alertmanager)
    for keys, match in _matches(config):
        yield from _match(keys, match)


def unknown_types(config: Config) -> Iterator[Mistake]:
    """Return the place of each unknown event type, and what may be meant; Azure may add types."""
    for place, match in _matches(config):
        for index, event_type in enumerate(match.event_types or ()):
            # An empty one is a mistake, or stands for a faulty one.
            if event_type and event_type not in _KNOWN_TYPES:
                from difflib import get_close_matches

                near = next(iter(get_close_matches(event_type.capitalize(), _KNOWN_TYPES)), None)
                known = f"did you mean {near}?" if near else f"known are {', '.join(_KNOWN_TYPES)}"
                fault = f"{quoted(event_type)} is not a known event type; {known}"
                yield (*place, "event_types", index), fault


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


def fault_of_name(name: str) -> str:
    """Return why a VM cannot have this name, or ""."""
    if name != name.strip():
        return "begins or ends with a space; remove it"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters; at most {LONGEST_NAME} are allowed"
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"{quoted(name)} is not valid UTF-8"
    return ""


def _notifications(settings: Notifications) -> Iterator[Mistake]:
    here: Keys = ("notifications",)
    known = [target.name for target in settings.targets]
    yield from _names((*here, "targets"), known)
    for index, target in enumerate(settings.targets):
        yield from _target((*here, "targets", index), target, settings.apprise_config)
    for index, route in enumerate(settings.routes):
        place = (*here, "routes", index, "targets")
        if not route.targets:
            yield place, "is empty; name at least one target"
        yield from _known_targets(place, route.targets, known)
    yield from _known_targets((*here, "watch", "targets"), settings.watch.targets or (), known)


def _known_targets(place: Keys, names: Sequence[str], known: Sequence[str]) -> Iterator[Mistake]:
    for number, name in enumerate(names):
        if fault := _unknown(name, "a target", known):
            yield (*place, number), fault


def _unknown(name: str, kind: str, known: Sequence[str]) -> str:
    """Return the fault of a name that is not known, "" if it is, or may be that of an item without one."""
    if name in known:
        return ""
    from difflib import get_close_matches

    named = [one for one in known if one.strip()]
    near = next(iter(get_close_matches(name, named)), None)
    if near is None and named != list(known):
        return ""
    shown = f"did you mean {quoted(near)}?" if near else _there_are(named)
    return f"{quoted(name)} is not {kind}; {shown}"


def _target(place: Keys, target: Target, apprise_config: str) -> Iterator[Mistake]:
    given = [key for key in ("url", "url_file", "tag", "webhook") if getattr(target, key)]
    if len(given) > 1:
        yield (*place, given[1]), f"{' and '.join(given)} are set; keep one"
    elif not given:
        yield place, "has no address; set one of url, url_file, tag or webhook"
    elif target.tag and not apprise_config:
        yield (*place, "tag"), "requires the file that defines it; set notifications.apprise_config"
    if target.webhook and target.templates is not None:
        yield (*place, "templates"), "has no effect on a webhook, which gets the event itself; remove the key"
    if target.headers and not target.webhook:
        yield (*place, "headers"), "is for webhooks; in an Apprise URL write headers as ?+Name=value"
    yield from _headers(place, target.headers)
    if re.fullmatch("alertmanager(-[0-9]+)?", target.name):
        fault = f"{target.name!r} is the name of what alertmanager.urls has; choose another name"
        yield (*place, "name"), fault
    if target.name.startswith("notify-") and target.name[7:].isdigit():
        yield (*place, "name"), f"{target.name!r} is what --notify calls its targets; choose another name"


def _headers(place: Keys, headers: Mapping[str, str]) -> Iterator[Mistake]:
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            yield (*place, "headers"), "has a name that is not a valid HTTP header; use letters, digits and -"
        elif name.lower() in _OWN_HEADERS:
            yield (*place, "headers", name), "is set by the exporter; remove the key"
        elif not value.isprintable():
            yield (*place, "headers", name), "has a character that is not allowed in a header; remove it"


def _approval(config: Config) -> Iterator[Mistake]:
    here: Keys = ("approval",)
    if config.approval.max_per_hour < 1:
        yield (*here, "max_per_hour"), "must be at least 1; to approve nothing, set approval.mode to off"
    yield from _names((*here, "rules"), [rule.name for rule in config.approval.rules])
    known = [hook.name for hook in config.hooks]
    if config.kubernetes.drain.evicts:
        known.append(DRAIN)
    for index, rule in enumerate(config.approval.rules):
        place = (*here, "rules", index)
        yield from _never_applies((*place, "match"), rule.match)
        for number, name in enumerate(rule.require_hooks):
            if name == DRAIN and name not in known:
                fault = f"{DRAIN} never succeeds; set kubernetes.drain.enabled to true and mode to drain"
                yield (*place, "require_hooks", number), fault
            elif fault := _unknown(name, "a hook", known):
                yield (*place, "require_hooks", number), fault


def _never_applies(place: Keys, match: Match) -> Iterator[Mistake]:
    if match.target is Scope.OTHER:
        fault = (
            '"other" never applies: an event that does not affect this VM is never approved; remove the key'
        )
        yield (*place, "target"), fault
    if match.statuses and SCHEDULED not in match.statuses:
        fault = "never applies: only a Scheduled event can be approved; add Scheduled, or remove the key"
        yield (*place, "statuses"), fault


def _hooks(hooks: Sequence[Hook]) -> Iterator[Mistake]:
    yield from _names(("hooks",), [hook.name for hook in hooks])
    for index, hook in enumerate(hooks):
        if hook.name == DRAIN:
            yield ("hooks", index, "name"), f"{DRAIN} is the built-in drain; choose another name"
        if not hook.command or not hook.command[0].strip():
            yield ("hooks", index, "command"), 'is empty; write it like ["/usr/local/bin/drain"]'


def _alertmanager(settings: Alertmanager) -> Iterator[Mistake]:
    here: Keys = ("alertmanager",)
    yield from _headers(here, settings.headers)
    if settings.match.target is Scope.OTHER:
        fault = '"other" never applies: alerts are about events that affect this VM; remove the key'
        yield (*here, "match", "target"), fault
    for name, value in settings.labels.items():
        if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name):
            fault = "has a name that is not a valid label; use letters, digits and _"
            yield (*here, "labels"), fault
        elif name in _OWN_LABELS:
            yield (*here, "labels", name), "is set by the exporter; choose another name"
        elif not value:
            yield (*here, "labels", name), "is empty, which is the same as no label; remove the key"


def _names(place: Keys, names: Sequence[str]) -> Iterator[Mistake]:
    for index, name in enumerate(names):
        if not name.strip():
            yield (*place, index, "name"), "is empty; set a name"
        elif name in names[:index]:
            yield (*place, index, "name"), f"{quoted(name)} is used twice; names must be unique"
        elif "://" in name:
            fault = "is a URL, and names appear in logs and metrics; choose another name"
            yield (*place, index, "name"), fault


def _there_are(known: Sequence[str]) -> str:
    return f"defined: {', '.join(map(quoted, known))}" if known else "none is defined"


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
    for index, event_type in enumerate(match.event_types or ()):
        if not event_type.strip():
            yield (*place, "event_types", index), "is empty; write an event type like Reboot"
    if place[0] in ("in_service", "kubernetes", "approval", "alertmanager") and match.transitions is not None:
        yield (*place, "transitions"), "has no meaning here: use statuses"
    for what in ("duration", "notice"):
        least, most = match.bounds(what)
        if least is not None and most is not None and least > most:
            problem = f"{format_duration(least)} is more than max_{what}, {format_duration(most)}"
            yield (*place, f"min_{what}"), f"{problem}; nothing can match"
    yield from _windows((*place, "windows"), match.windows or ())


def _windows(place: Keys, windows: Sequence[Window]) -> Iterator[Mistake]:
    for index, window in enumerate(windows):
        here = (*place, index)
        if not window.days:
            yield (*here, "days"), "is empty, so nothing matches; remove the key for all days"
        if window.start == window.end:
            yield here, "ends when it begins; for a whole day leave from and to out"
