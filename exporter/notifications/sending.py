"""Sending with Apprise: attempts of bounded duration with a typed result."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from exporter.model.messages import Backlog, Delivery, Failure, Rendered, Severity
from exporter.notifications import failures, services
from exporter.notifications.addresses import Address

# Apprise's timeouts are 4 s, and 15 s for mail, when a slow receiver may already have the message.
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 60.0
_SEND_SECONDS = 66.0
# The check of a target determines its plugin; otherwise Apprise loads all, which take 17 MiB for good.
_CHECK_SECONDS = 5.0
# The only service that uses the connect timeout for the response, too.
_MAIL = "E-Mail"
_LIMIT_MARGIN = 100
_NOTIFY_TYPES = {
    Severity.INFO: "info",
    Severity.SUCCESS: "success",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "failure",
}
# Attempts that last longer are abandoned; with this many of them no more are started.
MOST_STUCK = 3
# The attribute with the incident's key, for plugins without ``dedup``.
_INCIDENT_KEYS = {"Opsgenie": "alias", "Jira": "alias", "Splunk On-Call": "entity_id"}
# These close and annotate only what they opened: the plugin stores the requests for this long.
_WITH_MEMORY = ("Opsgenie", "Jira")
_REMEMBERED_SECONDS = 60 * 24 * 3600
_OPEN = "new"


class Service:
    """One service that Apprise can send to.

    A service with incidents gets the same key with all messages of an incident, and the last one resolves it.
    A key or an action in the target's URL takes precedence.
    """

    def __init__(self, plugin: Any, url: str = "") -> None:
        """Configure a plugin; ``url`` is the target's, "" if unknown."""
        from apprise import Apprise

        self.name = str(plugin.service_name)
        connect = _READ_SECONDS if self.name == _MAIL else _CONNECT_SECONDS
        for key, seconds in (("socket_connect_timeout", connect), ("socket_read_timeout", _READ_SECONDS)):
            if getattr(plugin, key) == getattr(type(plugin), key):
                setattr(plugin, key, max(seconds, getattr(plugin, key)))
        plugin.request_rate_per_sec = 0
        # The caller retries, on its own schedule.
        plugin.retry = 0
        if plugin.overflow_mode == type(plugin).overflow_mode:
            plugin.overflow_mode = "split"
        self._plugin = plugin
        self.body_limit = max(int(plugin.body_maxlen) - _LIMIT_MARGIN, _LIMIT_MARGIN)
        # Only services with arbitrary headers have it: json, xml, form and the like.
        self._headers: Any = getattr(plugin, "headers", None)
        self._has_memory = self.name in _WITH_MEMORY
        # The stored requests of a plugin are on disk, and read at its creation.
        self.is_reusable = not self._has_memory or plugin.asset.storage_path is None
        field = _incident_field(plugin)
        self.has_incidents = field is not None
        self._incident_field = None
        if field is not None:
            entity = f"{plugin.app_id}/{getattr(plugin, 'routing_key', '')}"  # Splunk On-Call's default
            if getattr(plugin, field) in (None, "", entity):
                self._incident_field = field
            given = (type(plugin).parse_url(url) or {}) if url else {}
            if "map" in plugin.template_args["action"]["values"] and not given.get("action"):
                plugin.action = "map"
        self._sending = Apprise(asset=plugin.asset)
        self._sending.add(plugin)

    def send(self, rendered: Rendered) -> Delivery:
        """Make one attempt on this thread, however long the service takes."""
        resolves = self.has_incidents and rendered.resolves
        notify_type = "success" if resolves else _NOTIFY_TYPES[rendered.severity]
        opens, opened = self._opens(notify_type), f"opened {rendered.incident}"
        if self._has_memory and not opens and not self._plugin.store.get(opened):
            return Delivery(delivered=True, skipped=True)
        if self._incident_field is not None and rendered.incident:
            setattr(self._plugin, self._incident_field, rendered.incident)
        if isinstance(self._headers, dict):
            self._headers.pop("traceparent", None)
            self._headers |= {"traceparent": rendered.traceparent} if rendered.traceparent else {}
        with failures.handled_by(services.APPRISE_LOGGER) as errors:
            result = self._sending.notify(
                body=rendered.body,
                title=rendered.title,
                body_format=rendered.format,
                notify_type=notify_type,
                interpret_escapes=False,
                log_level=logging.WARNING,
            )
        if not result:
            return failures.of(self._plugin, [entry.message for entry in result.logs()], errors)
        if opens:
            self._plugin.store.set(opened, True, expires=_REMEMBERED_SECONDS)
        return Delivery(delivered=True)

    def _opens(self, notify_type: str) -> bool:
        """Return whether a service with a memory opens an incident for a message of this type."""
        if not self._has_memory:
            return False
        action = self._plugin.action
        return bool((self._plugin.mapping[notify_type] if action == "map" else action) == _OPEN)


