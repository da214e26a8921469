"""Why the system would not start a command, in words for whoever wrote its line."""

import contextlib
import errno
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

_SHEBANG_BYTES = 256


def why_not_started(argv: Sequence[str], error: Exception) -> str:
    """Return why ``argv`` was refused with this error; looks at the file, which may have changed since."""
    if not argv or not argv[0]:
        return "the command is empty"
    if isinstance(error, UnicodeError):
        return "its command line has letters that this system cannot write"
    if not isinstance(error, OSError):
        return f"its command line or variables cannot be passed on: {error}"
    if error.errno == errno.E2BIG:
        return "its arguments and variables are too long together"
    found = _found(argv[0])
    return _of_nothing(argv[0], error) if found is None else _of_file(found, error)


def _of_nothing(program: str, error: OSError) -> str:
    if not isinstance(error, FileNotFoundError):
        return _system_words(error, program)
    return f"no such file: {program}" if _has_folder(program) else f"no such program in PATH: {program}"


def _of_file(found: Path, error: OSError) -> str:
    with contextlib.suppress(OSError):
        if found.is_dir():
            return f"{found} is a directory"
    if isinstance(error, FileNotFoundError):
        interpreter = _interpreter(found)
        return (
            f"{found} needs {interpreter}, which does not exist" if interpreter else f"no such file: {found}"
        )
    if isinstance(error, PermissionError) and not os.access(found, os.X_OK):
        return f"{found} is not executable by this user"
    if error.errno == errno.ENOEXEC:
        return f"{found} is not a program for this system, nor a script with a first line like #!/bin/sh"
    return _system_words(error, str(found))


def _found(program: str) -> Path | None:
    """Return the file that a command names; for a bare name, one in PATH even if it cannot be run."""
    if _has_folder(program):
        return Path(program) if os.path.lexists(program) else None
    path = shutil.which(program, mode=os.F_OK)
    return Path(path) if path else None


def _has_folder(program: str) -> bool:
    return os.sep in program or (sys.platform == "win32" and "/" in program)


def _interpreter(script: Path) -> str:
    """Return what the first line of a script names, or "" where there is none."""
    with contextlib.suppress(OSError), script.open("rb") as file:
        first = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
        if first.startswith(b"#!"):
            name = re.split(rb"[ \t]", first[2:].strip(b" \t"), maxsplit=1)[0].decode(errors="replace")
            # Line ends of Windows make it the name of another file.
            return name.replace("\r", "\\r")
    return ""


def _system_words(error: OSError, program: str) -> str:
    return f"{program}: {error.strerror or error}"
