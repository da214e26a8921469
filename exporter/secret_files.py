"""Files that hold secrets, and whom they are open to."""

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger(__name__)


def warn(paths: Iterable[Path]) -> None:
    """Log a warning for each of these files that everybody on the machine may read by its mode.

    Readers by group are no fault: that is how a service without privileges is handed a secret. On Windows,
    where modes say nothing, nothing is said.
    """
    for path in dict.fromkeys(paths):
        if open_to_all(path):
            log.warning(
                "everybody can read a file with secrets", extra={"path": path, "mend": f"chmod o= {path}"}
            )


def open_to_all(path: Path) -> bool:
    """Tell whether the mode of a file lets everybody read it; False where it cannot be told."""
    try:
        return os.name == "posix" and bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False
