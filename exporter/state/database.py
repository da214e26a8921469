"""A small database that is always in memory, and on disk whenever the disk allows.

Reads come from memory alone. A transaction goes to memory and then, the same statements, to the disk; where
that fails, memory carries on, and the whole is written back once the disk is well again. So neither a full
disk nor a damaged file ever costs more than what a restart would find missing.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from exporter.clock import Clock
from exporter.errors import StateDirectoryInUseError
from exporter.health import Health, Trouble
from exporter.state import schema
from exporter.state.disk import Disk, DiskError, Statement
from exporter.state.schema import UnusableFileError

log = logging.getLogger(__name__)

_RETRY_SECONDS = 10.0


class Transaction:
    """Statements that take effect together or not at all; what is read sees what was written before it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.statements: list[Statement] = []

    def write(self, sql: str, rows: Sequence[Sequence[Any]] = ((),)) -> int:
        """Execute a statement once per row of parameters; give the number of rows it touched.

        It runs twice, in memory and on disk: its effect may depend on nothing but tables and parameters.
        """
        self.statements.append((sql, rows))
        return self._connection.executemany(sql, rows).rowcount

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Give a query's rows."""
        return self._connection.execute(sql, parameters).fetchall()


class Database:
    """The database of one state directory, for any number of threads."""

    def __init__(self, directory: Path, health: Health, clock: Clock, migrations: Sequence[str]) -> None:
        self._health = health
        self._clock = clock
        self._migrations = migrations
        self._lock = threading.Lock()
        self._disk = Disk(directory)
        # Grows whenever what is in memory is replaced as a whole.
        self.generation = 0
        self._memory = schema.in_memory(migrations)
        # Whether memory holds all that the file does; whether the file lacks something that memory has.
        self._seen = False
        self._behind = False
        self._condemned: UnusableFileError | None = None
        self._retry_at = clock.monotonic()

    def open(self) -> None:
        """Take in what the file holds, if there is one.

        Raises:
            StateDirectoryInUseError: another exporter works in that directory.
        """
        with self._lock:
            try:
                self._attach()
            except DiskError as error:
                self._detach(error)
                self._take_in_read_only()
            except BaseException:
                self._disk.release()
                self._memory.close()
                raise

    def close(self) -> None:
        """Write what is still to be written, if that can be, and let the directory go."""
        with self._lock:
            if self._behind:
                self._retry(now=True)
                self._behind = False
            self._disk.release()
            self._memory.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction; at its end everything is written, or, after an exception, nothing.

        No failure of the disk is raised: it is reported to `Health`, and memory carries on.
        """
        with self._lock:
            self._memory.execute("BEGIN")
            try:
                transaction = Transaction(self._memory)
                yield transaction
            except BaseException:
                self._memory.execute("ROLLBACK")
                raise
            if not transaction.statements:
                self._memory.execute("COMMIT")
                return
            was_behind, self._behind = self._behind, True
            self._memory.execute("COMMIT")
            self._write_through(transaction.statements, anew=was_behind)

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Give a query's rows; it never waits for the disk's sake longer than a transaction lasts."""
        with self._lock:
            return self._memory.execute(sql, parameters).fetchall()

    def is_on_disk(self) -> bool:
        """Tell whether everything up to now is on the disk, and would be there after a crash."""
        with self._lock:
            return not self._behind and self._disk.is_in_place()

    def retry(self) -> None:
        """Go back to the disk where it had failed, every 10 s at most; otherwise this costs one stat."""
        if self._disk.is_in_place():
            return
        with self._lock:
            if not self._disk.is_in_place():
                self._retry()

    def condemn(self, reason: str) -> None:
        """Give up all content, because it makes no sense; the file is moved aside."""
        with self._lock:
            self._memory.close()
            self._memory = schema.in_memory(self._migrations)
            self.generation += 1
            self._start_anew(UnusableFileError(reason))

    def _write_through(self, statements: Sequence[Statement], *, anew: bool) -> None:
        if not self._disk.is_in_place():
            self._retry()
            return
        try:
            if anew:
                self._disk.overwrite(self._memory)
            else:
                self._disk.run(statements)
            self._behind = False
        except DiskError as error:
            self._detach(error)
        except UnusableFileError as error:
            self._start_anew(error)

    def _start_anew(self, reason: UnusableFileError) -> None:
        self._condemned = reason
        self._seen = True
        self._disk.close()
        self._retry(now=True)

    def _retry(self, *, now: bool = False) -> None:
        if not now and self._clock.monotonic() < self._retry_at:
            return
        try:
            self._attach()
        except (DiskError, StateDirectoryInUseError) as error:
            self._detach(error)

    def _detach(self, error: Exception) -> None:
        self._disk.close()
        self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
        self._health.report(
            Trouble.STATE_UNWRITABLE,
            f"cannot write the state in {self._disk.directory}: {error}; going on from memory",
        )

    def _attach(self) -> None:
        """Make the file and memory equal, whatever it takes; raise DiskError, StateDirectoryInUseError."""
        if self._seen and self._condemned is None and self._disk.is_missing():
            log.warning("the state file is gone; writing it anew", extra={"path": str(self._disk.path)})
        try:
            self._equalise()
        except UnusableFileError as error:
            self._move_aside(error)
            try:
                self._equalise()
            except UnusableFileError as again:
                raise DiskError(f"a new file cannot be used either: {again}") from again
        self._health.clear(Trouble.STATE_UNWRITABLE)

    def _equalise(self) -> None:
        # Once the file's content is here, what comes back may be another file, or an old copy.
        self._behind = self._behind or self._seen
        self._disk.open(self._inspect)
        if not self._seen:
            self._take_in(self._disk.copy())
        if self._behind:
            self._disk.overwrite(self._memory)
            self._behind = False

    def _inspect(self, connection: sqlite3.Connection) -> None:
        if self._condemned is not None:
            raise self._condemned
        if schema.version_of(connection, self._migrations) == 0:
            self._seen = self._behind = True

    def _take_in(self, copy: sqlite3.Connection) -> None:
        """Make a file's content the base of what is in memory; what memory has already is newer."""
        try:
            schema.version_of(copy, self._migrations)
            migrated = schema.migrate(copy, self._migrations)
            schema.check(copy, self._migrations)
            schema.merge(self._memory, copy)
        except (sqlite3.Error, UnusableFileError) as error:
            copy.close()
            if isinstance(error, UnusableFileError):
                raise
            raise UnusableFileError(f"it is damaged: {error}") from error
        self._memory.close()
        self._memory = copy
        self.generation += 1
        self._seen = True
        self._behind = self._behind or migrated

    def _take_in_read_only(self) -> None:
        try:
            copy = self._disk.copy_read_only()
            if copy is not None:
                self._take_in(copy)
        except UnusableFileError as error:
            self._health.report(
                Trouble.STATE_CORRUPT,
                f"{self._disk.path} cannot be used: {error}; it cannot be moved aside yet",
            )

    def _move_aside(self, error: UnusableFileError) -> None:
        aside = self._disk.move_aside(error.defect, self._clock.now())
        self._condemned = None
        self._seen = self._behind = True
        self._health.report(
            Trouble.STATE_CORRUPT,
            f"{self._disk.path} cannot be used: {error}; it was moved to {aside.name}, and a new one begun",
        )
