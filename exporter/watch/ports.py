"""What the watch needs of its neighbours: the seams at which tests, and other parts, take their places."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from exporter.imds import InstanceFacts
from exporter.model.jobs import Job
from exporter.model.lifecycle import Occurrence, Step
from exporter.model.messages import Message
from exporter.state.approvals import Approval


class Imds(Protocol):
    """What the watch needs of `exporter.imds.ImdsClient`."""

    def fetch(self) -> bytes:
        """Return the body of the document of scheduled events; raise ImdsError."""
        ...

    def instance(self) -> InstanceFacts:
        """Return what IMDS knows of this VM; raise ImdsError."""
        ...


class Memory(Protocol):
    """What the watch needs of `exporter.state.Store`."""

    def record(self, step: Step, messages: Sequence[Message], jobs: Sequence[Job]) -> None:
        """Write one step's effects, whom to tell, and which hooks to run, in one transaction."""
        ...

    def note_last_success(self, at: datetime) -> None:
        """Write down when the last valid document came."""
        ...

    def retry(self) -> None:
        """Go back to the disk, where it had failed and is due to be tried again."""
        ...


class Teller(Protocol):
    """What the watch needs of `exporter.notifications.notifier.Notifier`."""

    def compose(
        self, occurrences: Sequence[Occurrence], instance: str | None, now: datetime
    ) -> Sequence[Message]:
        """Make the messages about what just happened."""
        ...

    def wake(self) -> None:
        """Deliver what was recorded."""
        ...


class Traces(Protocol):
    """What the watch needs of `exporter.tracing.Tracer`."""

    def happened(self, occurrence: Occurrence, instance: str | None) -> None:
        """Take in a transition of an event that is to be traced."""
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


class Approvals(Protocol):
    """What the watch needs of `exporter.approval.Approver`."""

    def take_sent(self) -> Sequence[Approval]:
        """Return the approvals that Azure took and that are not transitions yet."""
        ...

    def wake(self) -> None:
        """Look at what is pending."""
        ...


class Pauses(Protocol):
    """What the watch needs of `exporter.watch.pauses.PauseWatcher`."""

    def watch(self, active: bool) -> None:
        """Begin to watch, or end it."""
        ...
