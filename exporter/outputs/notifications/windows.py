"""The sender process on Windows, where processes cannot be forked: one for each request, ended in time."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from exporter.outputs.notifications import protocol


class Children:
    """The exporter's side: it has requests done by processes; thread-safe."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._running: set[subprocess.Popen[bytes]] = set()

    def exchange(self, lane: str, request: bytes, hear: Callable[[bytes], bool], seconds: float) -> None:
        """Have a process do a request within ``seconds``; ``hear`` takes each line that it says.

        Raises:
            OSError: the process cannot be started.
        """
        del lane
        process = subprocess.Popen(  # noqa: S603  # this program itself
            protocol.command(),
            env=self._environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._running.add(process)
        with process:
            try:
                said, _ = process.communicate(request, seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
        self._running.discard(process)
        for line in said.splitlines():
            hear(line)

    def prepare(self) -> None:
        """Do nothing: a process is of no use before there is a request."""

    def stop(self) -> None:
        """End all processes."""
        for process in tuple(self._running):
            process.kill()


def main() -> None:
    """Do the request on standard input."""
    from exporter.outputs.notifications import child

    # Plugins may print; the answers go through a descriptor of their own.
    output = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with contextlib.suppress(OSError):
        child.Responder(output.write).do(protocol.request_of(sys.stdin.buffer.readline()))
    # What is in progress does not keep it.
    os._exit(0)
