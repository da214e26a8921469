"""The section `notifications` of the configuration: its checks and the addresses of its targets."""

import re
import socket
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec

from exporter import files
from exporter.clock import Clock
from exporter.config import Config, Target, Templates, http_url
from exporter.config.addresses import Address, expanded
from exporter.config.checks import Fault, headers, unique, useless
from exporter.config.loading import Loaded
from exporter.config.match import Scope
from exporter.config.yamlfile import Keys, YamlFile, parse
from exporter.errors import ConfigurationError, Mistakes, did_you_mean
from exporter.outputs.notifications.checking import opened
from exporter.outputs.notifications.protocol import NO_URL
from exporter.outputs.output import Diagnosis, Level, Section

_HERE: Keys = ("notifications",)
_NOTIFY = "SCHEDULED_EVENTS_NOTIFY"
# Addresses to which nothing can be delivered, and what to do. docs/services.md has the sources.
_DEAD = (
    (
        re.compile(r"(https|workflows?)://[^/\s]*\.logic\.azure\.com[:/]", re.IGNORECASE),
        "is an address of Teams that no longer works; copy the new one from the workflow in Teams",
    ),
    (
        re.compile(r"https://[^/\s]*\.webhook\.office\.com/|msteams://", re.IGNORECASE),
        "is of a connector of Teams, and these are retired; use a workflow in Teams and copy its URL",
    ),
    (
        re.compile(r"(?<=[/:@=])([A-Z]+_)*(KEY|TOKEN|PASSWORD|SIGNATURE)(_[A-C])?(?=[/:@?&\s]|$)"),
        "has a placeholder such as INTEGRATION_KEY; write your own value in its place",
    ),
)


class NotificationsSection(Section):
    def faults(self, config: Config, file: YamlFile) -> Iterator[Fault]:
        settings = config.notifications
        names = [target.name for target in settings.targets]
        has_targets = file.is_sound(*_HERE, "targets")
        yield from unique((*_HERE, "targets"), names)
        for index, target in enumerate(settings.targets):
            place: Keys = (*_HERE, "targets", index)
            if file.is_sound(*place):
                defines_tags = bool(settings.apprise_config) or not file.is_sound(*_HERE, "apprise_config")
                yield from _target(place, target, defines_tags=defines_tags)
        for index, route in enumerate(settings.routes):
            place = (*_HERE, "routes", index, "targets")
            if not route.targets:
                yield place, "is empty; name at least one target"
            if has_targets:
                yield from _unknown_targets(place, route.targets, names)
        if has_targets:
            yield from _unknown_targets((*_HERE, "watch", "targets"), settings.watch.targets or (), names)

    def advice(self, config: Config) -> Iterator[Fault]:
        if config.notifications.watch.after < config.imds.poll_interval:
            problem = "is less than imds.poll_interval, so a single failed poll makes it blind"
            yield (*_HERE, "watch", "after"), problem
        for index, route in enumerate(config.notifications.routes):
            place: Keys = (*_HERE, "routes", index)
            yield from useless((*place, "match"), route.match, config)
            if route.leader == "first" and route.match.target is Scope.OTHER:
                yield (
                    (*place, "leader"),
                    "never delivers with target: other; the leader is affected by the event",
                )
        used = {name for route in config.notifications.routes for name in route.targets}
        for index, target in enumerate(config.notifications.targets):
            # Without any route, each target gets everything.
            if used and target.name not in used:
                yield (*_HERE, "targets", index), "no route names this target, so it gets no message"

    def addresses(
        self, loaded: Loaded, environ: Mapping[str, str], mistakes: Mistakes
    ) -> tuple[Address, ...]:
        """Return every target's address; those of ``--notify`` are the targets notify-1, notify-2, ...

        In a target's ``url``, ``${NAME}`` is replaced by the value of the environment variable; see
        `expanded`. Any other ``$`` is literal; a literal ``${`` is written ``%24{``. A missing or empty
        variable or file is added to ``mistakes``, without any secret. A target without an address is left
        out; see `faults`.
        """
        settings, file, extra = loaded.config.notifications, loaded.file, loaded.urls
        resolved, apprise_config = [], ""
        with mistakes:
            if settings.apprise_config:
                text = _read(settings.apprise_config, (*_HERE, "apprise_config"), file)
                if settings.apprise_config.endswith((".yml", ".yaml")):
                    # Apprise does not say where the file is wrong.
                    parse(text, Path(settings.apprise_config))
                apprise_config = settings.apprise_config
        for index, target in enumerate(settings.targets):
            place: Keys = (*_HERE, "targets", index)
            with mistakes:
                if address := _address(target, place, apprise_config, file, environ):
                    resolved.append(address)
        is_variable = list(extra) == environ.get(_NOTIFY, "").split()
        for number, url in enumerate(extra, 1):
            with mistakes:
                address = Address(
                    f"notify-{number}", url.strip(), flag=_NOTIFY if is_variable else "--notify"
                )
                if not address.url:
                    raise ConfigurationError(f"{address.place} is empty")
                resolved.append(address)
        usable = []
        for address in resolved:
            if address.url and (problem := fault(address.url)):
                mistakes.problems += loaded.error(address, problem).problems
            else:
                usable.append(address)
        return tuple(usable)

    def probe(self, address: Address, clock: Clock) -> Diagnosis:
        """Resolve a target's host; `notify-test` is for delivery."""
        name = _host(address)
        shown = f"{address.target} ({address.label})"
        if not name:
            return Diagnosis(
                Level.OK, "target", f"{shown} is a valid address; notify-test sends a message to it"
            )
        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a valid host name"
            # A proxy resolves the names itself.
            level = Level.WARNING if urllib.request.getproxies() else Level.FAILURE
            text = f"{shown}: {name} cannot be resolved: {reason}; check the URL and DNS"
            return Diagnosis(level, "target", text)
        return Diagnosis(Level.OK, "target", f"{shown}: {name} resolves; notify-test sends a message to it")

    def check(self, loaded: Loaded, environ: Mapping[str, str], mistakes: Mistakes) -> list[str]:
        with opened(loaded, environ, mistakes) as (plan, _):
            return [
                f"target {name}: {count} {'service' if count == 1 else 'services'} "
                f"with the {plan.addresses[name].label}"
                for name, count in plan.services.items()
            ]


