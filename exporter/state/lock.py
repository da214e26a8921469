"""One exporter per state directory: a lock that the kernel lets go when the process dies, however it dies."""

import contextlib
import os
import sys
from pathlib import Path

from exporter import files as private
from exporter.errors import StateDirectoryInUseError

LOCK_NAME = "state.lock"

if sys.platform == "win32":
    import msvcrt

    # Windows locks are mandatory: a byte far behind the pid leaves the pid readable for the message.
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


class DirectoryLock:
    """The lock of one directory; the file in it, never removed, holds the pid of whoever has it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / LOCK_NAME
        self._descriptor: int | None = None

    def hold(self) -> None:
        """Take the lock, or make sure that it is still held: the directory may have been made anew.

        Raises:
            StateDirectoryInUseError: another process holds it.
            OSError: the file cannot be opened or locked.
        """
        if self._descriptor is not None and self._is_in_place(self._descriptor):
            return
        self.release()
        descriptor = self._open()
        try:
            locked = _try_lock(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        if not locked:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise StateDirectoryInUseError(
                f"{self._directory} is in use by another exporter{holder}; give each its own state.directory"
            )
        _write_pid(descriptor)
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        try:
            return private.open_file(self._path)
        except OSError as error:
            # On a disk that became read-only, two exporters must still not send every message twice.
            with contextlib.suppress(OSError), private.open_to_read(self._path, follow=False) as file:
                return os.dup(file.fileno())
            raise error from None

    def _is_in_place(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        except OSError:
            return False


def _holder(descriptor: int) -> str:
    pid = b""
    with contextlib.suppress(OSError):
        pid = os.read(descriptor, 32).strip()
    return f" (pid {pid.decode()})" if pid.isdigit() else ""


def _write_pid(descriptor: int) -> None:
    # The pid is a courtesy: a full or read-only disk takes nothing from the lock.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
