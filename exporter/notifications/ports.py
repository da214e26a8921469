"""What delivery needs of its neighbours, and how it is configured."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from exporter.model.jobs import Span
from exporter.model.messages import AnyMessage, Message, Outcome, Rendered, Sender


class Writes(Protocol):
    """What is needed of `exporter.notifications.rendering.Renderer`."""

    def render(
        self, message: AnyMessage, now: datetime, *, limit: int | None = None, late: bool = False
    ) -> Rendered:
        """Write one message."""
        ...

    def digest(
        self, messages: Sequence[AnyMessage], now: datetime, *, limit: int | None = None
    ) -> tuple[Rendered, int]:
        """Write the first of several messages as one, and return how many those are."""
        ...


class Counts(Protocol):
    """What is needed of `exporter.metrics.Metrics`."""

    def delivered(self, target: str, delays: Sequence[float]) -> None:
        """Count delivered messages, each with the seconds since its transition."""
        ...

    def failed(self, target: str) -> None:
        """Count a failed attempt."""
        ...

    def given_up(self, target: str, outcome: Outcome, count: int) -> None:
        """Count messages that expired or were refused."""
        ...


class Traces(Protocol):
    """What is needed of `exporter.tracing.Tracer`."""

    def traceparent(self, message: Message) -> str:
        """Return the W3C header to send along with a message; "" for none."""
        ...

    def wake(self) -> None:
        """Export what was recorded."""
        ...

    def notified(self, message: Message, at: datetime, outcome: Outcome) -> Sequence[Span]:
        """Return the spans of a message that was delivered, or given up."""
        ...


class DeliveryConfig(NamedTuple):
    """How messages are delivered; the factories are called at the first message.

    Without a sender the target is not configured any more: its messages wait until they are too old.
    """

    sender: Callable[[], Sender] | None
    renderer: Callable[[], Writes]
    retry_for: float
