"""The web configuration while the program runs: renewed certificates, changed users, broken files."""

import os
import ssl
from pathlib import Path

import bcrypt
import pytest
import requests

from exporter.errors import ConfigurationError
from exporter.health import Health
from exporter.web.webfile import WebConfig
from tests.bench import Build
from tests.clocks import HandClock
from tests.web.certificates import Pki, write
from tests.web.support import application, served
from tests.web.test_settings import HASH, PAIR


class _House:
    def __init__(self, path: Path) -> None:
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.config = WebConfig(path, self.health, self.clock)

    def problems(self) -> list[str]:
        return [problem.message for problem in self.health.problems()]


def _rewrite(path: Path, text: str) -> None:
    """Write a file so that its time differs, whatever the file system's grain."""
    before = path.stat().st_mtime_ns
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before + 10**9, before + 10**9))


def _users(*names: str) -> str:
    return "basic_auth_users:\n" + "".join(f"  {name}: {HASH}\n" for name in names)


def test_a_broken_file_keeps_the_old_settings(tmp_path: Path) -> None:
    """It, or a missing one, is reported without secrets until the file is right again, were it as before.

    At the start it is an error.
    """
    with pytest.raises(ConfigurationError, match="unknown key"):
        _House(write(tmp_path, "users: {}\n"))
    path = write(tmp_path, _users("alice"))
    setting = _House(path)
    as_it_was = path.stat().st_mtime_ns
    _rewrite(path, "basic_auth_users:\n  alice: canary\n")
    setting.clock.pass_seconds(1)
    assert list(setting.config.current().users) == ["alice"]
    (problem,) = setting.problems()
    assert problem.startswith(f"{path}:2: basic_auth_users.alice: is not a bcrypt hash")
    assert "canary" not in problem
    path.unlink()
    setting.clock.pass_seconds(1)
    assert list(setting.config.current().users) == ["alice"]
    assert setting.problems() == [f"{path}: cannot be read: No such file or directory"]
    path.write_text(_users("alice"), encoding="utf-8")
    os.utime(path, ns=(as_it_was, as_it_was))
    setting.clock.pass_seconds(1)
    assert list(setting.config.current().users) == ["alice"]
    assert setting.problems() == []


def test_a_reload_that_a_broken_file_refuses(build: Build, tmp_path: Path) -> None:
    """Each problem is there once: the file until it is right again, the reload until the next one."""
    path = write(tmp_path, "")
    bench = build(web_config_file=path)
    _rewrite(path, "nonsense: 1\n")
    assert bench.reload() == 500
    bench.advance(2)
    wrong, missed = bench.api("problems")
    assert ":1: nonsense: unknown key" in wrong
    assert missed.startswith("reload_failed: nothing was reloaded")
    _rewrite(path, "")
    bench.advance(2)
    assert bench.api("problems") == [missed]
    assert (bench.reload(), bench.api("problems")) == (200, [])


def test_tls_is_switched_on_by_a_restart(pki: Pki) -> None:
    """A running server cannot change from HTTP to HTTPS; the error recommends a restart."""
    path = write(pki.folder, "")
    setting = _House(path)
    _rewrite(path, PAIR)
    with pytest.raises(ConfigurationError, match="switched on by a restart only"):
        setting.config.reload()


CLIENTS = """  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [prometheus.example]
"""
EVERYTHING = PAIR + CLIENTS + _users("alice", "bob")
ALL = (
    "RequireAndVerifyClientCert, basic_auth_users, client_allowed_sans, client_auth_type, client_ca_file, "
    "tls_server_config: the former settings stay in use; "
    "write it again, since a restart would serve without it"
)


