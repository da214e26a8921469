"""The web configuration file: what is taken, what is refused, and in what words."""

import shutil
import subprocess
import traceback
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from exporter.errors import ConfigurationError
from exporter.web import webfile
from exporter.web.webfile import RateLimit
from tests.web.certificates import Pki, write

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
HEAD = "tls_server_config:\n"
PAIR = HEAD + "  cert_file: cert.pem\n  key_file: key.pem\n"
TLS = "tls_server_config."
ABSENT = "the file cannot be read: No such file or directory"
PROMTOOL = shutil.which("promtool")

GOOD = (
    "",
    "tls_server_config:\nbasic_auth_users:\nhttp_server_config:\n",
    "tls_server_config: {cert_file: }\n",
    PAIR
    + """  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  min_version: TLS12
  max_version: TLS13
  prefer_server_cipher_suites: false
  cipher_suites: []
  curve_preferences:
http_server_config:
  http2: false
  headers: {X-Frame-Options: deny, X-Content-Type-Options: nosniff, Strict-Transport-Security: max-age=60}
"""
    + f"basic_auth_users:\n  alice: {HASH}\n",
    PAIR + "  min_version: TLS10\n  max_version: TLS11\n",
    PAIR + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.pem\n",
    PAIR + "  client_auth_type: NoClientCert\n",
)

# What promtool refuses too: the text, and what ours says.
BAD = {
    "tls_config: {}\n": ":1: tls_config: unknown key; did you mean tls_server_config?",
    "a: [\n": ":2: is not valid YAML: ",
    "[1]\n": ":1: must be a mapping, but is a list",
    HEAD + "  cert_file: cert.pem\n": f":1: {TLS}key_file: is missing; TLS needs key_file",
    HEAD + "  key_file: key.pem\n": f":1: {TLS}cert_file: is missing; TLS needs cert_file",
    PAIR.replace("cert.pem", "absent.pem"): f":2: {TLS}cert_file: {ABSENT}",
    PAIR.replace("key.pem", "client.pem"): f":3: {TLS}key_file: does not belong to the certificate",
    PAIR.replace("cert.pem", "key.pem"): f":2: {TLS}cert_file: contains no PEM certificate",
    PAIR.replace("key.pem", "ca.pem"): f":3: {TLS}key_file: contains no PEM private key",
    PAIR + "  client_auth_type: Always\n": (
        f":4: {TLS}client_auth_type: must be one of NoClientCert, VerifyClientCertIfGiven, "
        "RequireAndVerifyClientCert, RequestClientCert, RequireAnyClientCert, RequireClientCert"
    ),
    PAIR + "  client_ca_file: ca.pem\n": (
        f":4: {TLS}client_ca_file: is given, but client_auth_type asks for no certificate; "
        "set RequireAndVerifyClientCert"
    ),
    PAIR + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: absent.pem\n": (
        f":5: {TLS}client_ca_file: {ABSENT}"
    ),
    PAIR + "  min_version: TLS14\n": f":4: {TLS}min_version: must be one of TLS10, TLS11, TLS12, TLS13",
    "basic_auth_users:\n  alice: hunter2\n": (
        ":2: basic_auth_users.alice: is not a bcrypt hash ($2a$, $2b$ or $2y$, cost 4 to 31); "
        "make one with: htpasswd -nBC 10 '' | tr -d ':\\n'"
    ),
    "http_server_config:\n  headers: {Server: x}\n": (
        ":2: http_server_config.headers.Server: this header cannot be configured; these can: "
        "Strict-Transport-Security, X-Content-Type-Options, X-Frame-Options, X-XSS-Protection, "
        "Content-Security-Policy"
    ),
    "http_server_config:\n  headers: {X-Frame-Options: perhaps}\n": (
        ":2: http_server_config.headers.X-Frame-Options: must be deny or sameorigin"
    ),
}

# What Go can do, or lets pass, and this program not: refused, never ignored.
NOT_HERE = {
    "http_server_config:\n  http2: true\n": (
        ":2: http_server_config.http2: this server speaks HTTP/1.1 only; leave it out, or set it to false"
    ),
    PAIR + "  client_auth_type: RequireAnyClientCert\n": (
        f":4: {TLS}client_auth_type: asks for a certificate without checking it, "
        "which is not possible here; use RequireAndVerifyClientCert or VerifyClientCertIfGiven"
    ),
    **{
        f"{PAIR}  {key}: {value}\n": f":4: {TLS}{key}: is not supported by this exporter; {remedy}"
        for key, value, remedy in (
            ("cert", "canary", "write the certificate to a file, and name it as cert_file"),
            (
                "key",
                "[canary]",
                "write the key to a file that only the exporter's user can read, and",
            ),
            ("client_ca", "canary", "write the certificates to a file, and name it as client_ca_file"),
            ("cipher_suites", "[canary]", "leave it out for OpenSSL's defaults, or set min_version: TLS13"),
            ("curve_preferences", "[canary]", "leave it out for OpenSSL's defaults"),
        )
    },
    PAIR + "  client_allowed_sans: [a]\n": (
        f":4: {TLS}client_allowed_sans: needs client_auth_type: RequireAndVerifyClientCert, "
        "so that there is a name"
    ),
    PAIR + "  min_version: TLS13\n  max_version: TLS12\n": (
        f":5: {TLS}max_version: is below min_version, so that no client could connect; raise it"
    ),
    f"basic_auth_users:\n  'a:b': {HASH}\n": (
        ":2: basic_auth_users.*: a user's name cannot hold a colon in basic authentication; choose another"
    ),
    'http_server_config:\n  headers: {Content-Security-Policy: "a\\r\\nSet-Cookie: b"}\n': (
        ":2: http_server_config.headers.Content-Security-Policy: must be one line of printable ASCII, "
        "as HTTP headers are"
    ),
    "rate_limit:\n  interval: 1s\n": (
        ":1: rate_limit.burst: must be at least 1: with less, every request is refused"
    ),
    "rate_limit:\n  interval: soon\n  burst: 1\n": (
        ":2: rate_limit.interval: 'soon' is not a valid duration; write it like 500ms, 1s, 15m, 1h30m or 7d"
    ),
}


