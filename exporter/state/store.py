"""What the exporter remembers, in its own terms: known events, history, and how far the watch has come."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from exporter.clock import Clock
from exporter.health import Health
from exporter.hooks.jobs import Job
from exporter.lifecycle import ENDINGS, HISTORY, Known, Step, TrackedEvent
from exporter.messages import Message
from exporter.state.approvals import Approvals
from exporter.state.database import Database, Transaction
from exporter.state.hook_jobs import HookJobs
from exporter.state.outbox import Outbox
from exporter.state.schema import MIGRATIONS

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TrackedEvent)

_UPSERT_EVENT = """
    INSERT INTO events (key, first_seen, ended, tracked) VALUES (?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET
        first_seen = excluded.first_seen, ended = excluded.ended, tracked = excluded.tracked
"""
_UPSERT_WATCH = """
    INSERT INTO watch (id, incarnation, last_success) VALUES (1, ?, ?)
    ON CONFLICT (id) DO UPDATE SET incarnation = excluded.incarnation, last_success = excluded.last_success
"""
_UPSERT_LAST_SUCCESS = """
    INSERT INTO watch (id, last_success) VALUES (1, ?)
    ON CONFLICT (id) DO UPDATE SET last_success = excluded.last_success
"""
# As a BLOB: bytes that are no UTF-8 are to fail in the decoder, not in SQLite.
_SELECT_CURRENT = """
    SELECT key, CAST(tracked AS BLOB) FROM events WHERE ended IS NULL ORDER BY first_seen, rowid
"""
_SELECT_PAST = """
    SELECT key, CAST(tracked AS BLOB) FROM events WHERE ended >= ? ORDER BY ended, rowid
"""


class Store:
    """The memory of one exporter, which survives its sudden end; for any number of threads.

    Whatever the disk does, nothing raises: the store goes on from memory, tells `Health`, and catches up.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.outbox = Outbox(database)
        self.hook_jobs = HookJobs(database)
        self.approvals = Approvals(database)

    @classmethod
    def open(
        cls, directory: Path, *, health: Health, clock: Clock, migrations: Sequence[str] = MIGRATIONS
    ) -> "Store":
        """Open the state in a directory, which is made (mode 0700) where it is missing.

        Raises:
            StateDirectoryInUseError: another exporter works there.
        """
        database = Database(directory, health, clock, migrations)
        database.open()
        return cls(database, clock)

    def load(self) -> Known:
        """Give all that is remembered, each mapping oldest first; the past for `HISTORY` back from now."""
        try:
            return self._load()
        except (sqlite3.Error, msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
            self._database.condemn(f"its content makes no sense: {error}")
            return Known()

    def record(self, step: Step, messages: Sequence[Message] = (), jobs: Sequence[Job] = ()) -> None:
        """Write down what one document caused, whom to tell, and which hooks to run, in one transaction.

        Nothing is written where it changed nothing.
        """
        if not step.writes:
            return
        with self._database.transaction() as transaction:
            added = self.outbox.add(transaction, messages)
            over = [one.tracked.key for one in step.occurrences if one.transition in ENDINGS]
            self.hook_jobs.drop(transaction, [*over, *step.forgotten])
            self.hook_jobs.add(transaction, jobs)
            _write_events(transaction, step)
            incarnation = None if step.known.incarnation is None else str(step.known.incarnation)
            transaction.write(_UPSERT_WATCH, [(incarnation, _text(step.known.last_success))])
            self.outbox.added(added)

    def note_last_success(self, at: datetime) -> None:
        """Write down when the last valid document came: the next start asks for its age."""
        with self._database.transaction() as transaction:
            if transaction.read("SELECT last_success FROM watch") != [(_text(at),)]:
                transaction.write(_UPSERT_LAST_SUCCESS, [(_text(at),)])

    def retry(self) -> None:
        """Go back to the disk where it had failed, every 10 s at most; to be called at every poll."""
        self._database.retry()

    def close(self) -> None:
        """Write what is still to be written, if that can be, and let the directory go."""
        self._database.close()

    def _load(self) -> Known:
        oldest = (self._clock.now() - HISTORY).timestamp()
        with self._database.transaction() as transaction:
            rows = transaction.read("SELECT incarnation, last_success FROM watch")
            current = transaction.read(_SELECT_CURRENT)
            past = transaction.read(_SELECT_PAST, (oldest,))
        incarnation, last_success = rows[0] if rows else (None, None)
        return Known(
            incarnation=None if incarnation is None else int(incarnation),
            last_success=None if last_success is None else datetime.fromisoformat(last_success),
            current=_decode(current),
            past=_decode(past),
        )


def _write_events(transaction: Transaction, step: Step) -> None:
    if step.changed:
        transaction.write(_UPSERT_EVENT, [_row(tracked) for tracked in step.changed])
    if step.forgotten:
        transaction.write("DELETE FROM events WHERE key = ?", [(key,) for key in step.forgotten])
    if step.known.last_success is not None:
        # Rows that `load` left out are in no step's ``forgotten``.
        oldest = (step.known.last_success - HISTORY).timestamp()
        transaction.write("DELETE FROM events WHERE ended < ?", [(oldest,)])


def _row(tracked: TrackedEvent) -> tuple[Any, ...]:
    ended = None if tracked.ended is None else tracked.ended.timestamp()
    return tracked.key, tracked.first_seen.timestamp(), ended, _encoder.encode(tracked).decode()


def _decode(rows: Sequence[tuple[Any, ...]]) -> dict[str, TrackedEvent]:
    decoded = {}
    for key, data in rows:
        tracked = _decoder.decode(data)
        if not tracked.ids or tracked.key != key:
            raise ValueError(f"the row {key!r} holds another event")
        decoded[key] = tracked
    return decoded


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
