"""Apprise, kept at arm's length: the only module that imports it, and only inside its functions.

Its import and its plugins take 20 MiB and a third of a second, and its loggers write URLs.
"""

import importlib
import logging
import os
import queue
from logging.handlers import QueueHandler
from pathlib import Path
from typing import Any

from exporter.model.messages import Delivery, Rendered
from exporter.model.severity import Severity
from exporter.notifications import failures, redirects
from exporter.notifications.addresses import Address
from exporter.notifications.incidents import Incidents

# As whom a mail or a chat shows the sender, where the URL does not say.
_SENDER = "Azure Scheduled Events"
_LIMIT_MARGIN = 100
_LOGGER = "apprise"
_NOTIFY_TYPES = {
    Severity.INFO: "info",
    Severity.SUCCESS: "success",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "failure",
}
# Apprise gives up after 4 s, mail after 15, when a slow receiver may well have the message.
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 60.0
# The one service whose time to connect is its time to answer, too.
_MAIL = "E-Mail"


class Service:
    """One service that Apprise can send to; ``name`` is the service's, as Apprise has it."""

    def __init__(self, plugin: Any, url: str = "") -> None:
        from apprise import Apprise

        self._incidents = Incidents(plugin, url)
        self.has_incidents = self._incidents.exist
        # What such a plugin remembers is on disk, and read when it is made.
        self.is_reusable = not self._incidents.has_memory or plugin.asset.storage_path is None
        plugin.request_rate_per_sec = 0
        self.name = str(plugin.service_name)
        for key, seconds in (
            ("socket_connect_timeout", _READ_SECONDS if self.name == _MAIL else _CONNECT_SECONDS),
            ("socket_read_timeout", _READ_SECONDS),
        ):
            if getattr(plugin, key) == getattr(type(plugin), key):
                setattr(plugin, key, max(seconds, getattr(plugin, key)))
        # Whoever calls tries again, at times of its own.
        plugin.retry = 0
        if plugin.overflow_mode == type(plugin).overflow_mode:
            plugin.overflow_mode = "split"
        self._plugin = plugin
        self.body_limit = max(int(plugin.body_maxlen) - _LIMIT_MARGIN, _LIMIT_MARGIN)
        # Only services that take any header have it: json, xml, form and the like.
        self._headers: Any = getattr(plugin, "headers", None)
        self._sending = Apprise(asset=plugin.asset)
        self._sending.add(plugin)

    def send(self, rendered: Rendered) -> Delivery:
        """Try once, on this thread, for as long as the service makes it last."""
        resolves = self.has_incidents and rendered.resolves
        notify_type = "success" if resolves else _NOTIFY_TYPES[rendered.severity]
        self._incidents.begin(rendered.incident)
        if not self._incidents.makes_request(rendered.incident, notify_type):
            return Delivery(delivered=True, skipped=True)
        if isinstance(self._headers, dict):
            self._headers.pop("traceparent", None)
            self._headers |= {"traceparent": rendered.traceparent} if rendered.traceparent else {}
        with failures.handled_by(_LOGGER) as errors:
            result = self._sending.notify(
                body=rendered.body,
                title=rendered.title,
                body_format=rendered.format,
                notify_type=notify_type,
                interpret_escapes=False,
                log_level=logging.WARNING,
            )
        if result:
            self._incidents.sent(rendered.incident, notify_type)
            return Delivery(delivered=True)
        status = failures.status_in(entry.message for entry in result.logs())
        if status is None:
            return failures.of_errors(errors)
        if 300 <= status < 400:
            return failures.of_redirect(status, redirects.location(self._plugin))
        return failures.of_status(status)


def open_services(address: Address, storage: Path | None = None) -> list[Service]:
    """Return the services behind an address; none where Apprise does not take it.

    ``storage`` is the directory for what services of incidents have to remember; None for memory alone.
    """
    return [Service(plugin, address.url) for plugin in plugins(address, storage)]


