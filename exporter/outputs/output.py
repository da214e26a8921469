"""What the core knows of a way out.

An output gets jobs, which are stored in the transaction of the step that causes them, so that each is done
once and in order, also after a crash; or it reads the facts after its cursor (`state.facts`); or it looks at
what is true now whenever it is woken. The one way back is the inbox of `Core`. No output imports another one.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, NamedTuple

from exporter.clock import Clock
from exporter.config import Config
from exporter.config.addresses import Address
from exporter.config.checks import Fault
from exporter.config.loading import Loaded
from exporter.config.yamlfile import YamlFile
from exporter.errors import ImdsError, Mistakes
from exporter.health import Health
from exporter.imds.client import ImdsClient
from exporter.metrics import Metrics
from exporter.model.facts import OutageFact
from exporter.model.jobs import HookOutcome, Job
from exporter.model.lifecycle import Life, Step
from exporter.model.reports import WorkerReport, hook_failure
from exporter.model.views import NO_APPROVAL, ApprovalView, NodeView, Snapshot, TargetView, Views, WorkView
from exporter.state.jobs import Jobs
from exporter.state.store import Store
from exporter.work import Inbox


class Core(NamedTuple):
    """What the watch and every output are given."""

    store: Store
    metrics: Metrics
    health: Health
    clock: Clock
    inbox: Inbox
    views: Views  # what is true now, in its snapshot, and what the outputs show of themselves


class Level(StrEnum):
    """The result of a check by `doctor`; a ``NOTE`` is none, but a fact or advice."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"
    NOTE = "note"


class Diagnosis(NamedTuple):
    """A line of `doctor`, and the ``commands`` that it is about."""

    level: Level
    subject: str
    message: str
    commands: tuple[str, ...] = ()


class Section:
    """What an output says of its section of a configuration, whether or not an exporter runs."""

    def faults(self, config: Config, file: YamlFile) -> Iterable[Fault]:
        """Return the faults across the keys; what a check reads in other sections must be sound."""
        return ()

    def advice(self, config: Config) -> Iterable[Fault]:
        """Return the parts that never act, or not when their writer meant them to."""
        return ()

    def addresses(
        self, loaded: Loaded, environ: Mapping[str, str], mistakes: Mistakes
    ) -> tuple[Address, ...]:
        """Return the addresses that are sent to; add errors to ``mistakes``, without any secret."""
        return ()

    def check(self, loaded: Loaded, environ: Mapping[str, str], mistakes: Mistakes) -> Sequence[str]:
        """Add the mistakes that only a test shows, which may take 10 s; return what to print of it."""
        return ()

    def probe(self, address: Address, clock: Clock) -> Diagnosis:
        """Examine one of the addresses for `doctor`, without sending anything."""
        raise NotImplementedError

    def notes(self, config: Config, environ: Mapping[str, str], node: NodeView | None) -> Iterable[Diagnosis]:
        """Return what else `doctor` says; ``node`` is the Node that a running exporter shows."""
        return ()


class Output:
    """A way out; all but `compose` may be called by any thread.

    `compose` and `wake` are called by the poller's thread; all else happens on threads of the output.
    """

    name: ClassVar[str]  # its folder, and the name of its jobs
    section: ClassVar[Section] = Section()
    stop_seconds: ClassVar[float] = 0.5  # the seconds that its stop may take

    def check(self, loaded: Loaded, environ: Mapping[str, str], mistakes: Mistakes) -> None:
        """Do the check of the section with what the output has running."""

    def configure(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        """Apply a configuration that has been checked."""

    def compose(self, step: Step, seen: Snapshot) -> Sequence[Job]:
        """Return the jobs that a step causes; ``seen`` is what was true before it. It changes nothing."""
        return ()

    def compose_outage(self, fact: OutageFact, seen: Snapshot) -> Sequence[Job]:
        """Return the jobs that an outage of the watch, or its end, causes."""
        return ()

    def wake(self) -> None:
        """Act on what has been recorded and published."""

    def begin_stop(self) -> None:
        """End what takes long; `stop` follows."""

    def stop(self, timeout: float) -> bool:
        """End within ``timeout`` seconds; return whether nothing writes to the state any more."""
        return True

    def targets(self) -> tuple[TargetView, ...]:
        """Return the receivers of messages or alerts."""
        return ()

    def pending(self) -> Mapping[str, int]:
        """Return the number of messages or alerts that wait, by target."""
        return {}

    def approval(self, life: Life) -> ApprovalView:
        """Return the state of an event's approval."""
        return NO_APPROVAL

    def work(self, life_key: str) -> Sequence[WorkView]:
        """Return the messages about a life, or the runs of hooks, oldest first."""
        return ()

    @property
    def signals(self) -> tuple[str, ...]:
        """Return which signals of OpenTelemetry's are exported."""
        return ()

    @property
    def sampled_share(self) -> float:
        """The share of events whose spans are exported."""
        return 0.0

    @property
    def node(self) -> NodeView | None:
        """The Node of this VM."""
        return None


def failures(jobs: Jobs) -> list[WorkerReport]:
    """Return the reports of runs that failed, including those that a crash kept from becoming transitions."""
    return [
        hook_failure(key, HookOutcome(record.outcome), record.done)
        for key, record in jobs.snapshot()
        if record.done is not None and record.outcome in (HookOutcome.FAILED, HookOutcome.TIMED_OUT)
    ]


class Decider(Output):
    """An output that acts on the document that has just been fetched; these methods are the poller's."""

    def use(self, settings: Config, imds: ImdsClient) -> None:
        """Decide by these settings, and act by this client, from now on."""

    def outdate(self) -> None:
        """Do nothing before the next `look`, because what is known is about to change."""

    def polled(self, error: ImdsError | None, seconds: float, *, changed: bool) -> None:
        """Receive the result of a poll: its error, its duration, and whether the document has changed."""

    def look(self, seen: Snapshot, *, fresh: bool = False) -> bool:
        """Decide about all events, and act if the document is ``fresh``; return whether one is needed."""
        return False

    @property
    def is_pending(self) -> bool:
        """Whether there is something to decide about, so that `look` is to be called every second."""
        return False
