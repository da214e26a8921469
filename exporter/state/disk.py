"""The state directory, with its permissions and its lock, and the SQLite file in it.

The file has one table, which holds the entries that are in memory.
"""

import contextlib
import os
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from exporter import files
from exporter.errors import ExporterError, StateDirectoryInUseError

FILE_NAME = "state.db"
COMPANIONS = ("-wal", "-shm", "-journal")  # the suffixes of SQLite's own files
_LOCK_NAME = "state.lock"
_ASIDE = re.compile(re.escape(FILE_NAME) + r"\.corrupt-([0-9]{8}T[0-9]{6}Z)(?:\.[0-9]+)?")
_ASIDE_TIME = "%Y%m%dT%H%M%SZ"

if sys.platform == "win32":
    import msvcrt

    # Windows locks are mandatory: a byte far behind the pid keeps the pid readable for the error message.
    _LOCKED_BYTE = 1 << 30

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def refuse_unsafe(directory: Path, user: int | None = None) -> None:
    """Raise ConfigurationError, with the remedy, if others than ``user`` can change the state."""
    names = (_LOCK_NAME, *(FILE_NAME + suffix for suffix in ("", *COMPANIONS)))
    files.refuse_unsafe(directory, names, user)


class DirectoryLock:
    """The lock of one directory, which the kernel releases; the file contains the holder's pid."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / _LOCK_NAME
        self._descriptor: int | None = None

    def hold(self) -> None:
        """Take the lock, or make sure that it is still held: the directory may have been replaced."""
        if self._descriptor is not None and is_in_place(self._path, os.fstat(self._descriptor)):
            return
        self.release()
        descriptor = self._open()
        with contextlib.ExitStack() as refused:
            refused.callback(os.close, descriptor)
            if not _try_lock(descriptor):
                used = f"{self._directory} is in use by another exporter{_holder(descriptor)}"
                raise StateDirectoryInUseError(f"{used}; use separate state directories")
            refused.pop_all()
        self._descriptor = descriptor
        # The pid is only for error messages: the lock works on a full or read-only disk, too.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        try:
            return files.open_file(self._path)
        except OSError as error:
            # On a disk that became read-only, too, two exporters must not send every message twice.
            with contextlib.suppress(OSError), files.open_to_read(self._path, follow=False) as file:
                return os.dup(file.fileno())
            raise error from None


def _holder(descriptor: int) -> str:
    pid = b""
    with contextlib.suppress(OSError):
        pid = os.read(descriptor, 32).strip()
    return f" (pid {pid.decode()})" if pid.isdigit() else ""


def is_in_place(path: Path, identity: os.stat_result) -> bool:
    """Return whether an open file is still the one at its path."""
    try:
        return os.path.samestat(path.stat(), identity)
    except OSError:
        return False


def last_moved_aside(directory: Path) -> tuple[str, datetime] | None:
    """Return the name and time of the file that was moved aside last; None if there is none."""
    moved = []
    with contextlib.suppress(OSError):
        names = [path.name for path in directory.iterdir()]
        for match in filter(None, map(_ASIDE.fullmatch, names)):
            with contextlib.suppress(ValueError):  # of a name that this program did not choose
                at = datetime.strptime(match[1], _ASIDE_TIME).replace(tzinfo=UTC)
                moved.append((match[0], at))
    return max(moved, key=lambda file: file[1], default=None)


def sync(directory: Path) -> None:
    """Flush a directory to disk; Windows has no such call and does not need it."""
    if sys.platform != "win32":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# "azsj" in ASCII, in SQLite's header (https://sqlite.org/fileformat2.html, 1.3.17).
APPLICATION_ID = 0x617A736A
VERSION = 1  # of the entries' shape; see CONTRIBUTING.md

Row = tuple[str, bytes, bytes]  # kind, key and value
Change = tuple[str, bytes, bytes | None]  # a row to put, or to delete, without a value


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

_BUSY_SECONDS = 1.0  # another process may lock the file for a moment; the poller must not wait long for it
# A page that a transaction changes is once in the file and once in SQLite's log: together below 16 MiB.
_PAGE_BYTES = 8192
MOST_PAGES = 15 * 2**19 // _PAGE_BYTES
_LARGE_LOG = 2**19
_MAGIC = b"SQLite format 3\x00"
# Permanent errors of the file itself (https://sqlite.org/rescode.html).
_DAMAGE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}


class DiskError(ExporterError):
    """The state cannot be read or written now; the message is the reason. Not raised outside the package."""


class UnusableFileError(DiskError):
    """The file is not a valid state file."""


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
        self._is_new = False  # whether the file was created by the latest `open`, and may still be empty

    @_translated()
    def open(self) -> bool:
        """Create the directory, take its lock, and open the file or create an empty one.

        Returns:
            whether the file has a table; an empty one has to be overwritten.
        """
        self.close()
        files.make_directory(self.directory)
        self._lock.hold()
        self._is_new = not self.path.exists()
        # SQLite's error would be "unable to open database file"; the system's has the reason.
        os.close(files.open_file(self.path))
        self._check_magic()
        self._connection = self._connect("mode=rw")
        has_table = _has_table(self._connection)
        # Only effective in a new file, and before the next statement. Two messages fill a page of 4 KiB, the
        # default, to two thirds.
        self._connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        self._connection.execute(f"PRAGMA max_page_count = {MOST_PAGES}")
        # The file shrinks with its content.
        self._connection.execute("PRAGMA auto_vacuum = FULL")
        (mode,) = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise DiskError(f"the file system does not allow SQLite's write-ahead log ({mode})")
        # Committed changes must survive a crash of the VM, too.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._identity = self.path.stat()
        return has_table

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
        return self._identity is not None and is_in_place(self.path, self._identity)

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

        self._truncate_log(_LARGE_LOG)

    @_translated()
    def overwrite(self, rows: Iterable[Change]) -> None:
        """Replace the file's content in one transaction; durable when this returns."""
        # What a killed exporter left in it would be added to the whole content.
        self._truncate_log(0)
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DROP TABLE IF EXISTS entries")
            connection.execute(_CREATE)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.executemany(_PUT, rows)
        self._truncate_log(_LARGE_LOG)
        sync(self.directory)

    @_translated()
    def move_aside(self, now: datetime) -> str:
        """Close the file, and rename it with its companions to a name with the time; return that name."""
        self.close()
        stem = f"{FILE_NAME}.corrupt-{now:{_ASIDE_TIME}}"
        name, number = stem, 0
        while any((self.directory / (name + suffix)).exists() for suffix in ("", *COMPANIONS)):
            number += 1
            name = f"{stem}.{number}"
        # The file first: SQLite discards a log without a file, but accepts a file without its log.
        self.path.rename(self.directory / name)
        for suffix in COMPANIONS:
            with contextlib.suppress(FileNotFoundError):
                (self.directory / (FILE_NAME + suffix)).rename(self.directory / (name + suffix))
        return name

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
            return _rows(connection) if _has_table(connection) else []

    def _truncate_log(self, most: int) -> None:
        # SQLite would keep a log of the size of its largest transaction.
        if self._log_size() > most:
            self._opened().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _log_size(self) -> int:
        try:
            return self.path.with_name(f"{FILE_NAME}-wal").stat().st_size
        except OSError:
            return 0


def _has_table(connection: sqlite3.Connection) -> bool:
    """Return whether the file has the table of entries, False if it is empty."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, objects) == (0, 0, 0):
        return False
    if application != APPLICATION_ID:
        raise UnusableFileError("it belongs to another program")
    if version != VERSION:
        raise UnusableFileError(f"it is of version {version}, and this exporter reads version {VERSION}")
    return True


def _rows(connection: sqlite3.Connection) -> Iterable[Row]:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise UnusableFileError(f"it is damaged: {verdict}")
    rows = connection.execute(_SELECT).fetchall()
    return ((kind.decode(errors="replace"), key, value) for kind, key, value in rows)
