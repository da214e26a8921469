"""The running program's web server: TLS and passwords, readiness, and stopping while it is busy."""

import contextlib
import http.client
import signal
import socket
from pathlib import Path

import bcrypt
import pytest
import requests

from exporter.simulator import Simulator, SimulatorServer
from tests.builders import body
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.http_server import Connection, Request, answer, serving
from tests.web.certificates import Pki, write

IDLE_CONNECTIONS = 50
USER = ("alice", "correct horse")


def ask(port: int, method: str, path: str) -> tuple[int, bytes]:
    """Send a request; return status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path)
        answered = connection.getresponse()
        return answered.status, answered.read()
    finally:
        connection.close()


def test_tls_and_passwords(tmp_path: Path) -> None:
    """With a web configuration nothing is served without TLS and a password."""
    Pki.make(tmp_path)
    hashed = bcrypt.hashpw(USER[1].encode(), bcrypt.gensalt(4)).decode()
    users = f"basic_auth_users: {{{USER[0]}: '{hashed}'}}\n"
    file = write(tmp_path, f"tls_server_config: {{cert_file: cert.pem, key_file: key.pem}}\n{users}")
    port, authority = free_port(), str(tmp_path / "ca.pem")
    url = f"https://127.0.0.1:{port}/metrics"
    flags = ("--web.config.file", str(file))
    with SimulatorServer(Simulator()) as imds, exporter(imds.url, tmp_path / "state", port, *flags):
        eventually(lambda: requests.get(url, verify=authority, timeout=30).status_code == 401)
        right = requests.get(url, verify=authority, auth=USER, timeout=30)
        assert right.status_code == 200
        assert "azure_scheduled_events_up" in right.text
        wrong = requests.get(url, verify=authority, auth=(USER[0], "wrong"), timeout=30)
        assert wrong.status_code == 401
        assert "azure_scheduled_events" not in wrong.text
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(port, "GET", "/metrics")


def test_ready_from_the_first_document_on(tmp_path: Path) -> None:
    """It is alive at once, and ready when IMDS has given a valid document; then a failure changes nothing."""
    documents = [answer(status="500 Internal Server Error")]

    def azure(connection: Connection, _request: Request) -> None:
        connection.send(documents[0])

    port = free_port()
    flags = ("--instance.name", "WestNO_0", "--poll.interval", "200ms")
    with serving(azure) as imds, exporter(imds.url, tmp_path / "state", port, *flags):
        eventually(lambda: "azure_scheduled_events_up 0.0" in get(f"http://127.0.0.1:{port}/metrics"))
        assert ask(port, "GET", "/-/ready")[0] == 503
        assert ask(port, "GET", "/-/healthy")[0] == 200
        assert ask(port, "GET", "/-/in-service")[0] == 200
        documents[0] = answer(body())
        eventually(lambda: ask(port, "GET", "/-/ready")[0] == 200)
        documents[0] = answer(status="500 Internal Server Error")
        eventually(lambda: "azure_scheduled_events_up 0.0" in get(f"http://127.0.0.1:{port}/metrics"))
        assert ask(port, "GET", "/-/ready")[0] == 200


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
        for _ in range(IDLE_CONNECTIONS):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
