"""Starting and ending a command on Windows, in a job object that contains all processes it starts.

See https://learn.microsoft.com/windows/win32/procthread/job-objects.
"""

import _winapi
import contextlib
import ctypes
import msvcrt
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO

assert sys.platform == "win32"  # noqa: S101  # tells mypy what this module is for

# Windows cannot wait for a pipe.
_LOOK_EVERY_SECONDS = 0.02
_KILLED = 1
_CHUNK_BYTES = 65536


class Process:
    """A command that was started in a job object of its own, with its output in one pipe."""

    def __init__(self, popen: "subprocess.Popen[bytes]", output: IO[bytes]) -> None:
        self._popen = popen
        self._output = output
        self._kernel = _kernel()
        # A process that the command starts before it is in the job is not in the job; there is hardly time.
        self._job = self._kernel.CreateJobObjectW(None, None)
        handle = int(popen._handle)  # type: ignore[attr-defined]  # noqa: SLF001  # there is no other way to it
        self._has_job = bool(self._job and self._kernel.AssignProcessToJobObject(self._job, handle))

    def read(self, seconds: float) -> bytes | None:
        """Return output, waiting at most ``seconds``; b"" at its end, None if none came."""
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

    def exited(self) -> bool:
        """Return whether the command itself has ended; processes that it started may go on."""
        return self._popen.poll() is not None

    def alive(self) -> bool:
        """Return whether the command itself still runs: the rest of a job gets no extra time."""
        return not self.exited()

    def ask_to_end(self) -> None:
        """Send Ctrl-Break, which reaches console programs if this process has a console."""
        with contextlib.suppress(OSError):
            os.kill(self._popen.pid, signal.CTRL_BREAK_EVENT)

    def kill(self) -> None:
        """End all of the job."""
        if not (self._has_job and self._kernel.TerminateJobObject(self._job, _KILLED)):
            with contextlib.suppress(OSError):
                self._popen.kill()

    def status(self) -> int | None:
        """Return the exit status; None if it is not known."""
        return self._popen.poll()

    def close(self) -> None:
        """Close the output and the handle of the job, whose processes go on."""
        self._output.close()
        if self._job:
            self._kernel.CloseHandle(self._job)
            self._job = None


def start(
    argv: Sequence[str], stdin: bytes, environment: Mapping[str, str], inherited: Mapping[str, str]
) -> Process:
    """Start a command with ``stdin`` as its standard input; ``environment`` overrides ``inherited``.

    Raises:
        OSError: it cannot be started.
        ValueError: there is NUL in the command or in a variable.
    """
    with tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        popen = subprocess.Popen(  # noqa: S603  # the configuration names it, and no shell reads it
            argv,
            bufsize=0,
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**inherited, **environment},
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
        )
    if popen.stdout is None:
        raise OSError("no pipe for the output")
    return Process(popen, popen.stdout)


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
