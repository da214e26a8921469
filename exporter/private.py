"""Files and directories that are nobody's business but the exporter's: made so, whatever the umask."""

import os
import stat
import sys
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
    """Open a file to read and write, and give its descriptor; a new one is made with mode 0600.

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
