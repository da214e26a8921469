"""The messages that are to be sent, and which have been, so that a restart does not send one again."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from exporter.model.lifecycle import Change
from exporter.model.messages import Message
from exporter.state.jobs import JobKey, Jobs, Record
from exporter.state.journal import Journal, Transaction


class Waiting(NamedTuple):
    """A message that waits: its identity in the outbox, and the message, None where it cannot be read."""

    key: str
    sequence: int
    message: Message | None


class Outbox(Jobs[Message]):
    """The messages of all targets; for any number of threads."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, "message", Record[Message])

    def decode(self, key: bytes, value: bytes) -> tuple[JobKey, Record[Message]]:
        """Return a message, with the types that JSON does not keep."""
        found, record = super().decode(key, value)
        if record.work is not None and record.work.changes:
            changes = tuple(map(_restored, record.work.changes))
            record = replace(record, work=replace(record.work, changes=changes))
        return found, record

    def add(self, transaction: Transaction, messages: Sequence[Message]) -> None:
        """Add messages, in the transaction of the transitions that cause them; known ones stay."""
        if messages:
            jobs = [(JobKey(one.target, one.key, one.sequence), one) for one in messages]
            self._queue(transaction, jobs, max(message.at for message in messages))

    def waiting(self, target: str, limit: int) -> list[Waiting]:
        """Return what waits for a target, oldest first."""
        return [Waiting(key.life, key.sequence, job.work) for key, job in self._first(target, limit)]

    def finish(self, target: str, finished: Sequence[Waiting], at: datetime) -> None:
        """Note that messages were delivered, or given up, in one transaction."""
        self._finish([JobKey(target, one.key, one.sequence) for one in finished], at)


def _restored(change: Change) -> Change:
    return replace(change, old=_typed(change.field, change.old), new=_typed(change.field, change.new))


def _typed(field: str, value: object) -> object:
    if field == "not_before" and isinstance(value, str):
        return datetime.fromisoformat(value)
    return tuple(value) if isinstance(value, list) else value
