"""Running commands as hooks, and finding what they leave behind."""

import contextlib
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from exporter.clock import SystemClock
from exporter.hooks.command import Command, CommandResult, run

MARK = "TEST_MARK"


class Ran:
    """What came of a command; ``mark`` is in the environment of all that it started."""

    def __init__(self, result: CommandResult, lines: list[str], mark: str) -> None:
        self.result = result
        self.lines = lines
        self.mark = mark

    @property
    def left(self) -> list[int]:
        """Give the pids of what still runs of it."""
        return marked(self.mark)


def ran(
    *argv: str,
    stdin: bytes = b"{}",
    environment: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    stop: threading.Event | None = None,
    output: Callable[[str], None] = lambda _: None,
) -> Ran:
    """Run a command to its end."""
    lines: list[str] = []
    mark = uuid.uuid4().hex

    def take(line: str) -> None:
        lines.append(line)
        output(line)

    command = Command(argv, stdin, {MARK: mark, **(environment or {})}, timeout)
    result = run(command, output=take, stop=stop or threading.Event(), clock=SystemClock())
    return Ran(result, lines, mark)


def python(code: str) -> tuple[str, ...]:
    """Give the command line of a Python program."""
    return (sys.executable, "-c", f"import os, signal, sys, time\n{code}")


def shell(code: str) -> tuple[str, ...]:
    """Give the command line of a shell script."""
    return ("/bin/sh", "-c", code)


def printed(code: str, variables: Mapping[str, str] | None = None) -> str:
    """Run a program in a fresh interpreter, with warnings as errors; give what it prints."""
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.check_output(command, text=True, cwd=root, env={**os.environ, **(variables or {})})


def marked(mark: str) -> list[int]:
    """Give the pids of the processes with that mark, other than zombies."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and f"{MARK}={mark}".encode() in folder.joinpath("environ").read_bytes():
                found.append(int(folder.name))
    return found


def children() -> list[str]:
    """Give the state letters of this process's children."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if folder.name.isdigit():
                state, parent, *_ = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(parent) == os.getpid():
                    found.append(state)
    return found


def descriptors() -> list[str]:
    """Give what this process has open, each as its number and what it is."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(f"{link.name} {link.readlink()}")
    return sorted(line for line in found if "/proc/" not in line)


@contextlib.contextmanager
def nothing_leaks() -> Iterator[None]:
    """Make sure that the block leaves neither descriptors nor children, zombies included, nor threads."""
    before = descriptors(), children(), threading.active_count()
    yield
    assert (descriptors(), children(), threading.active_count()) == before
