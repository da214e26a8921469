"""The state file: a SQLite database with one table, which holds the entries that are in memory."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

from exporter import files
from exporter.errors import ExporterError
from exporter.state import directory as directories
from exporter.state.directory import FILE_NAME, DirectoryLock

# "azsj" in ASCII, in SQLite's header (https://sqlite.org/fileformat2.html, 1.3.17).
APPLICATION_ID = 0x617A736A

# Kind, key and value.
Row = tuple[str, bytes, bytes]
# A row to put, or to delete, without a value.
Change = tuple[str, bytes, bytes | None]


# Each converts the rows of one version to the next, starting with version 1. See CONTRIBUTING.md.
UPGRADES: tuple[Callable[[Iterable[Row]], Iterable[Row]], ...] = ()

# A row keeps its position when it is replaced, so that the file has the same order as memory.
_CREATE = """
    CREATE TABLE entries (
        position INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        UNIQUE (kind, key)
    )
"""
# TEXT is readable in SQLite's shell; Python passes bytes, so that invalid UTF-8 fails in the decoder, not in
# SQLite.
_PUT = """
    INSERT INTO entries (kind, key, value) VALUES (?, CAST(? AS TEXT), CAST(? AS TEXT))
    ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value
"""
_DELETE = "DELETE FROM entries WHERE kind = ? AND key = CAST(? AS TEXT)"
_SELECT = """
    SELECT CAST(kind AS BLOB), CAST(key AS BLOB), CAST(value AS BLOB) FROM entries ORDER BY position
