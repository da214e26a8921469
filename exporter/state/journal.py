"""Tables of Python objects in memory, and a journal of them on disk.

Reads come from memory and never wait for the disk. A transaction is written to the disk, then applied to
memory. While the disk fails, only memory changes; once the disk works again, the whole file is rewritten.
"""

import contextlib
import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from exporter.clock import HOUR, Clock, Moment, moment, renewed, seconds_since
from exporter.errors import StateDirectoryInUseError
from exporter.health import DegradedReason, Health
from exporter.state.disk import Change, Disk, DiskError, Row, UnusableFileError, last_moved_aside
from exporter.timefmt import rfc3339

log = logging.getLogger(__name__)

_RETRY_SECONDS = 10.0
_encoder = msgspec.json.Encoder()

K = TypeVar("K")
V = TypeVar("V")


class Table(Generic[K, V]):
    """The entries of one kind, oldest first; keys and values are JSON on disk.

    `entries` may be read in a transaction, or while ``lock`` is held; only transactions change it.
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
        """Decode an entry; a damaged one is a msgspec.MsgspecError, or a ValueError if it is not UTF-8."""
        return self._key_decoder.decode(key), self._value_decoder.decode(value)

    def apply(self, key: K, value: V | None) -> None:
        """Put an entry, or delete it; called with all locks held."""
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value

    def merged(self, loaded: dict[K, V]) -> dict[K, V]:
        """Return the entries of a file that is read late, and those in memory, which are newer."""
        return loaded | self.entries

    def snapshot(self) -> list[tuple[K, V]]:
        with self.lock:
            return list(self.entries.items())

    def row(self, key: K, value: V | None) -> Change:
        return self.kind, _encoder.encode(key), None if value is None else _encoder.encode(value)


class Transaction:
    """Changes that take effect together at its end, or not at all; tables show none of them before."""

    def __init__(self) -> None:
        self.changes: list[tuple[Table[Any, Any], Any, Any]] = []
        self.is_durable = False  # set at the end: whether everything so far survives a crash

    def put(self, table: Table[K, V], key: K, value: V | None) -> None:
        """Add an entry, or replace it in place; delete it if the value is None."""
        # A value that cannot be encoded must not be stored in memory either.
        table.row(key, value)
        self.changes.append((table, key, value))

    def delete(self, table: Table[K, Any], key: K) -> None:
        self.put(table, key, None)


class Journal:
    """The entries of one state directory; for any number of threads."""

    def __init__(self, directory: Path, health: Health, clock: Clock) -> None:
        self.tables: dict[str, Table[Any, Any]] = {}
        # Makes the table of a kind that only the file has.
        self.unknown: Callable[[str], Table[Any, Any]] = self.tables.__getitem__
        # Held while tables are read or changed; ``_writing`` during a whole transaction.
        self.lock = threading.Lock()
        self._writing = threading.Lock()
        self._health = health
        self._clock = clock
        self._disk = Disk(directory)
        # Whether the file has been read. After a failure it is closed, and rewritten when it is opened again.
        self._seen = False
        self._retry_at = -math.inf
        self.lost: Moment | None = None  # when a file was moved aside, for an hour
        # Until when approvals of the last hour may be missing, on the monotonic and on the wall clock.
        self._unknown_until = (-math.inf, clock.now())

    def open(self) -> None:
        """Read the file, if there is one, or raise StateDirectoryInUseError."""
        with self._writing:
            try:
                self._attach()
            except DiskError as error:
                self._detach(error)
                self._read_only()

    def unknown_until(self) -> datetime | None:
        """Return until when entries of the last hour may be missing; None if none are."""
        until, shown = self._unknown_until
        return shown if self._clock.monotonic() < until else None

    def close(self) -> None:
        """Write pending changes to disk, if possible, and release the directory."""
        with self._writing:
            if not self._disk.is_in_place():
                self._reattach()
            self._retry_at = math.inf
            self._disk.release()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction; an exception rolls it back.

        Failures of the disk are not raised but reported to `Health`; the changes are kept in memory.
        """
        with self._writing:
            transaction = Transaction()
            yield transaction
            if transaction.changes:
                self._commit(transaction)
            transaction.is_durable = self._disk.is_in_place()

    def retry(self) -> None:
        """Retry the disk after a failure, at most every 10 s, and check the file and its loss."""
        if not self._disk.is_in_place():
            with self._writing:
                self._retry()
        elif self.unknown_until() is None:
            self.lost = None
            self._health.clear(DegradedReason.STATE_CORRUPT)

    def _commit(self, transaction: Transaction) -> None:
        unusable = None
        # The disk first: readers act on what they see, and must not do so again after a crash.
        try:
            if self._disk.is_in_place():
                # One by one: thousands of encoded ones take many MiB.
                self._disk.write(table.row(key, value) for table, key, value in transaction.changes)
        except UnusableFileError as error:
            unusable = error
        except DiskError as error:
            self._detach(error)
        with self.lock:
            for table, key, value in transaction.changes:
                table.apply(key, value)
        if unusable:
            self._reattach(unusable)
        else:
            self._retry()

    def _retry(self) -> None:
        if not self._disk.is_in_place() and self._clock.monotonic() >= self._retry_at:
            self._reattach()

    def _reattach(self, unusable: UnusableFileError | None = None) -> None:
        try:
            if unusable:
                self._move_aside(unusable)
            elif self._disk.is_open():
                facts = {"path": str(self._disk.path)}
                log.warning("state file was removed or replaced; rewriting it", extra=facts)
            self._attach()
        except (DiskError, StateDirectoryInUseError) as error:
            self._detach(error)

    def _detach(self, error: Exception) -> None:
        self._disk.close()
        self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
        self._health.report(
            DegradedReason.STATE_UNWRITABLE,
            f"cannot write the state in {self._disk.directory}: {error}; continuing in memory: "
            "free disk space, or correct the permissions",
        )

    def _attach(self) -> None:
        """Synchronize memory and the file; raises DiskError, StateDirectoryInUseError."""
        try:
            self._synchronize()
        except UnusableFileError as error:
            self._move_aside(error)
            self._synchronize()
        self._health.clear(DegradedReason.STATE_UNWRITABLE)

    def _synchronize(self) -> None:
        # After the first read, the opened file may be another one, or an old copy.
        rewrite = self._seen or any(table.entries for table in self.tables.values())
        has_table = self._disk.open()
        if has_table and not self._seen:
            self._load(self._disk.rows())
        self._seen = True
        if rewrite or not has_table:
            self._disk.overwrite(
                table.row(key, value)
                for table in self.tables.values()
                for key, value in table.entries.items()
            )

    def _load(self, rows: Iterable[Row]) -> None:
        """Add the entries of the file to those in memory."""
        entries: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        texts: dict[str, str] = {}
        try:
            for kind, key, value in rows:
                decoded, entry = (self.tables.get(kind) or self.unknown(kind)).decode(key, value)
                entries[kind][decoded] = _with_shared_texts(entry, texts)
        except (msgspec.MsgspecError, ValueError, KeyError) as error:
            raise UnusableFileError(f"its content makes no sense: {error}") from error
        with self.lock:
            for kind, table in self.tables.items():
                merged = table.merged(entries[kind])
                for key in list(table.entries):
                    table.apply(key, None)
                for key, entry in merged.items():
                    table.apply(key, entry)
        self._seen = True

    def _read_only(self) -> None:
        if self._seen:
            return
        try:
            rows = self._disk.rows_read_only()
            if rows is not None:
                self._load(rows)
        except UnusableFileError as error:
            self._health.report(
                DegradedReason.STATE_CORRUPT,
                f"{self._disk.path} cannot be used: {error}; it cannot be moved aside yet",
            )

    def _move_aside(self, error: UnusableFileError) -> None:
        aside = self._disk.move_aside(self._clock.now())
        self._record_loss(moment(self._clock))
        self._health.report(
            DegradedReason.STATE_CORRUPT,
            f"{self._disk.path} cannot be used: {error}; it was moved to {aside}, and a new one was created; "
            f"{self._consequence()}",
        )

    def recall_loss(self, recorded: Moment | None) -> None:
        """Report that an earlier process lost the state within the last hour, at the time ``recorded``.

        If it was not recorded, the time in the name of the file that was moved aside counts.
        """
        if self.unknown_until() is not None:
            return
        moved_aside = last_moved_aside(self._disk.directory)
        is_recent = moved_aside is not None and (self._clock.now() - moved_aside[1]).total_seconds() < HOUR
        if recorded is None and not is_recent:
            return
        self._record_loss(renewed(recorded, self._clock))
        if self.unknown_until() is not None:
            moved = f"was moved to {self._disk.directory / moved_aside[0]}" if moved_aside else "was lost"
            message = f"a state file {moved}; {self._consequence()}"
            self._health.report(DegradedReason.STATE_CORRUPT, message)

    def _record_loss(self, at: Moment) -> None:
        self.lost = at
        left = HOUR - (seconds_since(at, self._clock) or 0.0)
        shown = self._clock.now() + timedelta(seconds=left)
        self._unknown_until = (self._clock.monotonic() + left, shown)

    def _consequence(self) -> str:
        return f"rules approve nothing until {rfc3339(self._unknown_until[1])}"


def _with_shared_texts(value: Any, texts: dict[str, str]) -> Any:
    """Return a decoded value with the objects of equal texts that were decoded before.

    While the program runs, a life, its messages and its facts share the texts of a document. Decoded anew for
    each of them, the many short names of VMs would take ten times as much memory as on disk.
    """
    # Not the members of a StrEnum, which are texts, too.
    if type(value) is str:
        return texts.setdefault(value, value)
    if type(value) is tuple:
        return tuple(_with_shared_texts(part, texts) for part in value)
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            msgspec.structs.force_setattr(value, name, _with_shared_texts(getattr(value, name), texts))
    return value
