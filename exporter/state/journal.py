"""Tables of Python objects in memory, and a journal of them on disk.

Memory is the whole truth: reads come from it and never wait for the disk. A transaction is written to the
disk, then applied to memory. Where the disk fails, memory carries on, and everything is written anew from it
once the disk works again.
"""

import contextlib
import logging
import math
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from exporter.clock import Clock
from exporter.errors import StateDirectoryInUseError
from exporter.health import DegradedReason, Health
from exporter.state import disk
from exporter.state.directory import last_moved_aside
from exporter.state.disk import Change, Disk, DiskError, Row, UnusableFileError
from exporter.timefmt import rfc3339

log = logging.getLogger(__name__)

_RETRY_SECONDS = 10.0
_HOUR = 3600.0
_encoder = msgspec.json.Encoder()

K = TypeVar("K")
V = TypeVar("V")


class Table(Generic[K, V]):
    """The entries of one kind, oldest first; keys and values are JSON on disk.

    `entries` may be read in a transaction, or while ``lock`` is held; it changes by transactions alone.
    """

    def __init__(self, journal: "Journal", kind: str, key_type: type[K], value_type: type[V]) -> None:
        self.kind = kind
        self.entries: dict[K, V] = {}
        self.lock = journal.lock
        self._journal = journal
        self._key_decoder = msgspec.json.Decoder(key_type)
        self._value_decoder = msgspec.json.Decoder(value_type)
        journal.tables[kind] = self

    def decode(self, key: bytes, value: bytes) -> tuple[K, V]:
        """Return an entry as it was put; raise ValueError, which msgspec's errors are, where it cannot be."""
        return self._key_decoder.decode(key), self._value_decoder.decode(value)

    def apply(self, key: K, value: V | None) -> None:
        """Put an entry, or delete it; called with all locks held."""
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value

    def snapshot(self) -> list[tuple[K, V]]:
        """Return all entries as they are now."""
        with self.lock:
            return list(self.entries.items())

    def row(self, key: K, value: V | None) -> Change:
        """Return an entry as the disk has it."""
        return self.kind, _encoder.encode(key), None if value is None else _encoder.encode(value)


class Transaction:
    """Changes that take effect together at its end, or not at all; tables show none of them before."""

    def __init__(self) -> None:
        # Encoded at once: what cannot be must not reach memory either.
        self.rows: list[Change] = []
        self.changes: list[tuple[Table[Any, Any], Any, Any]] = []
        # At its end: whether everything up to it is on disk, and would be there after a crash.
        self.is_durable = False

    def put(self, table: Table[K, V], key: K, value: V | None) -> None:
        """Add an entry, or replace it where it is; delete it if the value is None."""
        self.rows.append(table.row(key, value))
        self.changes.append((table, key, value))

    def delete(self, table: Table[K, Any], key: K) -> None:
        """Delete an entry, if there is one."""
        self.put(table, key, None)


