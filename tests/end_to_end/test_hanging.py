"""The running program against an IMDS whose answers never end, or only seem not to."""

import contextlib
import signal
import socket
from pathlib import Path

from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.http_server import Connection, Request, serving

IMPATIENT = "tests.end_to_end.impatient"


def test_a_poll_that_hangs(tmp_path: Path) -> None:
    """Where no deadline helps, the process ends with status 1 for its supervisor, with a logged reason."""
    log, state, file = (tmp_path / name for name in ("log", "state", "exporter.yml"))
    file.write_text("imds: {timeout: 1s}\ninstance: {name: WestNO_0}\n")
    # Its main thread looks after the poll twice in that time.
    environ, flags = {"WATCHDOG_USEC": "1000000"}, ("--config.file", str(file))
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
