"""Running a command: its time limit, its output as lines, its result or why it could not be started.

When a command ends by itself, processes that it started continue: daemons, and processes that keep its output
open, which is no longer read. At the time limit and at a stop its whole process group is ended; processes
that have left the group (``setsid``) continue then, too.
"""

import codecs
import contextlib
import errno
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from exporter import errors
from exporter.clock import Clock
from exporter.model.jobs import HookOutcome
from exporter.outputs.hooks.process import Process, start
from exporter.systemd import ALIVE_SECONDS
from exporter.timefmt import format_duration

GRACE_SECONDS = 5.0  # between the request to end and the kill
# A killed process ends immediately unless it is blocked in the kernel, as on a dead network disk.
KILLED_SECONDS = 2.0
LINGER_SECONDS = 1.0  # for output of processes that a command left running
# A service manager signals all processes of a service at once: its SIGTERM may have ended a command before
# the exporter has noticed its own.
_TOLD_LATER_SECONDS = ALIVE_SECONDS + 1.0
_BY_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)
_TICK_SECONDS = 0.05  # the longest delay in noticing an end, a stop or the time limit
_SHORTEST_TICK_SECONDS = 0.001
STOPPED = "ended early: the exporter is stopping"

MOST_LINE_BYTES = 4096
MOST_LINES = 1000
MOST_BYTES = 256 * 1024
# What a message about a failure shows.
END_BYTES = 500
END_LINES = 5
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # colours and the like (ECMA-48, 5.4)

