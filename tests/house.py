"""A watch with everything around it: an IMDS that follows a script, a memory that keeps what it is given."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry

from exporter.config import Config, Hook, Route
from exporter.errors import ImdsError, PollOutcome
from exporter.health import Health, Trouble
from exporter.hooks.jobs import compose as compose_jobs
from exporter.imds import InstanceFacts
from exporter.metrics import Metrics, SnapshotCollector
from exporter.model.jobs import Job
from exporter.model.lifecycle import Known, Occurrence, Step
from exporter.model.messages import Message
from exporter.notifications.routing import compose
from exporter.state.approvals import Approval
from exporter.watch import Watch
from tests.builders import body
from tests.clocks import HandClock
from tests.tracing.doubles import Traced

TIMEOUT = ImdsError(PollOutcome.TIMEOUT, "IMDS did not answer within 10 s")
IDLE = body(incarnation=0)


@dataclass
class ScriptedImds:
    """Answers what it is told to; an exception is raised."""

    clock: HandClock
    answer: bytes | ImdsError = IDLE
    facts: InstanceFacts | ImdsError = field(default_factory=lambda: InstanceFacts(name="WestNO_0"))
    takes: float = 0.0
    facts_take: float = 0.0
    asked: list[str] = field(default_factory=list)

    def fetch(self) -> bytes:
        """Return the document."""
        self.asked.append("document")
        self.clock.pass_seconds(self.takes)
        if isinstance(self.answer, ImdsError):
            raise self.answer
        return self.answer

    def instance(self) -> InstanceFacts:
        """Return the facts about the VM."""
        self.asked.append("instance")
        self.clock.pass_seconds(self.facts_take)
        if isinstance(self.facts, ImdsError):
            raise self.facts
        return self.facts


class Notebook:
    """A memory that keeps the steps it was given, and counts how often it was to try its disk again."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.messages: list[Message] = []
        self.jobs: list[Job] = []
        self.successes: list[datetime] = []
        self.retries = 0

    def record(self, step: Step, messages: Sequence[Message], jobs: Sequence[Job]) -> None:
        """Keep a step."""
        self.steps.append(step)
        self.messages.extend(messages)
        self.jobs.extend(jobs)

    def note_last_success(self, at: datetime) -> None:
        """Keep it."""
        self.successes.append(at)

    def retry(self) -> None:
        """Count."""
        self.retries += 1


class Teller:
    """Makes a message of each transition, for one target, and counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def compose(
        self, occurrences: Sequence[Occurrence], instance: str | None, now: datetime
    ) -> tuple[Message, ...]:
        """Make them."""
        return compose([Route(("someone",))], occurrences, instance=instance, now=now)

    def wake(self) -> None:
        """Count."""
        self.woken += 1


class Hooks:
    """Makes a job of each transition of this VM's events, and counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def compose(
        self, occurrences: Sequence[Occurrence], instance: str | None, now: datetime
    ) -> tuple[Job, ...]:
        """Make them."""
        return compose_jobs([Hook("a", ("true",))], occurrences, instance=instance, now=now)

    def wake(self) -> None:
        """Count."""
        self.woken += 1


class Approvals:
    """Has what is put into ``sent``, and counts how often it was woken."""

    def __init__(self) -> None:
        self.sent: list[Approval] = []
        self.woken = 0

    def take_sent(self) -> list[Approval]:
        """Return it away."""
        sent, self.sent = self.sent, []
        return sent

    def wake(self) -> None:
        """Count."""
        self.woken += 1


class Pauses:
    """Keeps whether pauses are to be watched for."""

    def __init__(self) -> None:
        self.active = False

    def watch(self, active: bool) -> None:
        """Keep it."""
        self.active = active


class House:
    """A watch with everything around it."""

    def __init__(self, known: Known | None = None, **settings: Any) -> None:
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.registry = CollectorRegistry()
        self.memory = Notebook()
        self.imds = ScriptedImds(self.clock)
        metrics = Metrics(self.registry)
        self.teller = Teller()
        self.traced = Traced()
        self.hooks = Hooks()
        self.approvals = Approvals()
        self.pauses = Pauses()
        self.watch = Watch(
            memory=self.memory,
            teller=self.teller,
            metrics=metrics,
            tracer=self.traced,
            hooks=self.hooks,
            approvals=self.approvals,
            pauses=self.pauses,
            health=self.health,
            clock=self.clock,
            known=known or Known(),
        )
        self.registry.register(SnapshotCollector(lambda: self.watch.snapshot, self.health, self.clock))
        self.configure(**settings)

    def configure(self, **settings: Any) -> None:
        """Take over a configuration with these sections."""
        self.watch.configure(Config(**settings), "http://imds.test")

    def poll(self, answer: bytes | ImdsError | None = None, *, after: float = 1.0) -> PollOutcome:
        """Let time pass and poll once; with no answer given, the one before is given again."""
        self.clock.pass_seconds(after)
        if answer is not None:
            self.imds.answer = answer
        return self.watch.poll(self.imds)

    def value(self, name: str, **labels: str) -> float | None:
        """Return a sample's value, None where there is none."""
        return self.registry.get_sample_value(f"azure_scheduled_events_{name}", labels)

    def counted(self, transition: str, event_type: str = "Freeze") -> float | None:
        """Return how many transitions were counted."""
        return self.value("transitions_total", event_type=event_type, transition=transition)

    def troubles(self) -> list[tuple[Trouble, str]]:
        """Return what is wrong now."""
        return [(problem.trouble, problem.message) for problem in self.health.problems()]
