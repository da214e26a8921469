"""What the tests of `exporter.web` share: a clock, events, a site, and two ways to ask it."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from exporter.health import Health
from exporter.model.events import SCHEDULED, STARTED, ScheduledEvent
from exporter.model.lifecycle import TrackedEvent, Transition, TransitionRecord
from exporter.model.views import Snapshot
from exporter.serving import AsgiServer, listen
from exporter.web.app import Site, create_app
from exporter.web.http import AsgiApp, Message

NOW = datetime(2026, 3, 4, 22, 0, tzinfo=UTC)
FREEZE_ID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"


class StillClock:
    """A clock that moves only when told."""

    def __init__(self, now: datetime = NOW) -> None:
        self._start = now
        self.passed = 0.0

    def now(self) -> datetime:
        """Return the wall-clock time, aware and in UTC."""
        return self._start + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        """Return seconds since the clock was made, and a bit."""
        return 100.0 + self.passed


def tracked(event: ScheduledEvent, *, ago: float = 60, at: datetime = NOW) -> TrackedEvent:
    """Make an event that was first seen ``ago`` seconds before ``at``, and has been in its status since."""
    seen = at - timedelta(seconds=ago)
    started = seen if event.event_status == STARTED else None
    transition = Transition.STARTED if started else Transition.SCHEDULED
    return TrackedEvent(
        event,
        (event.event_id,),
        seen,
        affects=event.target("WestNO_0"),
        started=started,
        transitions=(TransitionRecord(transition, seen),),
    )


def past(event: ScheduledEvent, outcome: Transition, *, ago: float, at: datetime = NOW) -> TrackedEvent:
    """Make an event that ended ``ago`` seconds before ``at``, 20 minutes after it was seen."""
    ended = at - timedelta(seconds=ago)
    seen = ended - timedelta(minutes=20)
    started = ended - timedelta(minutes=9) if outcome is Transition.COMPLETED else None
    return TrackedEvent(
        event,
        (event.event_id,),
        seen,
        affects=event.target("WestNO_0"),
        started=started,
        ended=ended,
        outcome=outcome,
        impact_seconds=None if started is None else (ended - started).total_seconds(),
    )


def freeze(**fields: Any) -> ScheduledEvent:
    """Make the documentation's Freeze, with other values where given; it starts 12 minutes after NOW."""
    values: dict[str, Any] = {
        "event_id": FREEZE_ID,
        "event_type": "Freeze",
        "event_status": SCHEDULED,
        "resources": ("WestNO_0", "WestNO_1"),
        "not_before": NOW + timedelta(minutes=12),
        "duration_seconds": 5,
        "description": "Virtual machine is being paused because of a Live Migration operation.",
        "event_source": "Platform",
        "resource_type": "VirtualMachine",
    }
    return ScheduledEvent(**(values | fields))


def snapshot(**fields: Any) -> Snapshot:
    """Make the picture of a watch that works, with other values where given."""
    values: dict[str, Any] = {
        "endpoint": "http://169.254.169.254",
        "instance": "WestNO_0",
        "up": True,
        "ready": True,
        "last_success": NOW - timedelta(seconds=1),
        "incarnation": 7,
    }
    return Snapshot(**(values | fields))


class Reloads:
    """Counts requests for a reload; all have the same result."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count = 0
        self._error = error

    def __call__(self) -> "Future[None]":
        """Return a result that is there already."""
        self.count += 1
        result: Future[None] = Future()
        if self._error is None:
            result.set_result(None)
        else:
            result.set_exception(self._error)
        return result


def site(picture: Snapshot, **fields: Any) -> Site:
    """Make a site around one picture."""
    clock = fields.pop("clock", None) or StillClock()
    values: dict[str, Any] = {
        "snapshot": lambda: picture,
        "health": fields.pop("health", None) or Health(clock),
        "clock": clock,
        "registry": CollectorRegistry(),
        "reload": Reloads(),
    }
    return Site(**(values | fields))


@dataclass
class Answer:
    """What an application answered; header names are in lower case."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


async def call(
    app: AsgiApp, path: str, method: str = "GET", query: str = "", *, leave: bool = False, **headers: str
) -> Answer:
    """Ask an application without a server; a header's name has underscores for its hyphens.

    With ``leave`` the client disconnects after the request.
    """
    answer = Answer()
    unread: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if not (unread or leave):
            await asyncio.Event().wait()
        return unread.pop() if unread else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message["body"]

    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": encoded,
    }
    await app(scope, receive, send)
    return answer


def ask(where: Site | AsgiApp, path: str, method: str = "GET", query: str = "", **headers: str) -> Answer:
    """Ask a site once."""
    app = create_app(where) if isinstance(where, Site) else where
    return asyncio.run(call(app, path, method, query, leave=False, **headers))


@contextmanager
def served(app: AsgiApp, tls: Callable[[], ssl.SSLContext] | None = None) -> Iterator[int]:
    """Serve an application on a loopback port of its own, which is given, until the block ends."""
    server = AsgiServer(app, listen("127.0.0.1:0"), tls=tls)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()