_SHEBANG_BYTES = 256


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended."""

    outcome: HookOutcome
    status: int | None  # its exit status, minus the number of the signal that ended it, or None
    seconds: float
    reason: str  # describes the outcome
    stopped: bool = False  # whether it was ended early, or not begun, because the exporter stops
    output: str = ""  # the end of its output, on one line


class Command(msgspec.Struct, frozen=True):
    """A command; ``inherited`` are variables of the exporter, ``environment`` those of the event."""

    argv: tuple[str, ...]
    stdin: bytes
    environment: Mapping[str, str]
    timeout: float
    inherited: Mapping[str, str]


def run(
    command: Command, *, output: Callable[[str], None], stop: threading.Event, clock: Clock
) -> CommandResult:
    """Run a command to its end, or to its time limit, or until ``stop`` is set; any number at once.

    ``output`` is called with each line of standard output and standard error, on this thread; its exceptions
    are raised here after the command has been killed. A command that cannot be started has failed. After a
    stop this returns within `GRACE_SECONDS` + `KILLED_SECONDS` + `LINGER_SECONDS`.
    """
    begun = clock.monotonic()
    if stop.is_set():
        return CommandResult(
            HookOutcome.FAILED, None, 0.0, "not begun: the exporter is stopping", stopped=True
        )
    try:
        process = start(command.argv, command.stdin, command.environment, command.inherited)
    except (OSError, ValueError) as error:
        reason = f"cannot be started: {why_not_started(command.argv, error)}"
        return CommandResult(HookOutcome.FAILED, None, clock.monotonic() - begun, reason)
    lines = Lines(output)
    supervisor = _Supervisor(process, lines, clock)
    try:
        return replace(supervisor.result(command, stop, begun), output=lines.end())
    except BaseException:
        supervisor.end_at_once()
        raise
    finally:
        process.close()


class _Supervisor:
    def __init__(self, process: Process, lines: "Lines", clock: Clock) -> None:
        self._process = process
        self._lines = lines
        self._clock = clock
        self._listening = True
        self._tick = _SHORTEST_TICK_SECONDS

    def result(self, command: Command, stop: threading.Event, begun: float) -> CommandResult:
        deadline = begun + command.timeout
        while (status := self._process.status()) is None:
            late = self._clock.monotonic() >= deadline
            if late or stop.is_set():
                how = self._end()
                self._linger()
                why = f"did not end within {format_duration(command.timeout)}" if late else STOPPED
                outcome = HookOutcome.TIMED_OUT if late else HookOutcome.FAILED
                seconds = self._clock.monotonic() - begun
                return CommandResult(outcome, self._process.status(), seconds, why + how, not late)
            self._listen()
        seconds = self._clock.monotonic() - begun
        self._linger()
        if status == 0:
            return CommandResult(HookOutcome.SUCCEEDED, status, seconds, status_in_words(status))
        stopped = stop.wait(_TOLD_LATER_SECONDS if status in _BY_SIGTERM else 0)
        reason = STOPPED if stopped else status_in_words(status)
        return CommandResult(HookOutcome.FAILED, status, seconds, reason, stopped)

    def end_at_once(self) -> None:
        """Kill the whole group, and read no more output."""
        self._listening = False
        self._process.kill()
        self._ends_within(KILLED_SECONDS)

    def _end(self) -> str:
        """End the whole group; return how, as a part of the reason, if one signal was not enough."""
        self._process.ask_to_end()
        if self._ends_within(GRACE_SECONDS):
            # On Windows only the command itself is known to have ended, not its child processes.
            self._process.kill()
            return ""
        self._process.kill()
        asked = "Ctrl-Break" if sys.platform == "win32" else "SIGTERM"
        if self._ends_within(KILLED_SECONDS):
            return f"; killed, as {asked} had not ended it after {format_duration(GRACE_SECONDS)}"
        return "; it could not even be killed"

    def _ends_within(self, seconds: float) -> bool:
        until = self._clock.monotonic() + seconds
        while self._process.alive():
            if self._clock.monotonic() >= until:
                return False
            self._listen()
        return True

    def _linger(self) -> None:
        """Read the rest of the output, at least once, as everything the command itself wrote is available."""
        until = self._clock.monotonic() + LINGER_SECONDS
        self._listen()
        while self._listening and self._clock.monotonic() < until:
            self._listen()
        self._lines.close()
        if self._listening:
            self._lines.say("a process that it started keeps the output open; the rest is not read")

    def _listen(self) -> None:
        """Read the available output, or wait for some for a short time."""
        if not self._listening:
            time.sleep(self._tick)
            self._tick = min(2 * self._tick, _TICK_SECONDS)
            return
        data = self._process.read(_TICK_SECONDS)
        if data:
            self._lines.feed(data)
        elif data is not None:
            self._listening = False


def status_in_words(status: int) -> str:
    """Return how a process ended: ``exit status 3``, ``killed by SIGSEGV``."""
    if status >= 0:
        return f"exit status {status}"
    name = f"signal {-status}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-status).name
    return f"killed by {name}"


class Lines:
    """Splits bytes into lines of text and passes each to ``output`` as soon as it is complete.

    A line over `MOST_LINE_BYTES` is cut. After `MOST_LINES` lines or `MOST_BYTES` bytes, the rest is replaced
    by one line that notes it. Invalid UTF-8 is replaced by U+FFFD.
    """

    def __init__(self, output: Callable[[str], None]) -> None:
        self._output = output
        self._line = bytearray()  # longer than what is shown if the line is too long
        self._lines_left = MOST_LINES
        self._bytes_left = MOST_BYTES
        self._full = False
        self._end = b""  # one byte longer than what is shown if more came before it

    def feed(self, data: bytes) -> None:
        self._end = (self._end + data)[-END_BYTES - 1 :]
        if self._full:
            return
        for number, part in enumerate(data.split(b"\n")):
            if number:
                self._end_line()
            if len(self._line) <= MOST_LINE_BYTES:
                self._line += part

    def close(self) -> None:
        """Pass on a last line without a line feed."""
        if self._line:
            self._end_line()

    def end(self) -> str:
        """Return the last lines that are not blank, separated by slashes, also those that the log omits."""
        end = self._end.rstrip()
        if len(self._end) > END_BYTES:
            end = end.partition(b"\n")[2] or end[1:]
        text = _ESCAPE.sub("", end.decode(errors="replace"))
        lines = ["".join(filter(str.isprintable, " ".join(line.split()))) for line in text.splitlines()]
        return " / ".join([line for line in lines if line][-END_LINES:])

    def say(self, text: str) -> None:
        self._output(f"({text})")

    def _end_line(self) -> None:
        line, too_long = bytes(self._line[:MOST_LINE_BYTES]), len(self._line) > MOST_LINE_BYTES
        self._line.clear()
        if self._full:
            return
        self._bytes_left -= len(line)
        if self._lines_left == 0 or self._bytes_left < 0:
            self._full = True
            self.say("the rest of the output is left out")
            return
        self._lines_left -= 1
        # A character that the cut splits is left out, not replaced.
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(line, final=not too_long)
        self._output(text + " (line cut)" if too_long else text.removesuffix("\r"))


def why_not_started(argv: Sequence[str], error: Exception) -> str:
    """Return why ``argv`` could not be started, by inspecting the file, which may have changed since."""
    if isinstance(error, UnicodeError):
        return "its command line has letters that this system cannot write"
    if not isinstance(error, OSError):
        return f"its command line or variables cannot be passed on: {error}"
    if error.errno == errno.E2BIG:
        return "its arguments and variables are too long together"
    program = argv[0]
    if {"/", os.sep} & set(program):
        path, missing = program if os.path.lexists(program) else None, "no such file"
    else:
        # Also if it cannot be executed.
        path, missing = shutil.which(program, mode=os.F_OK), "no such program in PATH"
    if path:
        return _why_not_run(Path(path), error)
    # What is not a file may be a whole command line with a secret in it.
    return f"{missing}; correct its command" if isinstance(error, FileNotFoundError) else errors.cause(error)


def _why_not_run(file: Path, error: OSError) -> str:
    with contextlib.suppress(OSError):
        if file.is_dir():
            return f"{file} is a directory"
    if isinstance(error, FileNotFoundError):
        interpreter = _interpreter(file)
        return f"{file} needs {interpreter}, which does not exist" if interpreter else f"no such file: {file}"
    if isinstance(error, PermissionError) and not os.access(file, os.X_OK):
        return f"{file} is not executable by this user"
    if error.errno == errno.ENOEXEC:
        return f"{file} is not a program for this system, nor a script with a first line like #!/bin/sh"
    return f"{file}: {error.strerror or error}"


def _interpreter(script: Path) -> str:
    """Return the interpreter from the first line of a script, or ""."""
    with contextlib.suppress(OSError), script.open("rb") as file:
        first = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
        if first.startswith(b"#!"):
            name = first[2:].replace(b"\t", b" ").strip(b" ").partition(b" ")[0].decode(errors="replace")
            # With the line ends of Windows, the carriage return is a part of the name.
            return name.replace("\r", "\\r")
    return ""
