"""The running exporter as the web configuration says: TLS, client certificates and passwords."""

import base64
import contextlib
import http.client
import ssl
from pathlib import Path

import bcrypt
import pytest
import trustme

from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, exporter, free_port
from tests.web.certificates import Pki, write

STRICT = """
tls_server_config:
  cert_file: cert.pem
  key_file: key.pem
  min_version: TLS13
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
basic_auth_users: {alice: '%s'}
"""
REFUSED = (OSError, http.client.HTTPException)


def client(pki: Pki, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    pki.authority.configure_trust(context)
    context.load_cert_chain(certificate or pki.folder / "client.pem")
    return context


def status(port: int, context: ssl.SSLContext | None, word: str = "correct horse") -> int:
    """Return the status of an answer; without a context plain HTTP is spoken."""
    login = base64.b64encode(f"alice:{word}".encode()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    if context:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    with contextlib.closing(connection):
        connection.request("GET", "/-/healthy", headers={"Authorization": f"Basic {login}"})
        return connection.getresponse().status


def test_who_is_let_in(pki: Pki, tmp_path: Path) -> None:
    """Only who has TLS 1.3, a certificate of the named authority and the right password gets an answer."""
    write(pki.folder, STRICT % bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode())
    port, flags = free_port(), ("--web.config.file", str(pki.folder / "web.yml"))
    bare = ssl.create_default_context()
    pki.authority.configure_trust(bare)
    strange = tmp_path / "strange.pem"
    issued = trustme.CA().issue_cert("prometheus.example")
    issued.private_key_and_cert_chain_pem.write_to_path(strange)
    older = client(pki)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with SimulatorServer(Simulator()) as imds, exporter(imds.url, tmp_path / "state", port, *flags):
        eventually(lambda: status(port, client(pki)) == 200)
        assert status(port, client(pki), "wrong") == 401
        for context in (bare, client(pki, strange), older, None):
            with pytest.raises(REFUSED):
                status(port, context)
