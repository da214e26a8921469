"""The sender process on Windows, which has no fork: a process for each request."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from exporter.outputs.notifications import protocol


class Children:
    """The exporter's side: passes each request to a process; thread-safe."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._running: set[subprocess.Popen[bytes]] = set()

    def exchange(self, lane: str, request: bytes, hear: Callable[[bytes], bool], seconds: float) -> None:
        """Pass a request to a process, which is ended after ``seconds``, and its answers to ``hear``.

        Raises:
            OSError: the process cannot be started.
        """
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
                answers, _ = process.communicate(request, seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                answers, _ = process.communicate()
        self._running.discard(process)
        for line in answers.splitlines():
            hear(line)

    def prepare(self) -> None:
        """Do nothing: a process is started with its request."""

    def stop(self) -> None:
        for process in tuple(self._running):
            process.kill()


def main() -> None:
    """Process the request on standard input."""
    from exporter.outputs.notifications import child

    # Plugins may print; the answers go through a descriptor of their own.
    output = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with contextlib.suppress(OSError):
        child.Child(output.write).process(protocol.request_of(sys.stdin.buffer.readline()))
    # Without waiting for threads in progress.
    os._exit(0)
