"""Sending through Apprise: one try, one typed result, within a bounded time, whatever the receiver does."""

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from exporter.model.messages import Delivery, Rendered, Severity
from exporter.notifications.addresses import Address

SEND_SECONDS = 15.0
# Sends that hang beyond that time are left behind; so many of them, and no more is begun.
MOST_STUCK = 3

_NOTIFY_TYPES = {
    Severity.INFO: "info",
    Severity.SUCCESS: "success",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "failure",
}


class Service(Protocol):
    """What is needed of `exporter.notifications.services.Service`."""

    name: str
    body_limit: int

    def send(
        self, *, title: str, body: str, body_format: str, notify_type: str, traceparent: str = ""
    ) -> str:
        """Try once; return "" or why it failed."""
        ...


def _open(address: Address) -> Sequence[Service]:
    from exporter.notifications import services

    return services.open_services(address)


@dataclass
class _Attempt:
    """One send on a thread of its own; ``outcome`` has "" or why it failed, once that is known."""

    service: Service
    about: Hashable
    outcome: list[str] = field(default_factory=list)

    def run(self, rendered: Rendered) -> None:
        try:
            problem = self.service.send(
                title=rendered.title,
                body=rendered.body,
                body_format=rendered.format,
                notify_type=_NOTIFY_TYPES[rendered.severity],
                traceparent=rendered.traceparent,
            )
        except Exception as error:  # noqa: BLE001  # of any service; its text may have the URL
            problem = f"{type(error).__name__} in Apprise"
        self.outcome.append(problem)


class AppriseSender:
    """A target's way out. Apprise is imported by the first thing that is asked of it.

    Of several services behind one tag those that have had a message do not get it again when it is tried
    again.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout: float = SEND_SECONDS,
        open_services: Callable[[Address], Sequence[Service]] = _open,
    ) -> None:
        self.address = address.label
        self._address = address
        self._timeout = timeout
        self._open = open_services
        self._services: Sequence[Service] | None = None
        self._owed: list[Service] = []
        self._about: Hashable = None
        self._late: list[_Attempt] = []

    @property
    def body_limit(self) -> int | None:
        """Return the most characters that every service behind it takes."""
        return min((service.body_limit for service in self._opened()), default=None)

    def send(self, rendered: Rendered, about: Hashable = None) -> Delivery:
        """Try once; the longest that it takes is ``timeout`` for each service behind the target.

        ``about`` says what is sent, in whatever words: with the same as in the try before, what that try
        brought home is not sent again; with another all services are tried. Whoever gives none goes on with
        the same message until it is delivered.
        """
        services = self._opened()
        if not services:
            return Delivery(delivered=False, reason="Apprise does not take its URL any more")
        owed = self._owed if self._owed and about == self._about else list(services)
        self._about = about
        came_late = self._came_late()
        self._late = [late for late in self._late if not late.outcome]
        owed = [service for service in owed if service not in came_late]
        reasons = {service: self._send_one(service, rendered) for service in owed}
        self._owed = [service for service, reason in reasons.items() if reason]
        if not self._owed:
            return Delivery(delivered=True)
        failed = self._owed[0]
        several = f"{failed.name}: " if len(services) > 1 else ""
        return Delivery(delivered=False, reason=f"{several}{reasons[failed]}")

    def _opened(self) -> Sequence[Service]:
        if self._services is None:
            self._services = self._open(self._address)
        return self._services

    def _send_one(self, service: Service, rendered: Rendered) -> str:
        if len(self._late) >= MOST_STUCK:
            return f"the last {MOST_STUCK} tries hang still"
        attempt = _Attempt(service, self._about)
        # A receiver that drips a byte a second holds its sender for ever; the process must end without it.
        thread = threading.Thread(
            target=attempt.run, args=(rendered,), name=f"send to {self._address.target}", daemon=True
        )
        thread.start()
        thread.join(self._timeout)
        if not attempt.outcome:
            self._late.append(attempt)
            return f"it did not answer within {self._timeout:g} s"
        return attempt.outcome[0]

    def _came_late(self) -> list[Service]:
        """Return the services to which tries that were left behind have brought this very message since."""
        if self._about is None:
            return []
        return [late.service for late in self._late if late.about == self._about and late.outcome == [""]]
