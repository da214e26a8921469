"""The commands, one module each."""

import os
import sys
from pathlib import Path

from exporter.config import PROGRAM


def invoked() -> str:
    """Return the command that started this program, to type again: in a checkout it is not on the PATH."""
    if Path(sys.argv[0]).name != "__main__.py":
        return PROGRAM
    python = Path(sys.executable)
    here = Path.cwd()
    return f"{os.fspath(python.relative_to(here)) if python.is_relative_to(here) else python} -m exporter"
