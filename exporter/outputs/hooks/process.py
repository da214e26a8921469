"""Starting and ending a command, with its output in one pipe, on each system.

On POSIX it gets its own session and process group. On Windows it gets a job object, which contains all
processes that it starts: https://learn.microsoft.com/windows/win32/procthread/job-objects.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_CHUNK_BYTES = 65536


def _popen(argv: Sequence[str], stdin: IO[bytes], **more: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603  # the configuration names it, and no shell reads it
        argv, bufsize=0, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more
    )


def _output(popen: "subprocess.Popen[bytes]") -> IO[bytes]:
    if popen.stdout is None:
        raise OSError("no pipe for the output")
    return popen.stdout


if sys.platform == "win32":
    import _winapi
    import ctypes
    import msvcrt
    import time

    # Windows cannot wait for a pipe.
    _LOOK_EVERY_SECONDS = 0.02
    _KILLED = 1

    class Process:
        """A command that was started in its own job object, with its output in one pipe."""

        def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
            self._popen = popen
            self._output = _output(popen)
            self._kernel = _kernel()
            # Processes that the command starts before it is in the job stay outside; that is unlikely.
            self._job = self._kernel.CreateJobObjectW(None, None)
            handle = int(popen._handle)  # type: ignore[attr-defined]  # noqa: SLF001  # the only way to it
            self._has_job = bool(self._job and self._kernel.AssignProcessToJobObject(self._job, handle))

        def read(self, seconds: float) -> bytes | None:
            handle = msvcrt.get_osfhandle(self._output.fileno())
            deadline = time.monotonic() + seconds
            try:
                while not _winapi.PeekNamedPipe(handle, 0)[0]:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return None
                    time.sleep(min(left, _LOOK_EVERY_SECONDS))
                return os.read(self._output.fileno(), _CHUNK_BYTES)
            except BrokenPipeError:
                return b""

        def status(self) -> int | None:
            return self._popen.poll()

        def alive(self) -> bool:
            """Return whether the command itself still runs; the rest of the job gets no grace period."""
            return self.status() is None

        def ask_to_end(self) -> None:
            """Send Ctrl-Break, which reaches console programs if this process has a console."""
            with contextlib.suppress(OSError):
                os.kill(self._popen.pid, signal.CTRL_BREAK_EVENT)

        def kill(self) -> None:
            if not (self._has_job and self._kernel.TerminateJobObject(self._job, _KILLED)):
                with contextlib.suppress(OSError):
                    self._popen.kill()

        def close(self) -> None:
            """Close the output and the handle of the job, whose processes continue."""
            self._output.close()
            if self._job:
                self._kernel.CloseHandle(self._job)
                self._job = None

    def start(
        argv: Sequence[str], stdin: bytes, environment: Mapping[str, str], inherited: Mapping[str, str]
    ) -> Process:
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            flags = subprocess.CREATE_NEW_PROCESS_GROUP
            popen = _popen(argv, file, env={**inherited, **environment}, creationflags=flags)
        return Process(popen)

    def _kernel() -> ctypes.WinDLL:
        """Return kernel32 with handles as wide as pointers; the default of ctypes is 32 bits."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        handle = ctypes.c_void_p
        kernel.CreateJobObjectW.restype = handle
        kernel.CreateJobObjectW.argtypes = (ctypes.c_void_p, ctypes.c_wchar_p)
        kernel.AssignProcessToJobObject.argtypes = (handle, handle)
        kernel.TerminateJobObject.argtypes = (handle, ctypes.c_uint)
        kernel.CloseHandle.argtypes = (handle,)
        return kernel

else:
    import selectors
    import threading

    _PROC = Path("/proc")
    _ENDED = ("Z", "X")

    class Process:
        """A command that was started in its own process group, with its output in one pipe."""

        def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
            self._popen = popen
            self._output = _output(popen)
            self._selector = selectors.PollSelector()
            self._selector.register(self._output, selectors.EVENT_READ)

        def read(self, seconds: float) -> bytes | None:
            """Return output, waiting at most ``seconds``; b"" at its end, None if none came."""
            if not self._selector.select(seconds):
                return None
            return os.read(self._output.fileno(), _CHUNK_BYTES)

        def status(self) -> int | None:
            """Return the exit status, or minus the number of the signal that ended it; None while it runs.

            Processes that it started may continue after that.
            """
            return self._popen.poll()

        def alive(self) -> bool:
            """Return whether the command or another process of its group still runs."""
            if self.status() is None:
                return True
            try:
                os.killpg(self._popen.pid, 0)
            except ProcessLookupError:
                return False
            except PermissionError:
                return True
            # The group has members, but a zombie that its parent has not reaped yet has ended.
            return any(state not in _ENDED for state in _states(self._popen.pid))

        def ask_to_end(self) -> None:
            """Send SIGTERM to the whole group, and continue stopped processes, so that they can react."""
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)

        def kill(self) -> None:
            self._signal(signal.SIGKILL)

        def close(self) -> None:
            """Close the output; processes that still write to it get an error."""
            self._output.close()
            # A command that could not be killed must not remain a zombie when it ends.
            if self.status() is None:
                threading.Thread(target=self._popen.wait, name="reaper", daemon=True).start()

        def _signal(self, number: signal.Signals) -> None:
            # While the group has members, no other group can have its number.
            if self.alive():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._popen.pid, number)

    def start(
        argv: Sequence[str], stdin: bytes, environment: Mapping[str, str], inherited: Mapping[str, str]
    ) -> Process:
        """Start a command with ``stdin`` as its standard input; ``environment`` overrides ``inherited``.

        A NUL in the command or in a variable is a ValueError, any other failure an OSError.
        """
        # As bytes: a hook gets UTF-8 in every locale.
        variables = {name.encode(): value.encode() for name, value in environment.items()}
        own = {os.fsencode(name): os.fsencode(value) for name, value in inherited.items()}
        with _as_file(stdin) as file:
            popen = _popen(argv, file, env={**own, **variables}, start_new_session=True)
        leave_oom_protection(popen.pid)
        return Process(popen)

    def leave_oom_protection(pid: int, proc: Path = _PROC) -> None:
        """Reset a process's OOM score if the unit (OOMScoreAdjust) has lowered the exporter's."""
        with contextlib.suppress(OSError, ValueError):
            if int(proc.joinpath("self", "oom_score_adj").read_text()) < 0:
                proc.joinpath(str(pid), "oom_score_adj").write_text("0")

    def _states(group: int) -> list[str]:
        """Return the states of a group's processes, see proc(5)."""
        states = []
        for folder in _PROC.iterdir():
            # Processes may end at any moment.
            with contextlib.suppress(OSError, ValueError):
                if folder.name.isdigit():
                    fields = folder.joinpath("stat").read_bytes().rpartition(b")")[2].decode().split()
                    state, _, its_group, *_ = fields
                    if int(its_group) == group:
                        states.append(state)
        return states

    def _as_file(content: bytes) -> IO[bytes]:
        """Return a file in memory: a pipe would need a writer, which fails if the command reads nothing."""
        try:
            file: IO[bytes] = os.fdopen(os.memfd_create("event"), "w+b")
        except OSError:  # forbidden, as by vm.memfd_noexec
            file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
        file.write(content)
        file.seek(0)
        return file
