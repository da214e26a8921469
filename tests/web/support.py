import ssl
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from exporter.clock import Clock
from exporter.health import Health
from exporter.metrics import Metrics
from exporter.model.events import STARTED, ScheduledEvent
from exporter.model.lifecycle import Life, Transition, TransitionRecord
from exporter.model.views import (
    NO_APPROVAL,
    ApprovalView,
    ConfigurationView,
    Minute,
    NodeView,
    Snapshot,
    TargetView,
    WorkView,
)
from exporter.serving.http import Handler, Request
from exporter.web.app import WebApp
from exporter.web.webfile import WebSettings
from tests.builders import scheduled
from tests.clocks import NOW, HandClock
from tests.serving.support import serving

CONFIGURATION = ConfigurationView(None, "/state", "on", (), tracing=False)


def life(event: ScheduledEvent, *, at: datetime = NOW) -> Life:
    """Make an event that was first seen a minute before ``at``, and has been in its status since."""
    seen = at - timedelta(minutes=1)
    started = seen if event.event_status == STARTED else None
    transition = Transition.STARTED if started else Transition.SCHEDULED
    return _life(event, seen, started=started, transitions=(TransitionRecord(transition, seen),))


def past(event: ScheduledEvent, outcome: Transition, *, ago: float, at: datetime = NOW) -> Life:
    """Make an event that ended ``ago`` seconds before ``at``, 20 minutes after it was seen."""
    ended = at - timedelta(seconds=ago)
    took = timedelta(minutes=9) if outcome is Transition.COMPLETED else None
    return _life(
        event,
        ended - timedelta(minutes=20),
        started=took and ended - took,
        ended=ended,
        outcome=outcome,
        impact_seconds=took and took.total_seconds(),
    )


def _life(event: ScheduledEvent, seen: datetime, **fields: Any) -> Life:
    return Life(event, (event.event_id,), seen, affects=event.target("WestNO_0"), **fields)


def freeze(**fields: Any) -> ScheduledEvent:
    """Make the documentation's Freeze, with other values where given; it starts 12 minutes after NOW."""
    values = {
        "not_before": NOW + timedelta(minutes=12),
        "description": "Virtual machine is being paused because of a Live Migration operation.",
    }
    return scheduled(**(values | fields))


def snapshot(**fields: Any) -> Snapshot:
    values: dict[str, Any] = {
        "endpoint": "http://169.254.169.254",
        "api_version": "2020-07-01",
        "instance": "WestNO_0",
        "up": True,
        "ready": True,
        "last_success": NOW - timedelta(seconds=1),
        "incarnation": 7,
    }
    return Snapshot(**(values | fields))


@dataclass
class Scene:
    """What an exporter shows, as a test wants it (see `Views`)."""

    snapshot: Snapshot = field(default_factory=snapshot)
    clock: Clock = field(default_factory=HandClock)
    health: Health = field(default_factory=lambda: Health(HandClock()))
    configuration: ConfigurationView = CONFIGURATION
    polls: Sequence[Minute] = ()
    node_name: str = ""
    node: NodeView | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)
    state: ApprovalView = NO_APPROVAL
    done: Sequence[WorkView] = ()
    reason: str = ""

    def targets(self) -> tuple[TargetView, ...]:
        return ()

    def pending(self) -> Mapping[str, int]:
        return self.waiting

    def approval(self, _: Life) -> ApprovalView:
        return self.state

    def work(self, lives: Collection[str]) -> Mapping[str, Sequence[WorkView]]:
        return dict.fromkeys(lives, self.done)

    def out_of_service(self) -> str:
        return self.reason


def application(
    scene: Scene | None = None, settings: Callable[[], WebSettings] = WebSettings, **fields: Any
) -> WebApp:
    """Make the application that shows a scene; ``fields`` are further arguments of `WebApp`."""
    metrics = fields.pop("metrics", None) or Metrics(CollectorRegistry())
    return WebApp(scene or Scene(), metrics, settings, **fields)


@dataclass(frozen=True)
class Answer:
    """An application's response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    authenticated: bool

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(where: Scene | Handler, path: str, method: str = "GET", query: str = "", **headers: str) -> Answer:
    """Ask an application without a server; a header's name has underscores for its hyphens."""
    encoded = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    response = _app(where)(Request(method, path, query, encoded, b"", "192.0.2.1"))
    return Answer(response.status, response.all_headers(), response.body, response.authenticated)


@contextmanager
def served(where: Scene | Handler, tls: Callable[[], ssl.SSLContext] | None = None) -> Iterator[int]:
    """Serve an application on its own loopback port, which is yielded, until the block ends."""
    with serving(_app(where), tls=tls) as server:
        yield server.port


def _app(where: Scene | Handler) -> Handler:
    return application(where) if isinstance(where, Scene) else where