def _unknown_targets(place: Keys, targets: Sequence[str], names: Sequence[str]) -> Iterator[Fault]:
    for index, name in enumerate(targets):
        if name not in names:
            remedy = did_you_mean(name, names, "correct it, or add it to notifications.targets")
            yield (*place, index), f"{name!r} is not a target; {remedy}"


def _target(place: Keys, target: Target, *, defines_tags: bool) -> Iterator[Fault]:
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
    yield from headers(place, target.headers)
    if re.fullmatch("alertmanager(-[0-9]+)?", target.name):
        yield (*place, "name"), "is the name of what alertmanager.urls has; choose another name"
    if target.name.startswith("notify-") and target.name[7:].isdigit():
        yield (*place, "name"), "is what --notify calls its targets; choose another name"


def _own_templates(place: Keys, target: Target) -> Iterator[Fault]:
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


def fault(url: str) -> str:
    """Return why nothing can be sent to an Apprise URL, without repeating it; "" if that is not known."""
    # Apprise would find it out, but only once its process has started.
    if "://" not in url:
        return "is not a URL; write a variable as ${NAME}" if url.startswith("$") else NO_URL
    return next((remedy for pattern, remedy in _DEAD if pattern.search(url)), "")


def _address(
    target: Target, place: Keys, apprise_config: str, file: YamlFile, environ: Mapping[str, str]
) -> Address | None:
    def value(text: str, *keys: str) -> str:
        return expanded(text, (*place, *keys), file, environ)

    if target.tag and apprise_config:
        keys = (*place, "tag")
        _refuse_url(target.tag, keys, file, "a tag")
        return Address(target.name, apprise_config=(apprise_config, target.tag), keys=keys)
    if target.url_file:
        keys = (*place, "url_file")
        url = _url_in_file(target.url_file, keys, file)
        return Address(target.name, url, keys=keys, url_file=target.url_file)
    if target.url:
        return Address(target.name, value(target.url, "url"), keys=(*place, "url"))
    if target.webhook:
        mistakes, keys, sent = Mistakes(), (*place, "webhook"), {}
        for name, text in target.headers.items():
            with mistakes:
                sent[name] = value(text, "headers", name)
        with mistakes:
            url = value(target.webhook, "webhook")
            if http_url(url) is None:
                raise file.error(keys, "is not a valid URL; write it like https://example.com/events")
        mistakes.check()
        content_type = target.templates.content_type if target.templates else ""
        return Address(target.name, webhook=url, headers=sent, keys=keys, content_type=content_type)
    return None


def reread(address: Address) -> Address:
    """Return an address with the URL that its file has by now.

    Raises:
        ConfigurationError: the file cannot be read, or nothing can be sent to what it has.
    """
    file = YamlFile()
    url = _url_in_file(address.url_file, address.keys, file)
    if problem := fault(url):
        raise file.error(address.keys, problem)
    return msgspec.structs.replace(address, url=url)


def _url_in_file(path: str, keys: Keys, file: YamlFile) -> str:
    lines = _read(path, keys, file).split()
    if len(lines) != 1:
        what = "is empty" if not lines else "has more than one URL"
        raise file.error(keys, f"the file {what}; it must contain one Apprise URL")
    return lines.pop()


def _refuse_url(text: str, keys: Keys, file: YamlFile, wanted: str) -> None:
    """Refuse a URL in the wrong place, without repeating it as other errors would."""
    if "://" in text:
        raise file.error(keys, f"must be {wanted}, but is a URL; set it as a target's url")


def _read(name: str, keys: Keys, file: YamlFile) -> str:
    _refuse_url(name, keys, file, "the path of a file")
    path = Path(name)
    try:
        return files.read_text(path)
    except UnicodeDecodeError as error:
        raise file.error(keys, "the file is not text") from error
    except OSError as error:
        raise file.error(keys, f"the file cannot be read: {error.strerror}") from error


def _host(address: Address) -> str:
    """Return the host of a target's URL; "" if that part is a token."""
    shown = urlsplit(address.label).hostname if "://" in address.label else None
    if not shown or shown == "...":
        return ""
    return dict(parse_qsl(urlsplit(address.url).query)).get("smtp", shown)