class Journal:
    """The entries of one state directory; for any number of threads."""

    def __init__(self, directory: Path, health: Health, clock: Clock) -> None:
        self.tables: dict[str, Table[Any, Any]] = {}
        # Held for as long as tables are read or changed; ``_writing`` for whole transactions.
        self.lock = threading.Lock()
        self._writing = threading.Lock()
        self._health = health
        self._clock = clock
        self._disk = Disk(directory)
        # Whether memory has all that the file has. The file has all that memory has while it is in place:
        # after a failure it is closed, and it is written anew when it is opened again.
        self._seen = False
        self._retry_at = -math.inf
        # Until when, on the monotonic clock and the other, it is not known what was done in the last hour.
        self._unknown_until = (-math.inf, clock.now())

    def open(self) -> None:
        """Read the file, if there is one.

        Raises:
            StateDirectoryInUseError: another exporter uses the directory.
        """
        with self._writing:
            try:
                self._attach()
            except DiskError as error:
                self._detach(error)
                self._read_only()
            except BaseException:
                self._disk.release()
                raise
            self._recall_loss()

    def unknown_until(self) -> datetime | None:
        """Return until when it is not known what was done in the last hour; None where that is known."""
        until, shown = self._unknown_until
        return shown if self._clock.monotonic() < until else None

    def close(self) -> None:
        """Write what has not been written, if possible, and release the directory."""
        with self._writing:
            if not self._disk.is_in_place() and self._retry_at < math.inf:
                self._reattach()
            self._retry_at = math.inf
            self._disk.release()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction; after an exception nothing of it is written.

        Failures of the disk are not raised but reported to `Health`, and memory carries on.
        """
        with self._writing:
            transaction = Transaction()
            yield transaction
            if transaction.changes:
                self._commit(transaction)
            transaction.is_durable = self._disk.is_in_place()

    def retry(self) -> None:
        """Try the disk again after a failure, every 10 s at most; otherwise this costs one stat."""
        if self._disk.is_in_place():
            return
        with self._writing:
            if not self._disk.is_in_place():
                self._retry()

    def _commit(self, transaction: Transaction) -> None:
        unusable = None
        # The disk first: readers act on what they see, and a crash must not make them do so again.
        try:
            if self._disk.is_in_place():
                self._disk.write(transaction.rows)
        except UnusableFileError as error:
            unusable = error
        except DiskError as error:
            self._detach(error)
        with self.lock:
            for table, key, value in transaction.changes:
                table.apply(key, value)
        if unusable:
            self._reattach(unusable)
        elif not self._disk.is_in_place():
            self._retry()

    def _retry(self) -> None:
        if self._clock.monotonic() >= self._retry_at:
            self._reattach()

    def _reattach(self, unusable: UnusableFileError | None = None) -> None:
        try:
            if unusable:
                self._move_aside(unusable)
            elif self._disk.is_open():
                facts = {"path": str(self._disk.path)}
                log.warning("the state file was removed or replaced; writing it anew", extra=facts)
            self._attach()
        except (DiskError, StateDirectoryInUseError) as error:
            self._detach(error)

    def _detach(self, error: Exception) -> None:
        self._disk.close()
        self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
        self._health.report(
            DegradedReason.STATE_UNWRITABLE,
            f"cannot write the state in {self._disk.directory}: {error}; continuing in memory",
        )

    def _attach(self) -> None:
        """Make memory and the file equal; raise DiskError, StateDirectoryInUseError."""
        try:
            self._equalise()
        except UnusableFileError as error:
            self._move_aside(error)
            self._equalise()
        self._health.clear(DegradedReason.STATE_UNWRITABLE)

    def _equalise(self) -> None:
        # Once the file has been read, what comes back may be another file, or an old copy.
        anew = self._seen or any(table.entries for table in self.tables.values())
        version = self._disk.open()
        if version and not self._seen:
            self._take_in(self._disk.rows())
        self._seen = True
        if anew or version < disk.newest_version():
            self._disk.overwrite(
                table.row(key, value)
                for table in self.tables.values()
                for key, value in table.entries.items()
            )

    def _take_in(self, rows: Iterable[Row]) -> None:
        """Add the file's entries; where memory has an entry already, it is newer."""
        found: dict[str, dict[Any, Any]] = {kind: {} for kind in self.tables}
        try:
            for kind, key, value in rows:
                decoded, entry = self.tables[kind].decode(key, value)
                found[kind][decoded] = entry
        except (ValueError, KeyError) as error:
            raise UnusableFileError(f"its content makes no sense: {error}") from error
        with self.lock:
            for kind, table in self.tables.items():
                newer = dict(table.entries)
                for key in newer:
                    table.apply(key, None)
                for key, entry in (found[kind] | newer).items():
                    table.apply(key, entry)
        self._seen = True

    def _read_only(self) -> None:
        if self._seen:
            return
        try:
            rows = self._disk.rows_read_only()
            if rows is not None:
                self._take_in(rows)
        except UnusableFileError as error:
            self._health.report(
                DegradedReason.STATE_CORRUPT,
                f"{self._disk.path} cannot be used: {error}; it cannot be moved aside yet",
            )

    def _move_aside(self, error: UnusableFileError) -> None:
        now = self._clock.now()
        aside = self._disk.move_aside(error.defect, now)
        self._note_loss(now)
        self._health.report(
            DegradedReason.STATE_CORRUPT,
            f"{self._disk.path} cannot be used: {error}; it was moved to {aside}, and a new one begun; "
            f"{self._consequence()}",
        )

    def _recall_loss(self) -> None:
        """Find out whether a process before this one moved a file aside within the last hour."""
        found = last_moved_aside(self._disk.directory)
        if found is None or self.unknown_until() is not None:
            return
        self._note_loss(found[1])
        if self.unknown_until() is not None:
            self._health.report(
                DegradedReason.STATE_CORRUPT,
                f"a state file was moved to {self._disk.directory / found[0]}; {self._consequence()}",
            )

    def _note_loss(self, at: datetime) -> None:
        now = self._clock.now()
        # A clock that was set back makes the hour no longer than one.
        left = min(_HOUR - (now - at).total_seconds(), _HOUR)
        self._unknown_until = (self._clock.monotonic() + left, now + timedelta(seconds=left))

    def _consequence(self) -> str:
        return f"rules approve nothing until {rfc3339(self._unknown_until[1])}"
