"""What the watch needs of its neighbours: the seams at which tests, and other parts, take their places."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from exporter.model.jobs import Job, TraceJobs
from exporter.model.lifecycle import Occurrence, Step
from exporter.model.messages import Message, Outage, WatchChange, WatchMessage
from exporter.model.views import Snapshot
from exporter.model.vm import VirtualMachine


class Imds(Protocol):
    """What the watch needs of `exporter.imds.ImdsClient`."""

    def fetch(self) -> bytes:
        """Return the body of the document of scheduled events; raise ImdsError."""
        ...

    def instance(self) -> VirtualMachine:
        """Return what IMDS knows of this VM; raise ImdsError."""
        ...


class Memory(Protocol):
    """What the watch needs of `exporter.state.Store`."""

    def record(self, step: Step, messages: Sequence[Message], jobs: Sequence[Job], traced: TraceJobs) -> None:
        """Write one step's effects, with all that is to be done about them, in one transaction."""
        ...

    def note_last_success(self, at: datetime) -> None:
        """Write down when the last valid document came."""
        ...

    def record_outage(self, outage: Outage | None, messages: Sequence[WatchMessage]) -> None:
        """Write down that the watch is blind, or no more, and whom to tell, in one transaction."""
        ...

    def retry(self) -> None:
        """Go back to the disk, where it had failed and is due to be tried again."""
        ...


class Notifier(Protocol):
    """What the watch needs of `exporter.notifications.notifier.Notifier`."""

    def compose(
        self,
        occurrences: Sequence[Occurrence],
        instance: str | None,
        now: datetime,
        vm: VirtualMachine | None,
    ) -> Sequence[Message]:
        """Make the messages about what just happened."""
        ...

    @property
    def blind_after(self) -> float:
        """After how many seconds without a valid document to send messages; infinite for never."""
        ...

    def compose_watch(
        self, change: WatchChange, outage: Outage, at: datetime, snapshot: Snapshot
    ) -> Sequence[WatchMessage]:
        """Make the messages about an outage of the watch, or its end."""
        ...

    def wake(self) -> None:
        """Deliver what was recorded."""
        ...


class Traces(Protocol):
    """What the watch needs of `exporter.tracing.Tracer`."""

    def compose(self, occurrences: Sequence[Occurrence], instance: str | None) -> TraceJobs:
        """Return what just happened, for traces."""
        ...

    def wake(self) -> None:
        """Export what was written down."""
        ...


class Hooks(Protocol):
    """What the watch needs of `exporter.hooks.runner.HookRunner`."""

    def compose(
        self, occurrences: Sequence[Occurrence], instance: str | None, now: datetime
    ) -> Sequence[Job]:
        """Return the hooks to run for what just happened."""
        ...

    def wake(self) -> None:
        """Run what was written down."""
        ...
