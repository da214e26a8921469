"""The services behind a target, by Apprise, which only the sender process imports.

What is said about a URL that Apprise does not accept contains no part of it.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import unquote

from exporter.config.addresses import Address
from exporter.errors import near
from exporter.model.messages import Delivery, Failure, Rendered, Severity, TextFormat
from exporter.outputs.notifications import apprisefile, failures
from exporter.outputs.notifications.apprisefile import AppriseFile
from exporter.outputs.notifications.fitting import Room
from exporter.outputs.notifications.protocol import (
    CONNECT_SECONDS,
    MAIL_SECONDS,
    NO_URL,
    READ_SECONDS,
    Checked,
)

_MAIL = "E-Mail"  # the only service that uses the connect timeout for the response, too
_PAGER_DUTY = "Pager Duty"
# Its cards show one line of a title, as the plugin does not wrap it; a phone has room for half of ours.
_TEAMS = "Power Automate / Workflows (for MSTeams)"
# Nothing that Apprise writes for a character is longer, such as ``&quot;`` or ``</li>`` and a line end.
_MOST_GROWTH = 10
# Apprise converts white space between the items of a list into empty lines of a mail's part in plain text.
_BETWEEN_ITEMS = re.compile(r"(?<=<ul>)\s+(?=<li>)|(?<=</li>)\s+(?=<li>|</ul>)")
_NOTIFY_TYPES = {
    Severity.INFO: "info",
    Severity.SUCCESS: "success",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "failure",
}
# Priorities for info, success, warning and critical, where the URL has none. Info and success are silent.
# From -2, the lowest, to 2, which repeats until someone acknowledges it.
_BY_FIVE = (-1, -1, 0, 1)
_BY_ONE = (5, 5, 3, 1)  # from P1, critical, to P5, informational
_PRIORITIES: dict[str, tuple[Any, Any, Any, Any]] = {
    "Pushover": _BY_FIVE,  # https://pushover.net/api#priority
    "Prowl": _BY_FIVE,  # https://www.prowlapp.com/api.php#add
    "Join": _BY_FIVE,  # https://joaoapps.com/join/api/
    "Growl": _BY_FIVE,  # http://www.growlforwindows.com/gfw/help/gntp.aspx
    "Pushsafer": _BY_FIVE,  # https://www.pushsafer.com/en/pushapi
    "Gotify": (1, 1, 5, 8),  # https://github.com/gotify/android#message-priorities
    "ntfy": ("low", "low", "high", "max"),  # https://docs.ntfy.sh/publish/#message-priority
    "Opsgenie": _BY_ONE,  # https://docs.opsgenie.com/v1.0/docs/priority-field
    # https://support.atlassian.com/jira-service-management-cloud/docs/what-are-alert-priorities/
    "Jira": _BY_ONE,
    "SMS Eagle": (0, 0, 0, 1),  # https://www.smseagle.eu/docs/apiv2/
}
_MAIL_PRIORITIES = (("5", "low"), ("5", "low"), ("3", "normal"), ("1", "high"))
# The attribute with the incident's key, for plugins without ``dedup``.
_INCIDENT_KEYS = {"Opsgenie": "alias", "Jira": "alias", "Splunk On-Call": "entity_id"}
# These close and annotate only what they opened: the plugin stores the requests for this long.
_WITH_MEMORY = ("Opsgenie", "Jira")
_REMEMBERED_SECONDS = 5_184_000  # 60 days
_OPEN = "new"
_SENDER = "Azure Scheduled Events"  # the sender's name in mails and chats, unless the URL has one
_APPRISE_LOGGER = "apprise"
# Of the services behind a target: each context of TLS takes a megabyte of the little that a child may take.
_MOST_AT_ONCE = 4


class Service:
    """One service that Apprise can send to; what its URL says takes precedence.

    A service with incidents gets the same key with all messages of an incident, and the last one resolves it.
    """

    def __init__(self, plugin: Any, url: str = "") -> None:
        """Configure a plugin; ``url`` is the target's, "" if unknown."""
        from apprise import Apprise

        self.name = str(plugin.service_name)
        # After a reload another service may be in its place.
        self.identity = hashlib.sha256(plugin.url().encode()).hexdigest()
        self._secrets = (url, plugin.url())
        self.is_mail = self.name == _MAIL
        timeouts = (MAIL_SECONDS, MAIL_SECONDS) if self.is_mail else (CONNECT_SECONDS, READ_SECONDS)
        for key, seconds in zip(("socket_connect_timeout", "socket_read_timeout"), timeouts, strict=True):
            if getattr(plugin, key) == getattr(type(plugin), key):
                setattr(plugin, key, seconds)
        plugin.request_rate_per_sec = 0
        plugin.retry = 0  # the caller retries, on its own schedule
        if plugin.overflow_mode == type(plugin).overflow_mode:
            # What `excess` measures fits. If it should not, half a message is better than a second one.
            plugin.overflow_mode = "truncate"
        self._plugin = plugin
        given = (type(plugin).parse_url(url) or {}) if url else {}
        formats: tuple[TextFormat, ...] = ("html", "markdown", "text")
        self.room = Room(self._excess, [kind for kind in formats if plugin.resolve_format(kind) == kind])
        # Services with arbitrary headers have it: json, xml, form, mail and the like.
        headers: Any = getattr(plugin, "headers", None)
        self._own_headers = headers if isinstance(headers, dict) else None
        self.shows_facts = self.name == _PAGER_DUTY
        # The user's own card has a place for the title.
        self._cuts_title = self.name == _TEAMS and not plugin.template
        self._has_memory = self.name in _WITH_MEMORY
        self._priorities = _PRIORITIES.get(self.name)
        if self._priorities and (
            given.get("priority") or (not url and not _is_default(plugin, "priority", plugin.priority))
        ):
            self._priorities = None
        # The stored requests of a plugin are on disk, and read at its creation.
        self.is_reusable = not self._has_memory or plugin.asset.storage_path is None
        self._prepare_incidents(given)
        self._sending = Apprise(asset=plugin.asset)
        self._sending.add(plugin)

    def _prepare_incidents(self, given: dict[str, Any]) -> None:
        plugin, self._incident_field = self._plugin, None
        declared = plugin.template_args.get("dedup")
        # The attribute for the incident's key; None for services without incidents.
        field = _INCIDENT_KEYS.get(self.name, declared and declared.get("alias_of", "dedup"))
        self.has_incidents = field is not None
        if field is not None:
            entity = f"{plugin.app_id}/{getattr(plugin, 'routing_key', '')}"  # Splunk On-Call's default
            if getattr(plugin, field) in (None, "", entity):
                self._incident_field = field
            if "map" in plugin.template_args["action"]["values"] and not given.get("action"):
                plugin.action = "map"
        if self.name == _PAGER_DUTY:
            self._pager = (plugin.source, plugin.click, dict(plugin.details))

    def _excess(self, title: str, body: str, text_format: TextFormat) -> int:
        """Return by how many characters a message is too long; 0 or less if it fits into one request.

        They are counted as the service gets them: in its format, with its markup, and with a title that is
        part of the body. Apprise counts in the same way, in ``NotifyBase``.
        """
        plugin, room = self._plugin, int(self._plugin.body_maxlen)
        if self.name == _PAGER_DUTY:
            # It gets the title alone; the facts have fields of their own.
            return len(title) - room
        most_lines = int(plugin.body_max_line_count)
        if body and not most_lines and _MOST_GROWTH * (len(title) + len(body)) < room:
            return _MOST_GROWTH * (len(title) + len(body)) - room
        shown = str(plugin.resolve_format(text_format).value)
        if title and plugin.title_maxlen > 0 and plugin.overflow_amalgamate_title:
            room -= min(len(title) + plugin.overflow_max_display_count_width, plugin.title_maxlen)
        text = self._with_title(title, body, text_format, shown)
        hidden = sum(map(len, text.splitlines()[most_lines:])) if most_lines else 0
        length = max(len(text), len(plugin.dialect_convert(text, shown)))
        return length + hidden + int(plugin.overflow_buffer) - room

    def _with_title(self, title: str, body: str, text_format: TextFormat, shown: str) -> str:
        """Return a body in the service's format, with the title if the service has no field for all of it."""
        body = _converted(text_format, shown, body)
        if title and self._cuts_title:
            return f"**{title}**\n\n{body}"
        if not title or self._plugin.title_maxlen > 0:
            return body
        title, tag = _converted(text_format, shown, title), self._plugin.default_html_tag_id
        if shown == "html":
            return f"<{tag}>{title}</{tag}><br />\r\n{body}"
        return f"# {title}\n{body}" if shown == "markdown" else f"{title}\r\n{body}"

    def send(self, rendered: Rendered) -> Delivery:
        """Make one attempt on this thread, however long the service takes."""
        if not (rendered.is_incident if self.has_incidents else not rendered.only_closes):
            return Delivery(delivered=True, skipped=True)
        resolves = self.has_incidents and rendered.resolves
        notify_type = "success" if resolves else _NOTIFY_TYPES[rendered.severity]
        opens, opened = self._has_memory and self._opens(notify_type), f"opened {rendered.incident}"
        if self._has_memory and not opens and not self._plugin.store.get(opened):
            return Delivery(delivered=True, skipped=True)
        title, body, body_format = rendered.title, rendered.body, rendered.format
        self._set_fields(rendered)
        if self.name == _PAGER_DUTY or not body:
            title, body, body_format = "", title, "text"
        elif self._cuts_title:
            body = self._with_title(title, body, body_format, "markdown")
            title, body_format = "", "markdown"
        elif self.name == _MAIL and body_format == "markdown":
            body_format = self._plugin.resolve_format(body_format).value
            # Apprise makes the part in plain text of the other one.
            body = _BETWEEN_ITEMS.sub("", _converted("markdown", body_format, body))
        # Only at this level does Apprise log what a receiver answered, and the exception of a mail.
        logging.getLogger(_APPRISE_LOGGER).setLevel(logging.DEBUG)
        with failures.handled_by(_APPRISE_LOGGER) as errors:
            result = self._sending.notify(
                body=body,
                title=title,
                body_format=body_format,
                notify_type=notify_type,
                interpret_escapes=False,
                log_level=logging.DEBUG,
            )
        if not result:
            return failures.of(list(result.logs()), errors, self._secrets)
        if opens:
            self._plugin.store.set(opened, True, expires=_REMEMBERED_SECONDS)
        return Delivery(delivered=True)

    def _set_fields(self, rendered: Rendered) -> None:
        """Set what a service knows besides title and body."""
        plugin, level = self._plugin, rendered.severity.weight
        if self._incident_field is not None and rendered.incident:
            setattr(plugin, self._incident_field, rendered.incident)
        if self._priorities is not None:
            plugin.priority = self._priorities[level]
        if self._own_headers is not None:
            added = {"traceparent": rendered.traceparent} if rendered.traceparent else {}
            plugin.headers = (_mail_headers(rendered) if self.name == _MAIL else added) | self._own_headers
        if self.name == _PAGER_DUTY:
            source, click, details = self._pager
            plugin.source = source if not _is_default(plugin, "source", source) else rendered.source or source
            plugin.click = click or rendered.link or None
            plugin.details = _joined(rendered.facts) | details

    def _opens(self, notify_type: str) -> bool:
        """Return whether a service with a memory opens an incident for a message of this type."""
        action = self._plugin.action
        return bool((self._plugin.mapping[notify_type] if action == "map" else action) == _OPEN)


