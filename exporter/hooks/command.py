"""One command, run to its end: within its time, with its output as lines, and nothing of it left behind.

What a command leaves running when it ends by itself lives on: a daemon that it started on purpose, but also
what merely holds its output, to which nobody listens any more. At the time limit and at a stop its whole
process group ends; whoever has left the group (``setsid``) lives on then too.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from exporter.clock import Clock
from exporter.hooks.jobs import Command
from exporter.hooks.lines import Lines
from exporter.hooks.process import Running
from exporter.hooks.refusal import why_not_started
from exporter.model.jobs import CommandResult, HookOutcome
from exporter.timefmt import format_duration

if sys.platform == "win32":
    from exporter.hooks import windows_job as system
else:
    from exporter.hooks import posix as system

# From being asked to end to being killed.
GRACE_SECONDS = 5.0
# What was killed is gone at once, except for what the kernel itself waits for, as on a dead network disk.
KILLED_SECONDS = 2.0
# For the output of what a command left running.
LINGER_SECONDS = 1.0
# A service manager ends a whole service at once: its SIGTERM may have ended a command before the exporter,
# whose main thread looks for signals every second, has noticed its own.
_TOLD_LATER_SECONDS = 1.5
_BY_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)
# How late an end, a stop or a time limit is noticed at most.
_TICK_SECONDS = 0.05
_SHORTEST_TICK_SECONDS = 0.001
STOPPED = "ended early: the exporter is stopping"


def run(
    command: Command, *, output: Callable[[str], None], stop: threading.Event, clock: Clock
) -> CommandResult:
    """Run a command to its end, or to its time limit, or until ``stop`` is set; any number at once.

    ``output`` gets each line of standard output and standard error, on this thread. What it raises is raised
    here, once the command is dead. Nothing else is raised: what cannot be started has failed. After a stop
    this returns within `GRACE_SECONDS` + `KILLED_SECONDS` + `LINGER_SECONDS`.
    """
    begun = clock.monotonic()
    if stop.is_set():
        return CommandResult(
            HookOutcome.FAILED, None, 0.0, "not begun: the exporter is stopping", stopped=True
        )
    try:
        process = _start(command)
    except (OSError, ValueError) as error:
        reason = f"cannot be started: {why_not_started(command.argv, error)}"
        return CommandResult(HookOutcome.FAILED, None, clock.monotonic() - begun, reason)
    care = _Care(process, Lines(output), clock)
    try:
        return care.result(command, stop, begun)
    except BaseException:
        care.end_at_once()
        raise
    finally:
        process.close()


def _start(command: Command) -> Running:
    if not command.argv:
        raise ValueError("no program is named")
    return system.start(command.argv, command.stdin, command.environment, command.inherited)


class _Care:
    """Looks after one process."""

    def __init__(self, process: Running, lines: Lines, clock: Clock) -> None:
        self._process = process
        self._lines = lines
        self._clock = clock
        self._listening = True
        self._tick = _SHORTEST_TICK_SECONDS

    def result(self, command: Command, stop: threading.Event, begun: float) -> CommandResult:
        """Wait for the end, or bring it about."""
        deadline = begun + command.timeout
        while not self._process.exited():
            late = self._clock.monotonic() >= deadline
            if late or stop.is_set():
                how = self._end()
                self._linger()
                why = f"did not end within {format_duration(command.timeout)}" if late else STOPPED
                outcome = HookOutcome.TIMED_OUT if late else HookOutcome.FAILED
                return CommandResult(outcome, self._process.status(), self._since(begun), why + how, not late)
            self._listen(deadline)
        seconds = self._since(begun)
        self._linger()
        status = self._process.status()
        if status == 0:
            return CommandResult(HookOutcome.SUCCEEDED, status, seconds, status_in_words(status))
        stopped = stop.wait(_TOLD_LATER_SECONDS if status in _BY_SIGTERM else 0)
        reason = STOPPED if stopped else status_in_words(status)
        return CommandResult(HookOutcome.FAILED, status, seconds, reason, stopped)

    def end_at_once(self) -> None:
        """Kill the whole group, and listen no more."""
        self._listening = False
        self._process.kill()
        self._ends_within(KILLED_SECONDS)

    def _end(self) -> str:
        """End the whole group; tell what it took, as words to add."""
        self._process.ask_to_end()
        if self._ends_within(GRACE_SECONDS):
            # On Windows that tells of the command alone, not of what it started.
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
            self._listen(until)
        return True

    def _linger(self) -> None:
        """Hear what is left to hear; once more in any case, as all that the command itself wrote is there."""
        until = self._clock.monotonic() + LINGER_SECONDS
        self._listen(until)
        while self._listening and self._clock.monotonic() < until:
            self._listen(until)
        self._lines.close()
        if self._listening:
            self._lines.say("something that it started still holds its output; no more of that is read")

    def _listen(self, until: float) -> None:
        """Take in what is there, or wait for it a little."""
        left = max(0.0, min(until - self._clock.monotonic(), _TICK_SECONDS))
        if not self._listening:
            time.sleep(min(left, self._tick))
            self._tick = min(2 * self._tick, _TICK_SECONDS)
            return
        data = self._process.read(left)
        if data:
            self._lines.feed(data)
        elif data is not None:
            self._listening = False

    def _since(self, begun: float) -> float:
        return self._clock.monotonic() - begun


def status_in_words(status: int | None) -> str:
    """Return how a process ended: ``exit status 3``, ``killed by SIGSEGV``."""
    if status is None:
        return "its exit status was lost: the exporter was started with SIGCHLD ignored"
    if status >= 0:
        return f"exit status {status}"
    name = f"signal {-status}"
    with suppress(ValueError):
        name = signal.Signals(-status).name
    return f"killed by {name}"
