"""Files and directories that are nobody's business but the exporter's: made so, whatever the umask."""

import logging
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

_READ_WRITE = os.O_RDWR | os.O_CREAT


def make_directory(path: Path) -> None:
    """Make a directory, and what is missing above it, with mode 0700; one that is there stays as it is.

    Raises:
        OSError: one cannot be made.
    """
    if path.exists():
        return
    make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    if sys.platform != "win32" and stat.S_IMODE(path.stat().st_mode) != 0o700:
        path.chmod(0o700)


def open_file(path: Path) -> int:
    """Open a file to read and write, and return its descriptor; a new one is made with mode 0600.

    Raises:
        OSError: it cannot be opened or made.
    """
    try:
        descriptor = os.open(path, _READ_WRITE | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, _READ_WRITE, 0o600)
    if sys.platform != "win32":
        # Of a umask like 0777 there would be a file that its owner can open never again.
        os.fchmod(descriptor, 0o600)
    return descriptor


log = logging.getLogger(__name__)


def warn(paths: Iterable[Path]) -> None:
    """Log a warning for each of these files that everybody on the machine may read by its mode.

    Readers by group are not a fault: that is how a service without privileges is handed a secret. On Windows,
    where modes say nothing, nothing is said.
    """
    for path in dict.fromkeys(paths):
        if open_to_all(path):
            log.warning(
                "everybody can read a file with secrets", extra={"path": path, "mend": f"chmod o= {path}"}
            )


def open_to_all(path: Path) -> bool:
    """Return whether the mode of a file lets everybody read it; False where it cannot be told."""
    try:
        return os.name == "posix" and bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False