def _promtool(path: Path) -> int:
    assert PROMTOOL, "promtool is missing; Debian's package prometheus has it"
    return subprocess.run(
        [PROMTOOL, "check", "web-config", path], capture_output=True, check=False
    ).returncode


@pytest.mark.parametrize("text", GOOD)
def test_good_files_are_taken(text: str, pki: Pki) -> None:
    """What Prometheus takes of the settings that can be honoured, this takes too."""
    path = write(pki.folder, text)
    webfile.load(path)
    assert _promtool(path) == 0


@pytest.mark.parametrize(("text", "message"), (BAD | NOT_HERE).items())
def test_what_cannot_be_honoured_is_refused(text: str, message: str, pki: Pki) -> None:
    """What Prometheus refuses, and what would have no effect here, with file, line, key and remedy."""
    path = write(pki.folder, text)
    with pytest.raises(ConfigurationError) as caught:
        webfile.load(path)
    assert [problem.startswith(f"{path}{message}") for problem in caught.value.problems] == [True]
    assert text in NOT_HERE or _promtool(path) != 0


def test_an_encrypted_key_is_refused_without_asking(pki: Pki) -> None:
    """Nobody is at the terminal of a service."""
    file = pki.folder / "key.pem"
    key = serialization.load_pem_private_key(file.read_bytes(), password=None)
    form, style = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(form, style, serialization.BestAvailableEncryption(b"x")))
    with pytest.raises(ConfigurationError, match=r":3: tls_server_config\.key_file: is encrypted"):
        webfile.load(write(pki.folder, PAIR))


def test_secrets_show_nowhere(pki: Pki) -> None:
    """Neither a hash nor a key is in a repr, an error or a traceback."""
    key = (pki.folder / "key.pem").read_text(encoding="utf-8")
    users = f"basic_auth_users:\n  alice: {HASH}\n"
    shown = repr(webfile.load(write(pki.folder, PAIR + users)))
    inline = "".join(f"    {line}\n" for line in key.splitlines())
    for bad in (
        f"{users}  bob: canary-secret\n",
        f"tls_server_config:\n  cert_file: cert.pem\n  key: |\n{inline}  max_version: x\n",
        f"{users}  bob:canary-secret: {HASH}\n",
        f"{users}  bob:canary-secret: {HASH}\n  bob:canary-secret: {HASH}\n",
        f"{users}  bob:canary-secret: [x]\n",
        f"{users}bob:canary-secret: {HASH}\n",
        f"{users}basic_auth_users:canary-secret: {HASH}\n",
        f"{users}  bob: canary-secret: {HASH}\n",
        f"{users}  bob:canary-secret\n",
        "basic_auth_users:\n  bob:canary-secret\n",
        f"basic_auth_users: [bob:canary-secret: {HASH}]\n",
        "rate_limit: {burst: x}\nhttp_server_config: {'x:canary-secret': 1}\n",
        "tls_server_config:\n  cert_file: cert.pem\n  key: canary-secret\n",
    ):
        with pytest.raises(ConfigurationError) as caught:
            webfile.load(write(pki.folder, bad))
        shown += "".join(traceback.format_exception(caught.value))
    for secret in (HASH, "canary-secret", *key.splitlines()[1:-1]):
        assert secret not in shown


def test_what_is_blank_is_left_out(tmp_path: Path) -> None:
    """A header with a blank value is not sent; the rate limit of newer toolkits is read, 0 disables it."""
    path = write(tmp_path, "rate_limit: {interval: 500ms, burst: 3}\n")
    assert webfile.load(path).rate_limit == RateLimit(0.5, 3)
    assert webfile.load(write(tmp_path, "rate_limit: {interval: 0, burst: 3}\n")).rate_limit is None
    text = "http_server_config:\n  headers: {X-Frame-Options: '', X-XSS-Protection: '0'}\n"
    assert webfile.load(write(tmp_path, text)).headers == {"X-XSS-Protection": "0"}
