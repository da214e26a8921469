"""A store with an outbox, and a worker at it, without threads or a real clock."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from exporter.config.addresses import Address
from exporter.health import Health
from exporter.metrics import Metrics
from exporter.model.lifecycle import Known, Step
from exporter.model.messages import Backlog, Delivery, Failure, Message, Outcome, Rendered, Severity
from exporter.notifications.planning import Plan
from exporter.notifications.protocol import Send
from exporter.notifications.worker import Services, Worker
from exporter.state import Store
from tests.clocks import HandClock
from tests.notifications.messages import message
from tests.notifications.senders import MemorySender, MemoryTarget
from tests.tracing.doubles import Traced

OK = Delivery(delivered=True)
DOWN = Delivery(delivered=False, reason="it refuses connections")
REFUSED = Delivery(delivered=False, reason="it answered 400 (Bad Request)", failure=Failure.REFUSED)
UNANSWERED = Delivery(delivered=False, reason="it did not answer in time", failure=Failure.UNANSWERED)


class PlainSender(MemorySender):
    """Renders a message as its event's key and transition, a digest as all of them with commas."""

    def render(self, request: Send, limit: int | None) -> tuple[Rendered, int]:
        """Write as many as the limit, taken as their number, allows; the title says what is known."""
        taken = request.messages[:limit] if request.is_digest else request.messages[-1:]
        words = ["digest"] * request.is_digest + ["failed"] * request.failed
        body = ",".join(f"{one.key}/{one.sequence}" for one in taken)
        rendered = Rendered(" ".join(words), body, "text", Severity.INFO, request.traceparent)
        return replace(rendered, resolves=taken[-1].resolves, incident=taken[-1].incident), len(taken)


def bodies(target: MemoryTarget) -> list[str]:
    """Return the bodies that arrived."""
    return [rendered.body for rendered in target.sent]


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


def plan_to(*targets: str, **fields: Any) -> Plan:
    """Return a plan for targets that are checked."""
    addresses = {name: Address(name, url="json://receiver.test/") for name in targets}
    return Plan(addresses=addresses, backlogs=dict.fromkeys(targets, Backlog.DIGEST), **fields)


class Workbench:
    """One target, "oncall", with all that is around its worker."""

    def __init__(self, directory: Path, *, retry_for: float = 86400) -> None:
        self.directory = directory
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.tally = Tally()
        self.traced = Traced()
        self.sender = PlainSender()
        self.oncall = self.sender.target("oncall")
        self.retry_for = retry_for
        self.open()

    def open(self) -> None:
        """Start as a new process does."""
        self.store = Store.open(self.directory, health=self.health, clock=self.clock)
        self.store.load()
        self.services = Services(
            self.store.outbox, self.sender, self.tally, self.traced, self.health, self.clock
        )
        self.worker = Worker("oncall", self.own_plan(), self.services, chance=lambda: 0.0)

    def own_plan(self) -> Plan:
        """Return how the worker is to deliver."""
        return plan_to("oncall", retry_for=self.retry_for)

    def restart(self) -> None:
        """End this process, and start another at the same state."""
        self.store.close()
        self.open()

    def post(
        self, *keys: str, target: str = "oncall", sequence: int = 1, like: Message | None = None
    ) -> None:
        """Write messages down, each about another event, as the poller does."""
        now = self.clock.now()
        messages = [
            replace(like or message(), target=target, key=key, sequence=sequence, at=now) for key in keys
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