@pytest.mark.parametrize(
    ("after", "removed"),
    [
        ("", ALL),
        (PAIR + CLIENTS + "basic_auth_users: {}\n", "basic_auth_users: the former"),
        (_users("alice"), ALL.replace("basic_auth_users, ", "")),
        (
            PAIR + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.pem\n" + _users("bob"),
            "RequireAndVerifyClientCert, client_allowed_sans: the former",
        ),
        (EVERYTHING.replace("  client_ca_file: ca.pem\n", ""), "client_ca_file: the former"),
        (EVERYTHING.replace("[prometheus.example]", ""), "client_allowed_sans: the former"),
    ],
)
def test_no_change_opens_the_door(pki: Pki, after: str, removed: str) -> None:
    """What keeps clients out stays while the exporter runs; its absence is reported until it is back."""
    path = write(pki.folder, EVERYTHING)
    setting = _House(path)
    before = setting.config.current()
    _rewrite(path, after)
    for _ in range(3):
        setting.clock.pass_seconds(1)
        assert setting.config.current() is before
        (problem,) = setting.problems()
    assert removed in problem
    with pytest.raises(ConfigurationError):
        setting.config.reload()
    _rewrite(path, PAIR + CLIENTS + _users("carol"))
    setting.clock.pass_seconds(1)
    assert list(setting.config.current().users) == ["carol"]
    assert setting.problems() == []


def test_a_file_that_is_cut_anywhere_opens_no_door(pki: Pki) -> None:
    """Whatever part of a file has been written, TLS, client certificates and passwords stay."""
    path = write(pki.folder, EVERYTHING)
    setting = _House(path)
    for length in range(len(EVERYTHING)):
        _rewrite(path, EVERYTHING[:length])
        setting.clock.pass_seconds(1)
        current = setting.config.current()
        assert current.tls is not None
        assert current.tls.verify_mode is ssl.VerifyMode.CERT_REQUIRED
        assert current.tls.sslsocket_class is not ssl.SSLSocket
        assert {"alice"} <= current.users.keys()


def test_a_renewed_certificate_meets_the_next_connection(pki: Pki) -> None:
    """Served through a real server: new connections get the new certificate; a half-written pair, the old."""
    setting = _House(write(pki.folder, PAIR))
    app = application(settings=setting.config.current)
    with served(app, setting.config.ssl_contexts()) as port:
        address = ("127.0.0.1", port)
        first = ssl.get_server_certificate(address)
        old_key = (pki.folder / "key.pem").read_bytes()
        pki.renew()
        new_key = (pki.folder / "key.pem").read_bytes()
        (pki.folder / "key.pem").write_bytes(old_key)
        setting.clock.pass_seconds(1)
        assert ssl.get_server_certificate(address) == first
        assert "does not belong to the certificate" in setting.problems()[0]
        (pki.folder / "key.pem").write_bytes(new_key)
        setting.clock.pass_seconds(1)
        assert ssl.get_server_certificate(address) != first
        assert setting.problems() == []


def test_a_changed_file_holds_for_the_next_request(build: Build, pki: Pki) -> None:
    """A client of the program needs what the newest file asks for: a certificate and a password."""
    hashed = [bcrypt.hashpw(word, bcrypt.gensalt(4)).decode() for word in (b"one", b"two")]

    def text(name: str, password: str) -> str:
        clients = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
        users = f"basic_auth_users:\n  alice: {password}\n"
        return f"{PAIR}{clients}  client_allowed_sans: [{name}]\n{users}"

    def status(password: str, certificate: str | None = str(pki.folder / "client.pem")) -> int:
        url, authority = f"{bench.app.url}/metrics", str(pki.folder / "ca.pem")
        auth = ("alice", password)
        return requests.get(url, auth=auth, verify=authority, cert=certificate, timeout=30).status_code

    path = write(pki.folder, text("prometheus.example", hashed[0]))
    bench = build(web_config_file=path)
    with pytest.raises(requests.ConnectionError):
        status("one", None)
    with pytest.raises(requests.ConnectionError):
        requests.get(bench.app.url.replace("https:", "http:"), timeout=30)
    assert (status("one"), status("two")) == (200, 401)
    _rewrite(path, text("prometheus.example", hashed[1]))
    bench.clock.pass_seconds(1)
    assert (status("one"), status("two")) == (401, 200)
    _rewrite(path, text("other.example", hashed[1]))
    bench.clock.pass_seconds(1)
    with pytest.raises(requests.ConnectionError):
        status("two")
