"""Apprise, kept at arm's length: the only module that imports it, and only inside its functions.

Its import and its plugins take 20 MiB and a third of a second, and its loggers write URLs.
"""

import importlib
import logging
import queue
import re
from collections.abc import Iterator
from http import HTTPStatus
from logging.handlers import QueueHandler
from typing import Any

from exporter.notifications.addresses import Address

# As whom a mail or a chat shows the sender, where the URL does not say.
_SENDER = "Azure Scheduled Events"
_LIMIT_MARGIN = 100
# Apprise gives up after 4 s, mail after 15, when a slow receiver may well have the message.
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 10.0


class Service:
    """One service that Apprise can send to; ``name`` is the service's, as Apprise has it."""

    def __init__(self, plugin: Any) -> None:
        from apprise import Apprise

        plugin.request_rate_per_sec = 0
        for key, seconds in (
            ("socket_connect_timeout", _CONNECT_SECONDS),
            ("socket_read_timeout", _READ_SECONDS),
        ):
            if getattr(plugin, key) == getattr(type(plugin), key):
                setattr(plugin, key, max(seconds, getattr(plugin, key)))
        # Whoever calls tries again, at times of its own.
        plugin.retry = 0
        if plugin.overflow_mode == type(plugin).overflow_mode:
            plugin.overflow_mode = "split"
        self.name = str(plugin.service_name)
        self.body_limit = max(int(plugin.body_maxlen) - _LIMIT_MARGIN, _LIMIT_MARGIN)
        # Only services that take any header have it: json, xml, form and the like.
        self._headers: Any = getattr(plugin, "headers", None)
        self._sending = Apprise(asset=plugin.asset)
        self._sending.add(plugin)

    def send(
        self, *, title: str, body: str, body_format: str, notify_type: str, traceparent: str = ""
    ) -> str:
        """Try once, on this thread, for as long as the service makes it last; return "" or why it failed.

        ``traceparent`` is the W3C header to send along, where the service takes headers.
        """
        if isinstance(self._headers, dict):
            self._headers.pop("traceparent", None)
            self._headers |= {"traceparent": traceparent} if traceparent else {}
        result = self._sending.notify(
            body=body,
            title=title,
            body_format=body_format,
            notify_type=notify_type,
            interpret_escapes=False,
            log_level=logging.DEBUG,
        )
        if result:
            return ""
        return _reason(entry.message for entry in result.logs())


def open_services(address: Address) -> list[Service]:
    """Return the services behind an address; none where Apprise does not take it."""
    return [Service(plugin) for plugin in plugins(address)]


def plugins(address: Address) -> list[Any]:
    """Return Apprise's own objects for an address."""
    from apprise import Apprise, AppriseAsset, AppriseConfig

    _quieten()
    # Without a time limit of its own Apprise sends on the calling thread, and leaves no thread behind.
    asset = AppriseAsset(
        app_id=_SENDER,
        app_desc=_SENDER,
        async_mode=False,
        service_timeout=0,
        storage_mode="memory",
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
    from apprise.plugins import N_MGR

    if address.apprise_config is not None:
        path, tag = address.apprise_config
        return f"{path} has no service with the tag {tag!r} that Apprise takes; add it there"
    scheme = address.label.partition("://")[0]
    if "://" not in address.label:
        return "is not a valid URL; write it like mailto://user:password@example.com"
    if scheme not in N_MGR:
        return f"Apprise knows no service {scheme}://; see the list in its documentation"
    if not N_MGR[scheme].enabled:
        return (
            f"Apprise needs more Python packages for {scheme}://; see the service's page in its documentation"
        )
    return f"Apprise does not take this {scheme}:// URL; see the service's page in its documentation"


def _quieten() -> None:
    """Keep what may have a URL in it out of the log; only `_reason` gets to see what Apprise says."""
    for name in ("apprise", "paho", "slixmpp"):
        logger = logging.getLogger(name)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    logging.getLogger("apprise").setLevel(logging.DEBUG)
    # urllib3 warns of headers that it cannot read, with the whole URL.
    for name, level in (
        ("asyncio", logging.WARNING),
        ("requests", logging.WARNING),
        ("urllib3", logging.ERROR),
    ):
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, level))


_PHRASES = {
    "timed out": "it did not answer in time",
    "timeout": "it did not answer in time",
    "refused": "it refuses connections",
    "getaddrinfo": "its name cannot be resolved",
    "failed to resolve": "its name cannot be resolved",
    "name or service": "its name cannot be resolved",
    "certificate": "its certificate is not accepted",
    "authentication": "it does not accept the credentials",
    "connection": "the connection failed",
}


def _reason(entries: Iterator[str]) -> str:
    """Reduce what Apprise logged, which may have anything in it, to words of ours."""
    text = "\n".join(entries)
    status = re.search(r"\berror=([1-5][0-9][0-9])\b", text)
    if status:
        number = int(status[1])
        known = number in HTTPStatus._value2member_map_
        return f"it answered {number}{f' ({HTTPStatus(number).phrase})' if known else ''}"
    folded = text.lower()
    return next(
        (words for phrase, words in _PHRASES.items() if phrase in folded), "Apprise could not send it"
    )
