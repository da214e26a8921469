"""The running program against an IMDS whose answers never end, or only seem not to."""

import json
import signal
import threading
from pathlib import Path

import pytest

from tests.builders import body, raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.http_server import Connection, Request, answer, serving

NAME = "WestNO_0"
# Limits of `tests.end_to_end.impatient` with this timeout: 4 s for a request, 8 s for a poll.
SETTINGS = {
    "imds": {"timeout": "1s"},
    "instance": {"name": NAME},
    "approval": {"mode": "on", "rules": [{"name": "all", "match": {}, "action": "approve"}]},
}
IMPATIENT = "tests.end_to_end.impatient"
DOCUMENT = answer(body(raw_event(Resources=[NAME])))


def drip_a_head(connection: Connection) -> None:
    """Send a byte every half second of a head that never ends."""
    connection.drip(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000, pause=0.5)


def settings(folder: Path) -> tuple[str, str]:
    """Write the configuration; return the flags that name it."""
    path = folder / "exporter.yml"
    path.write_text(json.dumps(SETTINGS))
    return "--config.file", str(path)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_that_hangs(tmp_path: Path, method: str) -> None:
    """The process ends with status 1 for its supervisor, with a logged reason, whichever thread hangs."""
    log = tmp_path / "log"

    def respond(connection: Connection, request: Request) -> None:
        events = request.path.startswith("/metadata/scheduledevents")
        if request.method == method and events and len(server.requests) > 1:
            drip_a_head(connection)
        else:
            connection.send(DOCUMENT)

    with serving(respond) as server:
        flags = settings(tmp_path)
        with exporter(
            server.url, tmp_path / "state", free_port(), *flags, log=log, module=IMPATIENT
        ) as process:
            assert process.wait(60) == 1
    url = f"{server.url}/metadata/scheduledevents"
    (line,) = (line for line in log.read_text().splitlines() if "level=error" in line)
    assert "exiting, so that a supervisor can restart the exporter" in line
    assert f"{method} {url} has not ended within 4 s" in line
    assert "Traceback" not in log.read_text()


def test_a_slow_imds(tmp_path: Path) -> None:
    """Answers that drip, and are complete within the timeout, end no process, however many there are."""

    def respond(connection: Connection, _: Request) -> None:
        data = answer(body())
        for begin in range(0, len(data), 20):
            connection.send(data[begin : begin + 20])
            connection.stopping.wait(0.05)

    port = free_port()
    with serving(respond) as server:
        flags = (*settings(tmp_path), "--poll.interval", "200ms")
        with exporter(server.url, tmp_path / "state", port, *flags, module=IMPATIENT) as process:
            eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
            # Longer, all together, than any limit.
            eventually(lambda: server.requests[-1].at - server.requests[0].at > 10)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_a_stop_during_an_approval_that_hangs(tmp_path: Path) -> None:
    """SIGTERM ends the process within 10 s, with status 0, although the approver's request never ends."""
    approving = threading.Event()

    def respond(connection: Connection, request: Request) -> None:
        if request.method == "GET":
            connection.send(DOCUMENT)
        else:
            approving.set()
            drip_a_head(connection)

    with (
        serving(respond) as server,
        exporter(server.url, tmp_path / "state", free_port(), *settings(tmp_path)) as process,
    ):
        assert approving.wait(30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
