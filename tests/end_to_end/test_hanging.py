"""The running program against an IMDS whose answers never end, or only seem not to."""

import contextlib
import json
import queue
import signal
import socket
from pathlib import Path

import pytest

from tests.builders import body, raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.http_server import Connection, Request, answer, serving

NAME = "WestNO_0"
SETTINGS = {
    "imds": {"timeout": "1s"},
    "instance": {"name": NAME},
    "approval": {"mode": "on", "rules": [{"name": "all", "match": {}, "action": "approve"}]},
}
IMPATIENT = "tests.end_to_end.impatient"
DOCUMENT = answer(body(raw_event(Resources=[NAME], NotBefore="")))


def drip_a_head(connection: Connection) -> None:
    """Send a byte every half second of a head that never ends."""
    connection.drip(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000, pause=0.5)


def settings(folder: Path) -> tuple[str, str]:
    path = folder / "exporter.yml"
    path.write_text(json.dumps(SETTINGS))
    return "--config.file", str(path)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_answer_that_never_ends(tmp_path: Path, method: str) -> None:
    """It is given up at the timeout, whichever thread waits for it, and tried again."""
    hanging = queue.SimpleQueue[None]()

    def respond(connection: Connection, request: Request) -> None:
        events = request.path.startswith("/metadata/scheduledevents")
        if request.method == method and events and len(server.requests) > 1:
            hanging.put(None)
            drip_a_head(connection)
        else:
            connection.send(DOCUMENT)

    with (
        serving(respond) as server,
        exporter(server.url, tmp_path / "state", free_port(), *settings(tmp_path)) as process,
    ):
        for _ in range(2):
            hanging.get(timeout=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_poll_that_hangs(tmp_path: Path) -> None:
    """Where no deadline helps, the process ends with status 1 for its supervisor, with a logged reason."""
    log = tmp_path / "log"
    state = tmp_path / "state"
    # Its main thread looks after the poll twice in that time.
    environ, flags = {"WATCHDOG_USEC": "1000000"}, settings(tmp_path)
    with exporter(
        "http://hangs.invalid", state, free_port(), *flags, environ=environ, log=log, module=IMPATIENT
    ) as process:
        assert process.wait(60) == 1
    (line,) = (line for line in log.read_text().splitlines() if "level=error" in line)
    assert "exiting, so that a supervisor can restart the exporter" in line
    assert "the poll has not ended within 1 s" in line
    assert "Traceback" not in log.read_text()


def test_a_stop_waits_for_nobody(tmp_path: Path) -> None:
    """It ends soon, and with status 0, while connections idle and IMDS keeps it waiting."""

    def silent(connection: Connection, _request: Request) -> None:
        connection.stopping.wait()

    port = free_port()
    with (
        contextlib.ExitStack() as held,
        serving(silent) as imds,
        exporter(imds.url, tmp_path / "state", port) as process,
    ):
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/healthy"))
        eventually(lambda: imds.requests)
        for _ in range(50):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
