"""TLS as a client meets it: versions and client certificates."""

import ssl
import warnings
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from exporter.errors import ConfigurationError
from exporter.web import webfile
from tests.serving.support import GET, connect, serving
from tests.web.certificates import Pki, write
from tests.web.test_settings import PAIR

CLIENTS = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"


def _client(pki: Pki, *, certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context()
    pki.authority.configure_trust(context)
    if certificate:
        context.load_cert_chain(pki.folder / "client.pem")
    return context


def _server(pki: Pki, text: str) -> ssl.SSLContext:
    context = webfile.load(write(pki.folder, text)).tls
    assert context is not None
    return context


def _meet(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Shake hands in memory, and return the client's end; an error of either end is raised."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0]


@pytest.mark.parametrize(
    ("bounds", "version"),
    [
        ("", "TLSv1.3"),
        ("  min_version: TLS10\n  max_version: TLS10\n", "TLSv1"),
        ("  min_version: TLS11\n  max_version: TLS11\n", "TLSv1.1"),
        ("  max_version: TLS12\n", "TLSv1.2"),
        ("  min_version: TLS13\n", "TLSv1.3"),
    ],
)
def test_versions_are_honoured(pki: Pki, bounds: str, version: str) -> None:
    """A client that speaks everything speaks what the file allows; without min_version at least TLS 1.2."""
    client = _client(pki)
    client.set_ciphers("DEFAULT:@SECLEVEL=0")
    client.set_alpn_protocols(["h2", "http/1.1"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        client.minimum_version = ssl.TLSVersion.TLSv1
        server = _server(pki, PAIR + bounds)
        end = _meet(server, client)
        assert (end.version(), end.selected_alpn_protocol()) == (version, "http/1.1")
        # OpenSSL's level 0 admits weak keys and digests, too.
        assert (server.security_level == 0) is (version in ("TLSv1", "TLSv1.1"))
        if not bounds:
            client.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises(ssl.SSLError):
                _meet(server, client)


def test_a_certificate_of_another_authority_is_refused(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """One type lets in who has none, neither a wrong one; the authorities of the system are the default."""
    strict = _server(pki, PAIR + CLIENTS)
    assert _meet(strict, _client(pki, certificate=True)).version() == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        _meet(strict, _client(pki))
    server = _server(pki, PAIR + CLIENTS.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"))
    assert _meet(server, _client(pki)).version() == "TLSv1.3"
    stranger = _client(pki)
    trustme.CA().issue_cert("prometheus.example").configure_cert(stranger)
    with pytest.raises(ssl.SSLCertVerificationError):
        _meet(server, stranger)
    monkeypatch.setenv("SSL_CERT_FILE", str(pki.folder / "ca.pem"))
    server = _server(pki, PAIR + "  client_auth_type: RequireAndVerifyClientCert\n")
    assert _meet(server, _client(pki, certificate=True)).version() == "TLSv1.3"


def test_an_intermediate_authority_is_trusted_alone(pki: Pki) -> None:
    """Its clients are let in although the file does not have its own authority, as in Go."""
    intermediate = pki.authority.create_child_ca()
    intermediate.cert_pem.write_to_path(pki.folder / "ca.pem")
    client = _client(pki)
    intermediate.issue_cert("prometheus.example").configure_cert(client)
    assert _meet(_server(pki, PAIR + CLIENTS), client).version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("names", "admitted"),
    [
        *((f"[x, '{name}']", True) for name in ("prometheus.example", "127.0.0.9", "2001:db8::1")),
        *((names, False) for names in ("[other.example]", "[]", "[PROMETHEUS.example]")),
    ],
)
def test_only_an_allowed_name_lets_in(pki: Pki, names: str, admitted: bool) -> None:
    """A DNS name or an address of the certificate, spelled exactly, as in the toolkit."""
    context = _server(pki, f"{PAIR}{CLIENTS}  client_allowed_sans: {names}\n")
    client, received = _client(pki, certificate=True), b""
    with (
        serving(tls=lambda: context) as server,
        client.wrap_socket(connect(server), server_hostname="127.0.0.1") as peer,
        suppress(ConnectionError),
    ):
        peer.sendall(GET)
        received = peer.recv(1000)
    assert received.startswith(b"HTTP/1.1 200") is admitted


def test_names_of_other_kinds_do_not_matter(pki: Pki) -> None:
    """A client whose certificate has the name of a directory, too, is let in by its DNS name."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "prometheus")])
    names = [x509.DirectoryName(subject), x509.DNSName("prometheus.example")]
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    # It is its own authority.
    (pki.folder / "ca.pem").write_bytes(certificate)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (pki.folder / "client.pem").write_bytes(private + certificate)
    context = _server(pki, f"{PAIR}{CLIENTS}  client_allowed_sans: [prometheus.example]\n")
    client = _client(pki, certificate=True)
    with (
        serving(tls=lambda: context) as web,
        client.wrap_socket(connect(web), server_hostname="127.0.0.1") as peer,
    ):
        peer.sendall(GET)
        assert peer.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("broken", ["cert.pem", "key.pem", "ca.pem"])
def test_garbage_between_the_marks_is_refused(pki: Pki, broken: str) -> None:
    """A damaged file is an error with file and line, and no traceback of OpenSSL's."""
    path: Path = pki.folder / broken
    head, *_, tail = path.read_text(encoding="utf-8").splitlines()
    path.write_text(f"{head}\nAAAA\n{tail}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"web\.yml:\d: tls_server_config\..*: cannot be used: "):
        webfile.load(write(pki.folder, PAIR + CLIENTS))
