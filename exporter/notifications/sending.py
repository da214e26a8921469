"""Sending through Apprise: one attempt, one typed result, within a bounded time."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from exporter.model.messages import Backlog, Delivery, Failure, Rendered
from exporter.notifications.addresses import Address

# A receiver has 60 s to answer (see `exporter.notifications.services`), and a few to be connected.
SEND_SECONDS = 66.0
# An attempt that lasts longer is left behind; with so many of them no more is begun.
MOST_STUCK = 3


class Service(Protocol):
    """What is needed of `exporter.notifications.services.Service`."""

    name: str
    body_limit: int
    has_incidents: bool
    is_reusable: bool

    def send(self, rendered: Rendered) -> Delivery:
        """Try once."""
        ...


def _open(address: Address, storage: Path | None) -> Sequence[Service]:
    from exporter.notifications import services

    return services.open_services(address, storage)


class AppriseSender:
    """The way to one target by Apprise, which is imported by the first thing that is asked of it."""

    def __init__(
        self,
        address: Address,
        *,
        storage: Path | None = None,
        timeout: float = SEND_SECONDS,
        open_services: Callable[[Address, Path | None], Sequence[Service]] = _open,
    ) -> None:
        """Make it; ``storage`` is as in `exporter.notifications.services.open_services`."""
        self.address = address.label
        self._address = address
        self._storage = storage
        self._timeout = timeout
        self._open = open_services
        self._lock = threading.Lock()
        # Services are used by one thread at a time; what attempts at the same time need is opened anew.
        self._idle: list[Sequence[Service]] = []
        self._stuck: list[threading.Thread] = []

    @cached_property
    def body_limit(self) -> int | None:
        """Return the most characters that every service behind it takes."""
        services = self._take()
        self._put_back(services)
        return min((service.body_limit for service in services), default=None)

    @cached_property
    def backlog(self) -> Backlog:
        """Return how messages are sent that waited while the target was down."""
        services = self._take()
        self._put_back(services)
        with_incidents = [service.has_incidents for service in services]
        if not any(with_incidents):
            return Backlog.DIGEST
        return Backlog.LAST if all(with_incidents) else Backlog.EACH

    def send(self, rendered: Rendered, delivered_to: set[str] | None = None) -> Delivery:
        """Try all services that are not in ``delivered_to`` at once, for ``timeout`` seconds at most.

        Those that accept the message are added, even if they do so later.
        """
        delivered_to = set() if delivered_to is None else delivered_to
        with self._lock:
            self._stuck = [thread for thread in self._stuck if thread.is_alive()]
            if len(self._stuck) >= MOST_STUCK:
                return Delivery(delivered=False, reason=f"the last {MOST_STUCK} attempts still hang")
        services = self._take()
        if not services:
            return Delivery(delivered=False, reason="Apprise does not take its URL any more")
        names = {f"{number} {service.name}": service for number, service in enumerate(services)}
        missing = {name: service for name, service in names.items() if name not in delivered_to}
        results, stuck = self._try(missing, rendered, delivered_to)
        if not stuck:
            self._put_back(services)
        failed = [(missing[name].name, one) for name, one in results.items() if not one.delivered]
        if not failed:
            return Delivery(delivered=True, skipped=all(one.skipped for one in results.values()))
        # Only what no service would accept later is given up.
        name, worst = min(failed, key=lambda one: one[1].failure is not Failure.TARGET)
        reason = f"{name}: {worst.reason}" if len(services) > 1 else worst.reason
        return Delivery(delivered=False, reason=reason, failure=worst.failure)

    def _try(
        self, services: Mapping[str, Service], rendered: Rendered, delivered_to: set[str]
    ) -> tuple[dict[str, Delivery], bool]:
        """Return each service's result, and whether an attempt was left behind."""
        results: dict[str, Delivery] = {}

        def work(name: str, service: Service) -> None:
            results[name] = _send(service, rendered)
            if results[name].delivered:
                delivered_to.add(name)

        # A receiver that drips a byte a second holds its sender for ever; the process must end without it.
        threads = [
            threading.Thread(target=work, args=each, name=f"send to {self._address.target}", daemon=True)
            for each in services.items()
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
        return {name: results.get(name, late) for name in services}, bool(stuck)

    def _take(self) -> Sequence[Service]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._open(self._address, self._storage)

    def _put_back(self, services: Sequence[Service]) -> None:
        with self._lock:
            if services and all(service.is_reusable for service in services):
                self._idle.append(services)


def _send(service: Service, rendered: Rendered) -> Delivery:
    try:
        return service.send(rendered)
    except Exception as error:  # noqa: BLE001  # of any service; its text may have the URL
        return Delivery(delivered=False, reason=f"{type(error).__name__} in Apprise")
