"""What is still to be said, to whom; and what has been, so that a restart never says it again."""

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from exporter.lifecycle import HISTORY, Change
from exporter.messages import Message
from exporter.state.database import Database, Transaction

log = logging.getLogger(__name__)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)

_INSERT = """
    INSERT INTO outbox (target, key, sequence, position, at, message) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (target, key, sequence) DO NOTHING
"""
_FINISH = "UPDATE outbox SET done = ?, message = '' WHERE target = ? AND key = ? AND sequence = ?"
_WAITING = """
    SELECT key, sequence, CAST(message AS BLOB) FROM outbox
    WHERE target = ? AND done IS NULL ORDER BY position LIMIT ?
"""
_COUNTS = "SELECT target, count(*) FROM outbox WHERE done IS NULL GROUP BY target"


class Waiting(NamedTuple):
    """A message that waits: what names it in the outbox, and the message; None where it cannot be read."""

    key: str
    sequence: int
    message: Message | None


class Outbox:
    """The messages of all targets; for any number of threads.

    One event, transition and target make one row for all time: rows that are done with stay as long as the
    event's history does.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._generation = -1

    def add(self, transaction: Transaction, messages: Sequence[Message]) -> list[str]:
        """Write messages down, in the transaction of the transitions that they tell of.

        Returns:
            the target of each message that is new; `added` is to be told at the transaction's end.
        """
        if not messages:
            return []
        newest = max(message.at for message in messages)
        transaction.write("DELETE FROM outbox WHERE done < ?", [((newest - HISTORY).timestamp(),)])
        ((last,),) = transaction.read("SELECT coalesce(max(position), 0) FROM outbox")
        # By the clock, so that files and memory can be merged; never back, though the clock may go there.
        first = max(last + 1, int(newest.timestamp() * 1000))
        return [
            message.target
            for position, message in enumerate(messages, start=first)
            if transaction.write(_INSERT, [_row(message, position)])
        ]

    def added(self, targets: Sequence[str]) -> None:
        """Count messages that were written down, while their transaction is open: see `_recount`."""
        with self._lock:
            self._counts.update(targets)

    def waiting(self, target: str, limit: int) -> list[Waiting]:
        """List what waits for a target, oldest first."""
        rows = self._database.read(_WAITING, (target, limit))
        return [Waiting(key, sequence, _decode(data)) for key, sequence, data in rows]

    def finish(self, target: str, finished: Sequence[Waiting], at: datetime) -> None:
        """Note that messages were delivered, or given up, in one transaction."""
        rows = [(at.timestamp(), target, waiting.key, waiting.sequence) for waiting in finished]
        with self._database.transaction() as transaction:
            transaction.write(_FINISH, rows)
            with self._lock:
                self._counts[target] -= len(rows)

    def counts(self) -> dict[str, int]:
        """Give how many messages wait, by target; it waits for no disk but once after one came back."""
        if self._generation != self._database.generation:
            self._recount()
        with self._lock:
            return {target: count for target, count in self._counts.items() if count > 0}

    def _recount(self) -> None:
        # In a transaction, as all counting: what is read here must not be counted by another thread again.
        with self._database.transaction() as transaction:
            counts = Counter(dict(transaction.read(_COUNTS)))
            with self._lock:
                self._counts, self._generation = counts, self._database.generation


def _row(message: Message, position: int) -> tuple[object, ...]:
    data = _encoder.encode(message).decode()
    return message.target, message.key, message.sequence, position, message.at.timestamp(), data


def _decode(data: bytes) -> Message | None:
    try:
        message = _decoder.decode(data)
        return msgspec.structs.replace(message, changes=tuple(map(_restored, message.changes)))
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        log.warning("a message in the state cannot be read", extra={"error": str(error)})
        return None


def _restored(change: Change) -> Change:
    """Give a change the types again that JSON does not keep."""
    return msgspec.structs.replace(
        change, old=_typed(change.field, change.old), new=_typed(change.field, change.new)
    )


def _typed(field: str, value: object) -> object:
    if field == "not_before" and isinstance(value, str):
        return datetime.fromisoformat(value)
    return tuple(value) if isinstance(value, list) else value
