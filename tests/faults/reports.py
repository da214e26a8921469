"""Reports of the soak's hooks: which ran, for what, when, and how they ended."""

import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Iterator

import msgspec


class Run(msgspec.Struct):
    """One run of a hook for what happened ``at`` a time, as written in the API.

    ``ended`` is None until it says so, ``status`` its exit status; the other times are monotonic.
    """

    hook: str
    life: int
    id: str
    transition: str
    at: str
    attempt: int
    agrees: bool
    begun: float = 0.0
    ended: float | None = None
    status: int | None = None
    gone: float | None = None

    @property
    def what(self) -> tuple[str, str, str, str]:
        """What it runs for."""
        return self.hook, self.id, self.transition, self.at


class Reports:
    """All runs, in the order of their beginning."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.runs: list[Run] = []

    def idle(self) -> bool:
        """Return whether none runs."""
        return all(run.gone is not None for run in self.runs)


@contextlib.contextmanager
def reports() -> Iterator[Reports]:
    """Listen to the hooks, until the end of the block."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            """Take in one run."""
            line = self.rfile.readline()
            if not line.endswith(b"\n"):
                return
            run = Run(**json.loads(line), begun=time.monotonic())
            found.runs.append(run)
            with contextlib.suppress(OSError):
                end = self.rfile.readline()
                if end:
                    run.status, run.ended = int(end), time.monotonic()
            run.gone = time.monotonic()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        found = Reports(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