def _is_default(plugin: Any, field: str, value: Any) -> bool:
    declared = plugin.template_args.get(field) or plugin.template_tokens.get(field) or {}
    return value in (None, "", declared.get("default"))


def _converted(text_format: str, shown: str, text: str) -> str:
    """Return a text in another format, as Apprise converts it."""
    from apprise.conversion import convert_between

    return str(convert_between(text_format, shown, text))  # type: ignore[no-untyped-call]  # Apprise


def _joined(facts: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return facts by label, with the texts of one label in one."""
    texts: dict[str, str] = {}
    for label, text in facts:
        texts[label] = f"{texts[label]}; {text}" if label in texts else text
    return texts


def _mail_headers(rendered: Rendered) -> dict[str, str]:
    """Return the headers by which mail programs show the priority, and the mails of one event as a thread."""
    number, word = _MAIL_PRIORITIES[rendered.severity.weight]
    headers = {"X-Priority": number, "Importance": word}
    if rendered.incident:
        thread = re.sub(r"[^A-Za-z0-9/_-]", "-", rendered.incident)
        headers |= dict.fromkeys(("References", "In-Reply-To"), f"<{thread}@scheduled-events.invalid>")
    return headers


class AppriseTarget:
    """The services behind an address."""

    def __init__(self, address: Address, storage: str) -> None:
        self._address = address
        self._storage = storage
        self._kept: Sequence[Service] = ()

    def open(self) -> Sequence[Service]:
        """Return the services; none if Apprise does not accept the address."""
        if not self._kept:
            _, plugins = _plugins(self._address, _asset(self._storage))
            services = [Service(plugin, self._address.url) for plugin in plugins]
            # A file may have changed by the next message.
            if self._address.apprise_config or not all(service.is_reusable for service in services):
                return services
            self._kept = services
        return self._kept

    def send(
        self,
        all_services: Sequence[Service],
        rendered: Sequence[Rendered],
        had: Sequence[str],
        sent: Callable[[str], None] = lambda _: None,
    ) -> Delivery:
        """Send to each service not in ``had``, a few at a time; of several, ``sent`` gets each success."""
        names = {f"{number} {service.identity}": service for number, service in enumerate(all_services)}
        missing = {name: service for name, service in names.items() if name not in had}
        if not all_services:
            return Delivery(False, "Apprise does not take its URL any more")
        messages = dict(zip(names, rendered, strict=True))

        def attempt(name: str) -> Delivery:
            result = failures.attempt(partial(missing[name].send, messages[name]))
            if result.delivered and len(missing) > 1:
                sent(name)
            return result

        if len(missing) > 1:
            with ThreadPoolExecutor(min(len(missing), _MOST_AT_ONCE)) as pool:
                tried = list(pool.map(attempt, missing))
        else:
            tried = [attempt(name) for name in missing]
        results = dict(zip(missing, tried, strict=True))
        services = (*had, *(name for name, result in results.items() if result.delivered))
        failed = [
            (missing[name].name, delivery) for name, delivery in results.items() if not delivery.delivered
        ]
        if not failed:
            skipped = bool(results) and all(delivery.skipped for delivery in results.values())
            return Delivery(delivered=True, skipped=skipped, services=services)
        # A message is given up only if no service would accept it later.
        name, worst = min(failed, key=lambda pair: pair[1].failure is not Failure.TARGET)
        reason = f"{name}: {worst.reason}" if len(all_services) > 1 else worst.reason
        return Delivery(False, reason, worst.failure, services=services)


def _asset(storage: str) -> Any:
    """Return Apprise's settings; ``storage`` is the directory for services with incidents, "" for memory."""
    from apprise import AppriseAsset

    # Apprise's texts may contain a URL, so they do not reach this process' handlers.
    logging.getLogger(_APPRISE_LOGGER).propagate = False
    # Without its own time limit Apprise sends on the calling thread.
    return AppriseAsset(
        app_id=_SENDER,
        app_desc=_SENDER,
        async_mode=False,
        service_timeout=0,
        storage_mode="flush" if storage else "memory",
        storage_path=storage or None,
        interpret_emojis=False,
        # A redirect would send the message, and headers with secrets, to another host.
        http_redirects=False,
    )


def _plugins(address: Address, asset: Any) -> tuple[AppriseFile, list[Any]]:
    """Return the file that an address names, and Apprise's plugins; none if Apprise does not accept it."""
    from apprise import Apprise

    apprise = Apprise(asset=asset)
    if address.apprise_config is None:
        return AppriseFile(), list(apprise) if apprise.add(address.url) else []
    path, tag = address.apprise_config
    file = apprisefile.read(path, asset)
    apprise.add(file.plugins)
    return file, list(apprise.find(tag=tag))


def check(address: Address) -> Checked:
    file, plugins = _plugins(address, _asset(""))
    if file.problem:
        return Checked(file.problem)
    if not plugins:
        return Checked(refusal(address, has_services=bool(file.plugins)))
    services = [Service(plugin, address.url) for plugin in plugins]
    return Checked(
        incidents=any(service.has_incidents for service in services),
        is_mail=any(service.is_mail for service in services),
        services=len(services),
        not_taken=file.not_taken,
        included=file.included,
        doubts=tuple(_misspelt(address.url, plugins)),
    )


def _misspelt(urls: str, plugins: Sequence[Any]) -> Iterator[str]:
    """Yield each parameter that a service ignores, and the one that is likely to be meant."""
    # A text may have several URLs, separated by spaces or commas.
    parts = re.split(r"[\s,]+(?=[A-Za-z0-9+.-]+://)", urls)
    # In an address as the service shows it, parameters are the service's own.
    for url, plugin in zip(parts, plugins, strict=True) if len(parts) == len(plugins) else ():
        names = [*plugin.template_args, *plugin.template_tokens]
        for pair in () if url.lower().startswith("http") else url.partition("?")[2].split("&"):
            name = unquote(pair.partition("=")[0]).lower()
            meant = near(name, names)
            if name not in names and meant and name[:1] not in ("+", "-", ":"):
                yield f"has a parameter that the service does not know; did you mean {meant}?"


_FORMATS = "https://github.com/caronc/apprise/wiki/config"
_TOKEN = re.compile(r"\{(\w+)\}")


def refusal(address: Address, *, has_services: bool = False) -> str:
    """Return why Apprise does not accept an address, and the remedy.

    ``has_services`` is whether it accepts any service of the address's file.
    """
    from apprise import Apprise

    if address.apprise_config is not None:
        where = "notifications.apprise_config"
        missing = f"{where} has no service with this tag that Apprise accepts; add it there"
        unread = f"Apprise accepts no service in the file of {where}; see {_FORMATS}"
        return missing if has_services else unread
    scheme, separator, _ = address.label.partition("://")
    if not separator:
        return NO_URL
    if scheme in ("http", "https"):
        return (
            f"Apprise does not recognize this {scheme}:// URL, or part of it is missing; copy all of it, or "
            "use the service's own scheme, such as slack://"
        )
    service = next(
        (
            schema
            for schema in Apprise().details(show_disabled=True)["schemas"]
            if scheme in (*(schema["protocols"] or ()), *(schema["secure_protocols"] or ()))
        ),
        None,
    )
    if service is None:
        return f"Apprise knows no service {scheme}://; see the list in its documentation"
    if not service["enabled"]:
        return f"Apprise needs more Python packages for {scheme}://; see {service['setup_url']}"
    reason = _fault(address.url, service["details"])
    return f"Apprise does not accept this {scheme}:// URL{reason}; see {service['setup_url']}"


def _fault(url: str, details: Mapping[str, Any]) -> str:
    """Return what is missing or malformed in a URL, and the form that it should have."""
    rest = url.partition("://")[2].partition("?")[0]
    scheme = url.partition("://")[0].lower()
    if scheme.startswith("mailto"):
        quote = "; write @ in a user name or password as %40" if rest.count("@") > 1 else ""
        return f"; write it like {scheme}://user:password@example.com?to=oncall@example.com{quote}"
    form = details["templates"][0]
    names = _TOKEN.findall(form)[1:]
    parts = [unquote(part) for part in re.split(r"[/@:]", rest) if part]
    wrong = ""
    if len(parts) < len(names):
        wrong = f": {{{names[len(parts)]}}} is missing"
    for name, part in zip(names, parts, strict=False):
        pattern = details["tokens"][name].get("regex")
        if pattern and not re.match(pattern[0], part, re.IGNORECASE):
            wrong = f": {{{name}}} is malformed"
    return f"{wrong}; write it like {form.replace('{schema}', scheme)}" if wrong else ""
