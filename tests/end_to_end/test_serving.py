"""The running program's web server with a web configuration."""

from pathlib import Path

import bcrypt
import pytest
import requests

from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, exporter, free_port
from tests.web.certificates import Pki, write

USER = ("alice", "correct horse")


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
        with pytest.raises(requests.RequestException):
            requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30)
