"""What the approver needs of its neighbours."""

from datetime import datetime
from typing import Protocol

from exporter.metrics import ApprovalOutcome
from exporter.model.lifecycle import TrackedEvent


class Azure(Protocol):
    """What is needed of `exporter.imds.ImdsClient`; all of it raises ImdsError."""

    def fetch(self) -> bytes:
        """Return the body of the document of scheduled events."""
        ...

    def approve(self, event_ids: list[str]) -> None:
        """Approve events."""
        ...


class Counts(Protocol):
    """What is needed of `exporter.metrics.Metrics`."""

    def decided(self, rule: str, outcome: ApprovalOutcome) -> None:
        """Count an approval attempt by its outcome."""
        ...


class Traces(Protocol):
    """What is needed of `exporter.tracing.Tracer`."""

    def approved(
        self, tracked: TrackedEvent, rule: str, begun: datetime, sent: datetime, *, instance: str | None
    ) -> None:
        """Take in that an event was approved."""
        ...
