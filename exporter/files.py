"""Files and directories with safe permissions, whatever the umask."""

import contextlib
import errno
import logging
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from exporter.errors import ConfigurationError

log = logging.getLogger(__name__)

Stamp = tuple[int, int, int] | None  # what changes with the content of a file

_READ_WRITE = os.O_RDWR | os.O_CREAT
# Not available, and not needed, on Windows.
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
_BINARY: int = getattr(os, "O_BINARY", 0)
_MOST_BYTES = 64 * 1024
_PRIVATE, _PRIVATE_DIRECTORY = 0o600, 0o700


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700; existing ones stay unchanged."""
    if path.exists():
        return
    make_directory(path.parent)
    path.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
    if sys.platform != "win32":
        # Whatever the umask.
        path.chmod(_PRIVATE_DIRECTORY)


def open_file(path: Path) -> int:
    """Return the descriptor of a regular file to read and write, not of a link; a new file gets mode 0600."""
    try:
        descriptor = os.open(path, _READ_WRITE | os.O_EXCL, _PRIVATE)
    except FileExistsError:
        return _regular(path, _READ_WRITE | _NO_LINK)
    if sys.platform != "win32":
        # With a umask like 0777, the owner could never open the file again.
        os.fchmod(descriptor, _PRIVATE)
    return descriptor


def open_to_read(path: Path, *, follow: bool = True) -> IO[bytes]:
    """Open a regular file for reading, not a FIFO, which could block forever; links only with ``follow``."""
    return os.fdopen(_regular(path, os.O_RDONLY | _BINARY | (0 if follow else _NO_LINK)), "rb")


def read_text(path: Path) -> str:
    """Return the text of a configured file, or raise OSError if it is longer than 64 KiB."""
    with open_to_read(path) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(errno.EFBIG, "it has more than 64 KiB")
    return content.decode()


def stamp(path: Path) -> Stamp:
    """Return modification time, size and inode; None if the file cannot be found."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _regular(path: Path, flags: int) -> int:
    # Without _NO_WAIT, opening a FIFO would wait for a writer.
    descriptor = os.open(path, flags | _NO_WAIT, _PRIVATE)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file")


def refuse_unsafe(directory: Path, names: Iterable[str], user: int | None = None) -> None:
    """Refuse a directory, or files in it, that other users than ``user`` own or can write; default: this one.

    Groups of this process may write, and root may be the owner, because containers get their volumes so.
    """
    if sys.platform != "win32":
        user = os.geteuid() if user is None else user
        owners, groups = {user, 0}, {os.getegid(), *os.getgroups()}
        for path in (directory, *(directory / name for name in names)):
            with contextlib.suppress(OSError):
                status = path.stat() if path == directory else path.lstat()
                mode = status.st_mode
                special = not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
                shared = mode & stat.S_ISVTX and mode & stat.S_IWOTH
                if path == directory and (special or shared):
                    # Such as /dev/null or /tmp, which must stay as it is.
                    raise ConfigurationError(f"{path} cannot hold the state; choose a directory of its own")
                if special:
                    raise ConfigurationError(f"{path} is not a regular file; run: rm {path}")
                if status.st_uid not in owners:
                    raise ConfigurationError(
                        f"{path} belongs to another user (uid {status.st_uid}); "
                        f"if you trust its content, run: chown {user} {path}"
                    )
                if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and status.st_gid not in groups):
                    raise ConfigurationError(f"{path} can be written by other users; run: chmod go-w {path}")


def warn(
    paths: Iterable[Path],
    remedy: str = "run chmod 0600 on it; with systemd, LoadCredential= lets the service read it",
) -> None:
    """Log a warning for each file with secrets that is world-readable; groups may read them."""
    for path in dict.fromkeys(paths):
        with contextlib.suppress(OSError):
            if os.name == "posix" and path.stat().st_mode & stat.S_IROTH:
                facts = {"path": path, "remedy": remedy}
                log.warning("file with secrets is readable by all users", extra=facts)
