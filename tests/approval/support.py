"""An approver with its dependencies, and a scripted IMDS."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from exporter.approval import Approver
from exporter.config import Approval, Config, Hook, Mode, Rule
from exporter.config.match import Match
from exporter.errors import ImdsError, PollOutcome
from exporter.health import Health
from exporter.hooks.jobs import compose
from exporter.imds import ImdsClient
from exporter.metrics import ApprovalOutcome
from exporter.model.advance import advance
from exporter.model.documents import Document
from exporter.model.events import ScheduledEvent
from exporter.model.jobs import Finding, HookOutcome, Span
from exporter.model.lifecycle import Known, Occurrence, Step, TrackedEvent
from exporter.model.views import Snapshot
from exporter.state import Store
from tests.builders import FREEZE_ID, body, raw_event, scheduled
from tests.clocks import HandClock
from tests.state_support import queue

VM = "WestNO_0"
RULE = Rule("all", "approve", Match(event_types=("Freeze",)))
REFUSED = ImdsError(PollOutcome.HTTP_ERROR, "POST: status 400")


class Azure(ImdsClient):
    """Serves a document, and keeps what is asked of it; a POST takes some seconds."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.body = body(raw_event())
        self.fetch_error: Exception | None = None
        self.error: ImdsError | None = None
        self.bad: set[str] = set()
        self.before_answer: Callable[[], None] = lambda: None
        self.takes = 0.0
        self.asked: list[tuple[str, ...]] = []
        self.tries: list[float] = []

    @property
    def posts(self) -> list[str]:
        """All ids that were posted."""
        return [event_id for ids in self.asked for event_id in ids]

    def fetch(self) -> bytes:
        """Return the document, or raise."""
        self.asked.append(())
        if self.fetch_error is not None:
            raise self.fetch_error
        return self.body

    def approve(self, event_ids: Sequence[str]) -> None:
        """Take all ids, or none."""
        self.asked.append(tuple(event_ids))
        self.tries.append(self.clock.monotonic() - 1000)
        self.clock.pass_seconds(self.takes)
        self.before_answer()
        if self.error is not None:
            raise self.error
        if self.bad & set(event_ids):
            raise REFUSED


class ApproverFixture:
    """An approver of one Freeze of this VM, with everything around it."""

    def __init__(self, directory: Path, **fields: Any) -> None:
        self.directory = directory
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.azure = Azure(self.clock)
        self.counted: list[tuple[str, ApprovalOutcome]] = []
        self.traced: list[str] = []
        self.polls = 0
        self.reported: list[Finding] = []
        self.settings = Config(approval=Approval(**({"mode": Mode.ON, "rules": (RULE,)} | fields)))
        self.known = Known()
        self.open()
        self.show(scheduled())

    def open(self) -> None:
        """Start as a new process does."""
        self.store = Store.open(self.directory, health=self.health, clock=self.clock)
        loaded = self.store.load()
        self.known = loaded if loaded.current else self.known
        self.snapshot = Snapshot(
            instance=VM, ready=True, up=True, current=tuple(reversed(self.known.current.values()))
        )
        self.approver = Approver(
            approvals=self.store.approvals,
            jobs=self.store.hook_jobs,
            snapshot=lambda: self.snapshot,
            count=lambda rule, outcome: self.counted.append((rule, outcome)),
            trace=self.approved,
            clock=self.clock,
            known=self.known,
            report=self.reported.append,
            poll=self.poll,
        )
        # Not `configure`, which starts the thread.
        self.approver._config, self.approver._azure = self.settings, self.azure

    def restart(self) -> None:
        """Simulate a crash, and start another process with the same state."""
        self.store.close()
        self.open()

    def poll(self) -> None:
        """Count."""
        self.polls += 1

    def approved(
        self, tracked: TrackedEvent, rule: str, times: tuple[datetime, datetime], instance: str | None
    ) -> list[Span]:
        """Trace."""
        assert times[0] <= times[1]
        assert instance == VM
        self.traced.append(f"{tracked.key} by {rule}")
        return []

    def list(self, *event_ids: str) -> None:
        """Make IMDS list Freezes with these ids."""
        self.azure.body = body(*(raw_event(EventId=event_id) for event_id in event_ids))

    def show(self, *events: ScheduledEvent) -> Step:
        """Process a document as the poller does, and return the step."""
        step = advance(self.known, Document(1, events), self.clock.now(), instance=VM, watching=True)
        self.record(step)
        return step

    def record(self, step: Step) -> None:
        """Write a step down and publish it, as the watch does."""
        self.store.record(step)
        self.known = step.known
        self.snapshot = replace(self.snapshot, current=tuple(reversed(step.known.current.values())))
        self.approver._ages.note(self.snapshot.current)

    def look_for(self, seconds: float) -> None:
        """Look every second, as the thread does."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.approver.look()
            self.clock.pass_seconds(1)

    def queue_hooks(self, hooks: Iterable[Hook], occurrences: Sequence[Occurrence]) -> None:
        """Queue the runs of hooks for what happened."""
        queue(self.store, compose(tuple(hooks), occurrences, instance=VM, now=self.clock.now()))

    def end_hook(self, outcome: HookOutcome, event: str = FREEZE_ID.lower()) -> None:
        """End the only hook that waits for an event."""
        ((key, _),) = self.store.hook_jobs.first(event, 2)
        self.store.hook_jobs.finish(key, outcome, self.clock.now())

    def change(self, hooks: tuple[Hook, ...] = (), **fields: Any) -> None:
        """Change hooks and the approvals' settings, as a reload does."""
        self.settings = Config(approval=replace(self.settings.approval, **fields), hooks=hooks)
        self.approver._config = self.settings

    def view(self) -> tuple[str | None, str | None]:
        """Return the state of the newest event's approval, and why."""
        found = self.approver.view(self.snapshot.current[0])
        return found.state, found.reason

    @property
    def states(self) -> Sequence[str | None]:
        """The shown state of each event, oldest first."""
        return [self.approver.view(tracked).state for tracked in reversed(self.snapshot.current)]
