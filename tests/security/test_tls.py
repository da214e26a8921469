"""The running exporter as the web configuration says: TLS, client certificates and passwords."""

import base64
import http.client
import ssl
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Make certificates, and a web configuration that asks for a client's."""
    pki = Pki.make(tmp_path_factory.mktemp("pki"))
    write(pki.folder, STRICT % bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode())
    return pki


@pytest.fixture(scope="module")
def port(pki: Pki) -> Iterator[int]:
    number = free_port()
    flags = ("--web.config.file", str(pki.folder / "web.yml"))
    with SimulatorServer(Simulator()) as imds, exporter(imds.url, pki.folder / "state", number, *flags):
        eventually(lambda: status(number, client(pki)) == 200)
        yield number


def client(pki: Pki, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    pki.authority.configure_trust(context)
    context.load_cert_chain(certificate or pki.folder / "client.pem")
    return context


def status(port: int, context: ssl.SSLContext, word: str = "correct horse") -> int:
    login = base64.b64encode(f"alice:{word}".encode()).decode()
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.request("GET", "/-/healthy", headers={"Authorization": f"Basic {login}"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_client_of_the_authority_is_let_in(pki: Pki, port: int) -> None:
    """With TLS 1.3, a certificate of the named authority, and the right password."""
    assert status(port, client(pki)) == 200
    assert status(port, client(pki), "wrong") == 401


def test_nobody_else_gets_an_answer(pki: Pki, port: int, tmp_path: Path) -> None:
    """Neither without a certificate, with one of another authority, nor with an older version of TLS."""
    bare = ssl.create_default_context()
    pki.authority.configure_trust(bare)
    strange = tmp_path / "strange.pem"
    issued = trustme.CA().issue_cert("prometheus.example")
    issued.private_key_and_cert_chain_pem.write_to_path(strange)
    older = client(pki)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    for context in (bare, client(pki, strange), older):
        with pytest.raises(REFUSED):
            status(port, context)


def test_without_tls_nothing_is_told(port: int) -> None:
    """Plain HTTP on the same port gets no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/-/healthy")
    with pytest.raises(REFUSED):
        connection.getresponse()
    connection.close()