"""

# Another process may lock the file for a moment; the poller must not wait long for it.
_BUSY_SECONDS = 1.0
_LARGE_LOG = 2 * 2**20
_MAGIC = b"SQLite format 3\x00"
# Permanent errors of the file itself (https://sqlite.org/rescode.html).
_DAMAGE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}


class DiskError(ExporterError):
    """The state cannot be read or written now; the message is the reason. Not raised outside the package."""


class UnusableFileError(DiskError):
    """The file is not a valid state file; ``defect`` becomes part of its name when it is moved aside."""

    def __init__(self, message: str, defect: Literal["corrupt", "newer"] = "corrupt") -> None:
        super().__init__(message)
        self.defect = defect


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (sqlite3.InterfaceError, sqlite3.ProgrammingError):
        raise  # a bug in this program
    except UnicodeDecodeError as error:
        raise UnusableFileError(f"it is damaged: {error}") from error
    except sqlite3.Error as error:
        # Without a code if text is not UTF-8.
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _DAMAGE:
            raise UnusableFileError(f"it is damaged: {error}") from error
        raise DiskError(f"{error} ({error.sqlite_errorname})") from error
    except OSError as error:
        raise DiskError(error.strerror or str(error)) from error


class Disk:
    """The state file, its directory and its lock; every failure is a DiskError."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / FILE_NAME
        self._lock = DirectoryLock(directory)
        self._connection: sqlite3.Connection | None = None
        self._identity: os.stat_result | None = None
        # Whether the file was created by the latest `open`, and may still be empty.
        self._is_new = False

    @_translated()
    def open(self) -> int:
        """Create the directory, take its lock, and open the file or create an empty one.

        Returns:
            the version of the file's content, 0 if it is empty; any but the newest has to be overwritten.
        """
        self.close()
        files.make_directory(self.directory)
        self._lock.hold()
        self._is_new = not self.path.exists()
        # SQLite's error would be "unable to open database file"; the system's has the reason.
        os.close(files.open_file(self.path))
        self._check_magic()
        self._connection = self._connect("mode=rw")
        version = _version(self._connection)
        # Only effective in a new file, and before the next statement. Two messages fill a page of 4 KiB, the
        # default, to two thirds.
        self._connection.execute("PRAGMA page_size = 8192")
        # The file shrinks with its content.
        self._connection.execute("PRAGMA auto_vacuum = FULL")
        (mode,) = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise DiskError(f"the file system does not allow SQLite's write-ahead log ({mode})")
        # Committed changes must survive a crash of the VM, too.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._identity = self.path.stat()
        return version

    @_translated()
    def rows(self) -> Iterable[Row]:
        """Check the open file for damage, and return its rows, oldest first."""
        return _rows(self._opened())

    def rows_read_only(self) -> Iterable[Row] | None:
        """Return the rows of a file that cannot be written; None if it cannot be read either."""
        # On a full disk there is no room for the index of SQLite's log; with an exclusive lock, SQLite keeps
        # it in memory. In a read-only directory neither is possible; SQLite reads "immutable" files there,
        # but ignores the log, so that is only for a file without one.
        for option in ("mode=rw", "mode=ro", *([] if self._log_size() else ["mode=ro&immutable=1"])):
            try:
                return self._rows_read_only(option)
            except UnusableFileError:
                raise
            except DiskError:
                continue
        return None

    def is_in_place(self) -> bool:
        """Return whether the file is open and still the one at its path."""
        return self._identity is not None and directories.is_in_place(self.path, self._identity)

    def is_open(self) -> bool:
        """Return whether the file is open; it may have been removed or replaced since."""
        return self._connection is not None

    @_translated()
    def write(self, changes: Iterable[Change]) -> None:
        """Put rows, or delete those without a value, in one transaction; durable when this returns."""
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for kind, key, value in changes:
                if value is None:
                    connection.execute(_DELETE, (kind, key))
                else:
                    connection.execute(_PUT, (kind, key, value))

        if self._log_size() > _LARGE_LOG:
            # SQLite would keep a log of the size of its largest transaction.
            self._opened().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @_translated()
    def overwrite(self, rows: Iterable[Change]) -> None:
        """Replace the file's content in one transaction; durable when this returns."""
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DROP TABLE IF EXISTS entries")
            connection.execute(_CREATE)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {newest_version()}")
            connection.executemany(_PUT, rows)
        directories.sync(self.directory)

    @_translated()
    def move_aside(self, defect: str, now: datetime) -> str:
        """Close the file, and rename it with its companions; return the new name."""
        self.close()
        return directories.move_aside(self.directory, defect, now)

    def close(self) -> None:
        """Close the file; the lock stays."""
        connection, self._connection, self._identity = self._connection, None, None
        if connection is not None:
            # Closing removes the log; if the disk does not allow it, the next opening does.
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        if self._is_new:
            # On a full disk. The next opening would take an empty file for a damaged one.
            with contextlib.suppress(OSError):
                if not self.path.stat().st_size:
                    self.path.unlink()

    def release(self) -> None:
        self.close()
        self._lock.release()

    def _connect(self, option: str) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?{option}"
        return sqlite3.connect(
            uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise DiskError("the state file is not open")
        return self._connection

    def _check_magic(self) -> None:
        # SQLite checks this too, but discards the log beside a file without a header.
        with files.open_to_read(self.path, follow=False) as file:
            start = file.read(len(_MAGIC))
        if start != _MAGIC and (start or not self._is_new):
            raise UnusableFileError("it is not a SQLite file" if start else "it is empty")

    @_translated()
    def _rows_read_only(self, option: str) -> Iterable[Row]:
        self._check_magic()
        with contextlib.closing(self._connect(option)) as connection:
            if option == "mode=rw":
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            return _rows(connection) if _version(connection) else []

    def _log_size(self) -> int:
        try:
            return self.path.with_name(f"{FILE_NAME}-wal").stat().st_size
        except OSError:
            return 0


def newest_version() -> int:
    return len(UPGRADES) + 1


def _version(connection: sqlite3.Connection) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, objects) == (0, 0, 0):
        return 0
    if application != APPLICATION_ID or version < 1:
        raise UnusableFileError("it belongs to another program")
    if version > newest_version():
        raise UnusableFileError(
            f"a newer exporter wrote it (version {version}, this one knows {newest_version()})", "newer"
        )
    return int(version)


def _rows(connection: sqlite3.Connection) -> Iterable[Row]:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise UnusableFileError(f"it is damaged: {verdict}")
    found = connection.execute(_SELECT).fetchall()
    rows: Iterable[Row] = ((kind.decode(errors="replace"), key, value) for kind, key, value in found)
    for upgrade in UPGRADES[_version(connection) - 1 :]:
        rows = upgrade(rows)
    return rows