def plugins(address: Address, storage: Path | None = None) -> list[Any]:
    """Return Apprise's own objects for an address."""
    from apprise import Apprise, AppriseAsset, AppriseConfig

    _quieten()
    _ignore_netrc()
    # Without a time limit of its own Apprise sends on the calling thread, and leaves no thread behind.
    asset = AppriseAsset(
        app_id=_SENDER,
        app_desc=_SENDER,
        async_mode=False,
        service_timeout=0,
        storage_mode="memory" if storage is None else "flush",
        storage_path=None if storage is None else str(storage),
        interpret_emojis=False,
        # A redirect would take the message, and the headers with the secrets, to another host.
        http_redirects=False,
    )
    if address.plugin is not None:
        only = _plugin(address.url, *address.plugin, asset)
        if only is not None:
            return [only]
    apprise = Apprise(asset=asset)
    if address.apprise_config is None:
        return list(apprise) if apprise.add(address.url) else []
    path, tag = address.apprise_config
    apprise.add(AppriseConfig(paths=path, asset=asset))
    return list(apprise.find(tag=tag))


def only_plugin(address: Address, found: list[Any]) -> tuple[str, str] | None:
    """Name the module and the class of the one plugin that an address needs; None where Apprise must find it.

    It must for a URL as the service itself shows it, ``https://discord.com/api/webhooks/..``, and for several
    URLs in one: the class alone takes such a URL for another.
    """
    kind = type(found[0])
    alone = _plugin(address.url, kind.__module__, kind.__name__, found[0].asset)
    is_same = len(found) == 1 and alone is not None and alone.url() == found[0].url()
    return (kind.__module__, kind.__name__) if is_same else None


def not_taken(path: str) -> int:
    """Count the services of an Apprise file that Apprise does not take; it writes one error for each."""
    from apprise import AppriseConfig
    from apprise.logger import logger

    errors: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = QueueHandler(errors)
    handler.setLevel(logging.ERROR)
    logger.addHandler(handler)
    try:
        AppriseConfig(paths=path).services()
    finally:
        logger.removeHandler(handler)
    return errors.qsize()


def _plugin(url: str, module: str, name: str, asset: Any) -> Any:
    """Make the one object that a URL needs, as Apprise would, without its loading all others; None if not so.

    That is 17 MiB and a tenth of a second less.
    """
    try:
        kind = getattr(importlib.import_module(module), name)
        return kind(**(kind.parse_url(url) | {"asset": asset}))
    except Exception:  # noqa: BLE001  # whatever it is, Apprise's own way remains
        return None


def problem(address: Address) -> str:
    """Return why Apprise does not take an address, and what to do."""
    from apprise import Apprise

    if address.apprise_config is not None:
        return "notifications.apprise_config has no service with this tag that Apprise takes; add it there"
    scheme = address.label.partition("://")[0]
    if "://" not in address.label:
        return "is not a valid URL; write it like mailto://user:password@example.com"
    known = [
        service["enabled"]
        for service in Apprise().details(show_disabled=True)["schemas"]
        if scheme in (*(service["protocols"] or ()), *(service["secure_protocols"] or ()))
    ]
    if not known:
        return f"Apprise knows no service {scheme}://; see the list in its documentation"
    if not known[0]:
        return (
            f"Apprise needs more Python packages for {scheme}://; see the service's page in its documentation"
        )
    return f"Apprise does not take this {scheme}:// URL; see the service's page in its documentation"


def _ignore_netrc() -> None:
    """Keep requests from replacing a URL's ``Authorization`` header by what ~/.netrc has for the host."""
    os.environ["NETRC"] = os.devnull


def _quieten() -> None:
    """Keep what may have a URL in it out of the log."""
    for name in (_LOGGER, "paho", "slixmpp"):
        logger = logging.getLogger(name)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    logging.getLogger(_LOGGER).setLevel(logging.WARNING)
    # urllib3 warns of headers that it cannot read, with the whole URL.
    for name, level in (
        ("asyncio", logging.WARNING),
        ("requests", logging.WARNING),
        ("urllib3", logging.ERROR),
    ):
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, level))
