"""A store with an outbox, and a worker at it, without threads or a real clock."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from exporter.health import Health
from exporter.metrics import Metrics
from exporter.model.lifecycle import Known, Step
from exporter.model.messages import AnyMessage, Backlog, Delivery, Failure, Outcome, Rendered, Severity
from exporter.notifications.planning import Plan
from exporter.notifications.worker import Worker
from exporter.state import Store
from tests.clocks import HandClock
from tests.notifications.messages import message
from tests.tracing.doubles import Traced

OK = Delivery(delivered=True)
DOWN = Delivery(delivered=False, reason="it refuses connections")
REFUSED = Delivery(delivered=False, reason="it answered 400 (Bad Request)", failure=Failure.REFUSED)
UNANSWERED = Delivery(delivered=False, reason="it did not answer in time", failure=Failure.UNANSWERED)


class PlainWriter:
    """Renders a message as its event's key and transition, a digest as all of them with commas."""

    def render(
        self, one: AnyMessage, now: datetime, *, limit: int | None = None, late: bool = False
    ) -> Rendered:
        """Write one message."""
        del now, limit
        return Rendered("late" if late else "", f"{one.key}/{one.sequence}", "text", Severity.INFO)

    def digest(
        self, several: Sequence[AnyMessage], now: datetime, *, limit: int | None = None
    ) -> tuple[Rendered, int]:
        """Write as many as the limit, taken as their number, allows."""
        del now
        taken = several[:limit]
        body = ",".join(f"{one.key}/{one.sequence}" for one in taken)
        return Rendered("digest", body, "text", Severity.INFO), len(taken)


class ScriptedSender:
    """Records its messages, and returns scripted results."""

    address = "json://receiver.test"

    def __init__(self, body_limit: int | None = None) -> None:
        self.body_limit = body_limit
        self.backlog = Backlog.DIGEST
        self.answer: Callable[[Rendered], Delivery] = lambda _: OK
        self.sent: list[Rendered] = []
        self.tried: list[str] = []
        self.delivered_to: set[str] = set()

    def send(self, rendered: Rendered, delivered_to: set[str] | None = None) -> Delivery:
        """Answer; what is delivered is kept."""
        self.tried.append(rendered.body)
        self.delivered_to = set() if delivered_to is None else delivered_to
        delivery = self.answer(rendered)
        if delivery.delivered:
            self.sent.append(rendered)
        return delivery

    @property
    def bodies(self) -> list[str]:
        """Return the bodies that arrived."""
        return [rendered.body for rendered in self.sent]


class Tally(Metrics):
    """Keeps what is counted."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.failures = 0
        self.lost: dict[Outcome, int] = {Outcome.EXPIRED: 0, Outcome.REFUSED: 0}

    def delivered(self, target: str, delays: Sequence[float]) -> None:
        """Keep the delays."""
        del target
        self.delays.extend(delays)

    def failed(self, target: str) -> None:
        """Count a try."""
        del target
        self.failures += 1

    def given_up(self, target: str, outcome: Outcome, count: int) -> None:
        """Count messages."""
        del target
        self.lost[outcome] += count


class Workbench:
    """One target, "oncall", with all that is around its worker."""

    def __init__(self, directory: Path, *, retry_for: float = 86400) -> None:
        self.directory = directory
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.tally = Tally()
        self.traced = Traced()
        self.sender = ScriptedSender()
        self.retry_for = retry_for
        self.open()

    def open(self) -> None:
        """Start as a new process does."""
        self.store = Store.open(self.directory, health=self.health, clock=self.clock)
        self.store.load()
        self.worker = Worker(
            "oncall",
            self.own_plan(),
            outbox=self.store.outbox,
            counts=self.tally,
            tracer=self.traced,
            health=self.health,
            clock=self.clock,
            chance=lambda: 0.0,
            start=lambda _, work: work(),
        )

    def own_plan(self) -> Plan:
        """Return how the worker is to deliver."""
        return Plan((), {"oncall": lambda: self.sender}, PlainWriter, self.retry_for)

    def restart(self) -> None:
        """End this process, and start another at the same state."""
        self.store.close()
        self.open()

    def post(self, *keys: str, target: str = "oncall", sequence: int = 1) -> None:
        """Write messages down, each about another event, as the poller does."""
        now = self.clock.now()
        messages = [
            msgspec.structs.replace(message(), target=target, key=key, sequence=sequence, at=now)
            for key in keys
        ]
        step = Step(Known(1, now), (), (), (), (), new_incarnation=True)
        self.store.record(step, messages)

    def work(self, limit: int = 10_000) -> None:
        """Run the worker until nothing is due."""
        for _ in range(limit):
            delay = self.worker.step()
            if delay is None or delay > 0:
                return
        raise AssertionError("the worker does not come to rest")
