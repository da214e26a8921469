"""A watch with everything around it: an IMDS that follows a script, a memory that keeps what it is given."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry

from exporter.config import Config, Hook, Route
from exporter.errors import ImdsError, PollOutcome
from exporter.health import DegradedReason, Health
from exporter.hooks.jobs import compose as compose_jobs
from exporter.hooks.runner import HookRunner
from exporter.imds import ImdsClient
from exporter.metrics import Metrics, SnapshotCollector
from exporter.model.jobs import Finding, Job, Pause, Span, TraceJobs
from exporter.model.lifecycle import Known, Occurrence, Step
from exporter.model.messages import Message, Outage, WatchMessage
from exporter.model.vm import VirtualMachine
from exporter.notifications.notifier import Notifier
from exporter.notifications.planning import Plan
from exporter.state import Store
from exporter.watch import Watch
from tests.builders import body
from tests.clocks import HandClock
from tests.tracing.doubles import Traced

TIMEOUT = ImdsError(PollOutcome.TIMEOUT, "IMDS did not answer within 10 s")
IDLE = body(incarnation=0)
NOTHING_TRACED = TraceJobs()


@dataclass
class ScriptedImds(ImdsClient):
    """Returns scripted answers; an exception is raised."""

    clock: HandClock
    answer: bytes | ImdsError = IDLE
    facts: VirtualMachine | ImdsError = field(default_factory=lambda: VirtualMachine(name="WestNO_0"))
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

    def instance(self) -> VirtualMachine:
        """Return the facts about the VM."""
        self.asked.append("instance")
        self.clock.pass_seconds(self.facts_take)
        if isinstance(self.facts, ImdsError):
            raise self.facts
        return self.facts


class Notebook(Store):
    """A memory that keeps the steps it was given, and counts how often it was to try its disk again."""

    def __init__(self, outage: Outage | None) -> None:
        self.steps: list[Step] = []
        self.messages: list[Message] = []
        self.jobs: list[Job] = []
        self.traced: list[Span] = []
        self.successes: list[datetime] = []
        self.retries = 0
        self.lasting = outage
        self.watch_messages: list[WatchMessage] = []

    def record(
        self,
        step: Step,
        messages: Sequence[Message] = (),
        jobs: Sequence[Job] = (),
        traced: TraceJobs = NOTHING_TRACED,
    ) -> None:
        """Keep a step."""
        self.traced.extend(traced.spans)
        self.steps.append(step)
        self.messages.extend(messages)
        self.jobs.extend(jobs)

    def note_last_success(self, at: datetime) -> None:
        """Keep it."""
        self.successes.append(at)

    @property
    def outage(self) -> Outage | None:
        """The outage that lasts."""
        return self.lasting

    def record_outage(self, outage: Outage | None, messages: Sequence[WatchMessage]) -> None:
        """Keep it."""
        self.lasting = outage
        self.watch_messages.extend(messages)

    def retry(self) -> None:
        """Count."""
        self.retries += 1


class ComposingNotifier(Notifier):
    """Makes a message of each transition, for one target, and counts how often it was woken."""

    def __init__(self) -> None:
        self.plan = Plan([Route(("someone",))], watch_targets=("someone",))
        self.woken = 0

    def wake(self) -> None:
        """Count."""
        self.woken += 1


class Hooks(HookRunner):
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
    """Counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

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


class WatchFixture:
    """A watch with everything around it."""

    def __init__(self, known: Known | None = None, outage: Outage | None = None, **settings: Any) -> None:
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.registry = CollectorRegistry()
        self.memory = Notebook(outage)
        self.imds = ScriptedImds(self.clock)
        metrics = Metrics(self.registry)
        self.notifier = ComposingNotifier()
        self.traced = Traced()
        self.hooks = Hooks()
        self.approvals = Approvals()
        self.pauses = Pauses()
        self.watch = Watch(
            store=self.memory,
            notifier=self.notifier,
            metrics=metrics,
            tracer=self.traced,
            hooks=self.hooks,
            look_for_approvals=self.approvals.wake,
            watch_for_pauses=self.pauses.watch,
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
        """Advance the clock and poll once; without an answer, the previous one is repeated."""
        self.clock.pass_seconds(after)
        if answer is not None:
            self.imds.answer = answer
        return self.watch.poll(self.imds)

    def find(self, *findings: Finding | Pause) -> None:
        """Report a finding of a worker, and record it."""
        for finding in findings:
            self.watch.inbox.put(finding)
        self.watch.record_findings()

    def value(self, name: str, **labels: str) -> float | None:
        """Return a sample's value, None where there is none."""
        return self.registry.get_sample_value(f"azure_scheduled_events_{name}", labels)

    def counted(self, transition: str, event_type: str = "Freeze") -> float | None:
        """Return how many transitions were counted."""
        return self.value("transitions_total", event_type=event_type, transition=transition)

    def problems(self) -> list[tuple[DegradedReason, str]]:
        """Return what is wrong now."""
        return [(problem.reason, problem.message) for problem in self.health.problems()]
