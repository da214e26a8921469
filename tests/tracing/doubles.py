from collections.abc import Sequence
from datetime import datetime

from exporter.model.jobs import Span, TraceJobs
from exporter.model.lifecycle import Occurrence
from exporter.model.messages import Message, Outcome
from exporter.tracing import Tracer
from exporter.tracing.spans import event_spans


class Traced(Tracer):
    def __init__(self) -> None:
        self.occurrences: list[tuple[Occurrence, str | None]] = []
        self.woken = 0
        self.messages: list[tuple[str, datetime, Outcome]] = []

    def compose(self, occurrences: Sequence[Occurrence], instance: str | None) -> TraceJobs:
        self.occurrences += [(one, instance) for one in occurrences]
        return TraceJobs([span for one in occurrences for span in event_spans(one, "vm")])

    def wake(self) -> None:
        self.woken += 1

    def traceparent(self, message: Message) -> str:
        return f"to {message.key}/{message.sequence}"

    def notified(self, message: Message, at: datetime, outcome: Outcome) -> list[Span]:
        self.messages.append((f"{message.key}/{message.sequence}", at, outcome))
        return []
