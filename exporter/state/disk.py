"""The state file on disk: opened, written, written anew as a whole, moved aside."""

import contextlib
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from exporter import private
from exporter.errors import ExporterError
from exporter.state.lock import DirectoryLock
from exporter.state.schema import Defect, UnusableFileError, memory_connection

FILE_NAME = "state.db"

# Another process of the operator's may hold the file for a moment; the poller must not wait for it for long.
_BUSY_SECONDS = 1.0
_MAGIC = b"SQLite format 3\x00"
_COMPANIONS = ("-wal", "-shm", "-journal")
# What passes, or at least says nothing against the file's content (https://sqlite.org/rescode.html).
_PASSING = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_AUTH,
    }
)

Statement = tuple[str, Sequence[Sequence[Any]]]


class DiskError(ExporterError):
    """The disk does not give or take the state now; the message is its reason. Never leaves the package."""


class Disk:
    """The state file, its directory and its lock; every failure is a DiskError or an UnusableFileError."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / FILE_NAME
        self._lock = DirectoryLock(directory)
        self._connection: sqlite3.Connection | None = None
        self._identity: os.stat_result | None = None

    def open(self, inspect: Callable[[sqlite3.Connection], None]) -> None:
        """Make the directory, take its lock, open the file or create an empty one, have it inspected.

        Nothing is written to a file that ``inspect`` refuses by raising.

        Raises:
            StateDirectoryInUseError: another exporter works there.
            DiskError: one of these failed.
            UnusableFileError: it is no state file.
        """
        self.close()
        with _translated():
            self._prepare()
            self._connection = _connect(f"{self.path.absolute().as_uri()}?mode=rw")
            inspect(self._connection)
            # FULL: what is acknowledged must survive the sudden end of the VM, too.
            (mode,) = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise DiskError(f"the file system does not allow SQLite's write-ahead log ({mode})")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA journal_size_limit = 1048576")
            self._identity = self.path.stat()

    def _prepare(self) -> None:
        private.make_directory(self.directory)
        self._lock.hold()
        # SQLite would say "unable to open database file"; the system says why.
        os.close(private.open_file(self.path))
        self._check_magic()

    def copy(self) -> sqlite3.Connection:
        """Give the open file's content, in memory."""
        return _copied(self._opened())

    def copy_read_only(self) -> sqlite3.Connection | None:
        """Give the content of a file that cannot be written; None where it cannot be read either.

        Raises:
            UnusableFileError: it can be read, but is no SQLite file.
        """
        # On a full disk there is no room for the index of SQLite's log, which is kept in memory for whoever
        # has the file alone. In a read-only directory that cannot be, and SQLite makes no index either; it
        # reads "immutable" files, but passes over the log, so that is for a file without one.
        options = ["mode=rw", "mode=ro", *([] if self._has_log() else ["mode=ro&immutable=1"])]
        for option in options:
            with contextlib.suppress(DiskError), _translated():
                self._check_magic()
                connection = _connect(f"{self.path.absolute().as_uri()}?{option}")
                try:
                    if option == "mode=rw":
                        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                    return _copied(connection)
                finally:
                    connection.close()
        return None

    def is_in_place(self) -> bool:
        """Tell whether the file is open, and still the one that its path names."""
        identity = self._identity
        try:
            return identity is not None and os.path.samestat(self.path.stat(), identity)
        except OSError:
            return False

    def is_missing(self) -> bool:
        """Tell whether there certainly is no file."""
        try:
            return not self.path.exists()
        except OSError:
            return False

    def run(self, statements: Sequence[Statement]) -> None:
        """Execute statements in one transaction, on the platter when this returns."""
        connection = self._opened()
        with _translated():
            try:
                connection.execute("BEGIN IMMEDIATE")
                for sql, rows in statements:
                    connection.executemany(sql, rows)
                connection.execute("COMMIT")
            except sqlite3.Error:
                with contextlib.suppress(sqlite3.Error):
                    connection.rollback()
                raise

    def overwrite(self, content: sqlite3.Connection) -> None:
        """Replace all that the file holds, in one transaction."""
        with _translated():
            content.backup(self._opened(), progress=_refuse_to_wait)
            _sync_directory(self.directory)

    def move_aside(self, defect: Defect, now: datetime) -> Path:
        """Rename the file, and what SQLite keeps beside it; give the new name.

        Raises:
            DiskError: it cannot be renamed.
        """
        self.close()
        stem = f"{FILE_NAME}.{defect}-{now:%Y%m%dT%H%M%SZ}"
        name, number = stem, 0
        with _translated():
            while any((self.directory / (name + suffix)).exists() for suffix in ("", *_COMPANIONS)):
                number += 1
                name = f"{stem}.{number}"
            aside = self.directory / name
            # The file first: SQLite discards a log without a file, but would believe a file without its log.
            self.path.rename(aside)
            for suffix in _COMPANIONS:
                with contextlib.suppress(FileNotFoundError):
                    self.path.with_name(FILE_NAME + suffix).rename(aside.with_name(name + suffix))
        return aside

    def close(self) -> None:
        """Close the file; the lock stays."""
        connection, self._connection, self._identity = self._connection, None, None
        if connection is not None:
            # Closing tidies the log away; where the disk does not allow it, the next opening does.
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def release(self) -> None:
        """Close the file, and let the directory go."""
        self.close()
        self._lock.release()

    def _check_magic(self) -> None:
        # SQLite would say so too, but throw away a log that lies beside a file without a header.
        with self.path.open("rb") as file:
            if file.read(len(_MAGIC)) not in (b"", _MAGIC):
                raise UnusableFileError("it is no SQLite file")

    def _has_log(self) -> bool:
        try:
            return self.path.with_name(f"{FILE_NAME}-wal").stat().st_size > 0
        except OSError:
            return False

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise DiskError("the state file is not open")
        return self._connection


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def _copied(connection: sqlite3.Connection) -> sqlite3.Connection:
    copy = memory_connection()
    try:
        with _translated():
            connection.backup(copy, progress=_refuse_to_wait)
    except BaseException:
        copy.close()
        raise
    return copy


def _refuse_to_wait(status: int, _remaining: int, _total: int) -> None:
    # Python's backup() would go on for as long as anyone holds the file.
    if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise DiskError("another process holds the state file")


def _sync_directory(directory: Path) -> None:
    """Make sure that the file's name survives a power loss too; Windows has no such call and need."""
    if sys.platform != "win32":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)
        if code == sqlite3.SQLITE_MISUSE:
            raise
        if code & 0xFF in _PASSING:
            raise DiskError(f"{error} ({error.sqlite_errorname})") from error
        raise UnusableFileError(f"it is damaged: {error}") from error
    except OSError as error:
        raise DiskError(error.strerror or str(error)) from error
