"""The state directory: its permissions, its lock, and the files that were moved aside in it."""

import contextlib
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from exporter import files
from exporter.errors import StateDirectoryInUseError

FILE_NAME = "state.db"
# The suffixes of SQLite's own files.
COMPANIONS = ("-wal", "-shm", "-journal")
_LOCK_NAME = "state.lock"
_ASIDE = re.compile(re.escape(FILE_NAME) + r"\.(?:corrupt|newer)-([0-9]{8}T[0-9]{6}Z)(?:\.[0-9]+)?")
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


def move_aside(directory: Path, defect: str, now: datetime) -> str:
    """Rename the state file and its companions to a name with ``defect`` and time, and return that name."""
    stem = f"{FILE_NAME}.{defect}-{now:{_ASIDE_TIME}}"
    name, number = stem, 0
    while any((directory / (name + suffix)).exists() for suffix in ("", *COMPANIONS)):
        number += 1
        name = f"{stem}.{number}"
    # The file first: SQLite discards a log without a file, but accepts a file without its log.
    (directory / FILE_NAME).rename(directory / name)
    for suffix in COMPANIONS:
        with contextlib.suppress(FileNotFoundError):
            (directory / (FILE_NAME + suffix)).rename(directory / (name + suffix))
    return name


def last_moved_aside(directory: Path) -> tuple[str, datetime] | None:
    """Return the name and time of the file that was moved aside last; None if there is none."""
    found = []
    with contextlib.suppress(OSError):
        names = [path.name for path in directory.iterdir()]
        for match in filter(None, map(_ASIDE.fullmatch, names)):
            with contextlib.suppress(ValueError):  # of a name that this program did not choose
                at = datetime.strptime(match[1], _ASIDE_TIME).replace(tzinfo=UTC)
                found.append((match[0], at))
    return max(found, key=lambda one: one[1], default=None)


def sync(directory: Path) -> None:
    """Flush a directory to disk; Windows has no such call and does not need it."""
    if sys.platform != "win32":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
