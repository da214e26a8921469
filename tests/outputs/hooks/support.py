"""Running commands as hooks, and finding what they leave behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from exporter.clock import SystemClock
from exporter.outputs.hooks.command import Command, CommandResult, run
from tests.end_to_end.program import children, eventually

MARK = "TEST_MARK"


class Ran:
    """The result of a command; ``mark`` is in the environment of all its processes."""

    def __init__(self, result: CommandResult, lines: list[str], mark: str) -> None:
        self.result = result
        self.lines = lines
        self.mark = mark

    @property
    def left(self) -> list[int]:
        return marked(self.mark)


class ImpatientClock(SystemClock):
    """A clock that jumps by an hour as soon as something is so, for time limits that no test waits for."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        self._condition = condition
        self._ahead = 0.0

    def monotonic(self) -> float:
        """Return seconds that jump once."""
        if not self._ahead and self._condition():
            self._ahead = 3600.0
        return super().monotonic() + self._ahead


def ran(
    *argv: str,
    stdin: bytes = b"{}",
    environment: Mapping[str, str] | None = None,
    inherited: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    stop: threading.Event | None = None,
    output: Callable[[str], None] = lambda _: None,
    late: Callable[[list[str], str], bool] = lambda _lines, _mark: False,
) -> Ran:
    """Run a command to its end; ``late`` tells of its lines and mark whether its time is to be over."""
    lines: list[str] = []
    mark = f"{os.getpid()}-{uuid.uuid4().hex}"

    def take(line: str) -> None:
        lines.append(line)
        output(line)

    command = Command(argv, stdin, {MARK: mark, **(environment or {})}, timeout, inherited or os.environ)
    clock = ImpatientClock(lambda: late(lines, mark))
    result = run(command, output=take, stop=stop or threading.Event(), clock=clock)
    return Ran(result, lines, mark)


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"import os, signal, sys, time\n{code}")


def shell(code: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", code)


def printed(code: str, variables: Mapping[str, str] | None = None) -> str:
    """Run a program in a fresh interpreter, with warnings as errors; return what it prints."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.check_output(command, text=True, cwd=root, env={**os.environ, **(variables or {})})


def marked(mark: str) -> list[int]:
    """Return the pids of the processes whose mark begins like that, other than zombies."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and f"{MARK}={mark}".encode() in folder.joinpath("environ").read_bytes():
                found.append(int(folder.name))
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descriptors() -> set[str]:
    """Return what this process has open, each as its number and what it is."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(f"{link.name} {link.readlink()}")
    return {line for line in found if "/proc/" not in line}


@contextlib.contextmanager
def nothing_leaks() -> Iterator[None]:
    """Make sure that the block leaves neither descriptors nor children, zombies included, nor threads.

    What was there before may end meanwhile: tests of other parts ran in this process.
    """
    before = _held()
    yield
    eventually(lambda: _held() <= before)


def _held() -> set[object]:
    # Each bench has a thread that ends with the sender process, which is this process here.
    threads = (thread for thread in threading.enumerate() if thread.name != "limits")
    return {*descriptors(), *children(os.getpid()), *threads}
