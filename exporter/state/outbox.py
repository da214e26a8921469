"""The messages that are to be sent, and which have been, so that a restart does not send one again."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from exporter.model.lifecycle import TrackedEvent
from exporter.model.messages import AnyMessage, Message, Outcome
from exporter.model.spans import Span
from exporter.state.jobs import JobKey, Jobs, Record
from exporter.state.journal import Journal, Table, Transaction
from exporter.state.spans import Spans


class Waiting(NamedTuple):
    """A message that waits: its identity in the outbox, and the message, None where it cannot be read.

    ``attempts`` counts those after which it may not be tried for ever: it was refused, or not answered.
    """

    key: str
    sequence: int
    message: AnyMessage | None
    attempts: int = 0


class Outbox(Jobs[AnyMessage]):
    """The messages of all targets; for any number of threads."""

    def __init__(self, journal: Journal, lives: Table[str, TrackedEvent], spans: Spans) -> None:
        super().__init__(journal, "message", Record[AnyMessage])
        self._lives = lives
        self._spans = spans

    def add(self, transaction: Transaction, messages: Sequence[AnyMessage]) -> None:
        """Add messages, in the transaction of the transitions that cause them; known ones stay."""
        if messages:
            jobs = [(JobKey(one.target, one.key, one.sequence), one) for one in messages]
            self._queue(transaction, jobs, max(message.at for message in messages))

    def waiting(self, target: str, limit: int) -> list[Waiting]:
        """Return what waits for a target, oldest first."""
        return [
            Waiting(key.life, key.sequence, job.work, job.attempts) for key, job in self._first(target, limit)
        ]

    def as_of_now(self, message: AnyMessage) -> AnyMessage:
        """Return a message with the end of its event's life, if that has come since."""
        life = self._lives.entries.get(message.key)
        if not isinstance(message, Message) or life is None or life.ended is None:
            return message
        event = replace(
            message.event,
            started=life.started,
            ended=life.ended,
            outcome=life.outcome,
            impact_seconds=life.impact_seconds,
            paused_seconds=life.paused_seconds,
        )
        return replace(message, event=event)

    def count_attempt(self, target: str, tried: Sequence[Waiting]) -> None:
        """Note an attempt after which messages may not be tried for ever, in one transaction."""
        with self._journal.transaction() as transaction:
            for one in tried:
                key = JobKey(target, one.key, one.sequence)
                record = self.entries.get(key)
                if record is not None and record.done is None:
                    transaction.put(self, key, replace(record, attempts=record.attempts + 1))

    def finish(
        self,
        target: str,
        finished: Sequence[Waiting],
        at: datetime,
        *,
        outcome: Outcome | None = None,
        spans: Sequence[Span] = (),
    ) -> None:
        """Note that messages were delivered, or given up, with their spans, in one transaction.

        Without an outcome there was nothing to send.
        """
        keys = [JobKey(target, one.key, one.sequence) for one in finished]
        self._finish(keys, at, outcome, also=lambda transaction: self._spans.add(transaction, spans))
