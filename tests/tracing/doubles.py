"""What stands in for the tracer, and for what it needs."""

from datetime import datetime

from exporter.model.lifecycle import Occurrence
from exporter.model.messages import Message, Outcome


class Traced:
    """Keeps what a tracer is told."""

    def __init__(self) -> None:
        self.occurrences: list[tuple[Occurrence, str | None]] = []
        self.messages: list[tuple[str, datetime, Outcome]] = []

    def happened(self, occurrence: Occurrence, instance: str | None) -> None:
        """Keep a transition."""
        self.occurrences.append((occurrence, instance))

    def traceparent(self, message: Message) -> str:
        """Name the message."""
        return f"to {message.key}/{message.sequence}"

    def notified(self, message: Message, at: datetime, outcome: Outcome) -> None:
        """Keep a message by its key and number."""
        self.messages.append((f"{message.key}/{message.sequence}", at, outcome))


class SpanTally:
    """Keeps what is counted."""

    def __init__(self) -> None:
        self.exported = 0
        self.dropped = 0

    def spans_exported(self, count: int) -> None:
        """Count."""
        self.exported += count

    def spans_dropped(self, count: int) -> None:
        """Count."""
        self.dropped += count