def _incident_field(plugin: Any) -> str | None:
    """Return the attribute of a plugin for the incident's key; None for services without incidents."""
    dedup = plugin.template_args.get("dedup", {})
    found: str | None = dedup.get("alias_of", "dedup") if dedup else None
    return _INCIDENT_KEYS.get(str(plugin.service_name), found)


def open_services(address: Address, storage: Path | None) -> Sequence[Service]:
    """Return the services behind an address; ``storage`` is as in `services.plugins`."""
    return [Service(plugin, address.url) for plugin in services.plugins(address, storage)]


class AppriseSender:
    """Sends to one target with Apprise, which is imported on first use."""

    def __init__(
        self,
        address: Address,
        *,
        storage: Path | None = None,
        checked: threading.Event | None = None,
        timeout: float = _SEND_SECONDS,
        open_services: Callable[[Address, Path | None], Sequence[Service]] = open_services,
    ) -> None:
        """Send to ``address``; the first attempt waits for ``checked``, set once the address is checked."""
        self.address = address.label
        self._address = address
        self._storage = storage
        self._checked = checked
        self._timeout = timeout
        self._open = open_services
        self._lock = threading.Lock()
        # Each service is used by one thread at a time; parallel attempts open their own.
        self._idle: list[Sequence[Service]] = []
        self._stuck: list[threading.Thread] = []

    @cached_property
    def body_limit(self) -> int | None:
        """Return the most characters that every service behind the target accepts."""
        return min((service.body_limit for service in self._look()), default=None)

    @cached_property
    def backlog(self) -> Backlog:
        """Return how to send messages that were queued while the target was down."""
        with_incidents = [service.has_incidents for service in self._look()]
        if not any(with_incidents):
            return Backlog.DIGEST
        return Backlog.LAST if all(with_incidents) else Backlog.EACH

    def send(self, rendered: Rendered, delivered_to: set[str] | None = None) -> Delivery:
        """Send to all services that are not in ``delivered_to`` in parallel, within ``timeout`` seconds.

        Those that accept the message are added, even if they do so later.
        """
        delivered_to = set() if delivered_to is None else delivered_to
        with self._lock:
            self._stuck = [thread for thread in self._stuck if thread.is_alive()]
            if len(self._stuck) >= MOST_STUCK:
                return Delivery(delivered=False, reason=f"the last {MOST_STUCK} attempts still hang")
        found = self._take()
        if not found:
            return Delivery(delivered=False, reason="Apprise does not take its URL any more")
        names = {f"{number} {service.name}": service for number, service in enumerate(found)}
        missing = {name: service for name, service in names.items() if name not in delivered_to}
        results, stuck = self._try(missing, rendered, delivered_to)
        if not stuck:
            self._put_back(found)
        failed = [(missing[name].name, one) for name, one in results.items() if not one.delivered]
        if not failed:
            return Delivery(delivered=True, skipped=all(one.skipped for one in results.values()))
        # A message is given up only if no service would accept it later.
        name, worst = min(failed, key=lambda one: one[1].failure is not Failure.TARGET)
        reason = f"{name}: {worst.reason}" if len(found) > 1 else worst.reason
        return Delivery(delivered=False, reason=reason, failure=worst.failure)

    def _try(
        self, missing: Mapping[str, Service], rendered: Rendered, delivered_to: set[str]
    ) -> tuple[dict[str, Delivery], bool]:
        """Return each service's result, and whether an attempt was abandoned."""
        results: dict[str, Delivery] = {}

        def work(name: str, service: Service) -> None:
            results[name] = _send(service, rendered)
            if results[name].delivered:
                delivered_to.add(name)

        # A very slow receiver can block its sender forever; that must not keep the process from exiting.
        threads = [
            threading.Thread(target=work, args=each, name=f"send to {self._address.target}", daemon=True)
            for each in missing.items()
        ]
        deadline = time.monotonic() + self._timeout
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        stuck = [thread for thread in threads if thread.is_alive()]
        with self._lock:
            self._stuck += stuck
        late = Delivery(False, f"it did not answer within {self._timeout:g} s", Failure.UNANSWERED)
        return {name: results.get(name, late) for name in missing}, bool(stuck)

    def _look(self) -> Sequence[Service]:
        found = self._take()
        self._put_back(found)
        return found

    def _take(self) -> Sequence[Service]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        if self._checked is not None:
            self._checked.wait(_CHECK_SECONDS)
        return self._open(self._address, self._storage)

    def _put_back(self, found: Sequence[Service]) -> None:
        with self._lock:
            if found and all(service.is_reusable for service in found):
                self._idle.append(found)


def _send(service: Service, rendered: Rendered) -> Delivery:
    try:
        return service.send(rendered)
    except Exception as error:  # noqa: BLE001  # of any service; its text may have the URL
        return Delivery(delivered=False, reason=f"{type(error).__name__} in Apprise")
