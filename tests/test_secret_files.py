"""Files with secrets that everybody can read: which they are, and that each is warned of once."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from exporter.web import webfile
from tests.configs import checked
from tests.web.certificates import Pki, write

pytestmark = pytest.mark.usefixtures("checks_in_process")
CANARY = "canary-4711"
SECRET = f"json://user:{CANARY}@host.example/"
PAIR = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
USERS = "basic_auth_users: {a: '$2b$04$apNkUZCgPgk3LvDK4sXF.OemvKFCPHJJsmDHiC9rpYRtLbneGUcau'}\n"


def file(path: Path, text: str, mode: int = 0o644) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def loaded(folder: Path, mode: int = 0o644, *, apprise: str = "", **targets: dict[str, Any]) -> Path:
    listed = [{"name": name, **address} for name, address in targets.items()]
    notifications: dict[str, Any] = {"targets": listed}
    notifications |= {"apprise_config": apprise} if apprise else {}
    path = file(folder / "exporter.yml", json.dumps({"notifications": notifications}), mode)
    checked(path, {"URL": SECRET})
    return path


def warnings(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return path and remedy of the warnings, which must not contain the secret."""
    assert {record.getMessage() for record in caplog.records} <= {
        "file with secrets is readable by all users"
    }
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}
    assert CANARY not in caplog.text
    return [(str(vars(record)["path"]), str(vars(record)["remedy"])) for record in caplog.records]


def told(*paths: Path) -> list[tuple[str, str]]:
    remedy = "run chmod 0600 on it; with systemd, LoadCredential= lets the service read it"
    return [(str(path), remedy) for path in paths]


def told_of_configuration(path: Path) -> list[tuple[str, str]]:
    remedy = "write ${NAME} instead, with NAME in the service's environment (mode 0600), or use url_file"
    return [(str(path), remedy)]


@pytest.mark.parametrize(
    ("keys", "secret"),
    [
        ({"url": "json://host.example"}, True),
        ({"url": "json://user:${URL}@host.example"}, False),
        ({"webhook": "https://host.example", "headers": {"authorization": CANARY}}, True),
        ({"webhook": "https://host.example", "headers": {"Authorization": "Bearer ${URL}"}}, False),
        ({"webhook": "https://host.example", "headers": {"X-Team": "ops"}}, False),
        ({"webhook": f"https://user:{CANARY}@host.example"}, True),
        ({"webhook": "https://user:${URL}@host.example"}, False),
    ],
)
def test_what_makes_a_secret_of_a_configuration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: dict[str, Any], *, secret: bool
) -> None:
    """A URL of Apprise, a header with a login and a URL with a user name, unless they have a variable."""
    path = loaded(tmp_path, a=keys)
    assert warnings(caplog) == told_of_configuration(path) * secret


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o660])
def test_a_file_that_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int) -> None:
    """A group may read it: so a service that is not its owner gets its secret."""
    loaded(tmp_path, mode, a={"url": SECRET})
    assert warnings(caplog) == []


def test_files_that_hold_addresses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A url_file and Apprise's own file are secrets whatever is in them; each is named once."""
    secret = file(tmp_path / "secret", "json://host.example/")
    apprise = file(tmp_path / "apprise.yml", "urls: [{'json://host.example/': {tag: [x, y]}}]")
    by_file, by_tag = {"url_file": str(secret)}, {"tag": "x"}
    loaded(tmp_path, apprise=str(apprise), a=by_file, b=by_file, c=by_tag, d={"tag": "y"})
    assert warnings(caplog) == told(secret, apprise)
    loaded(tmp_path, apprise=str(apprise), a=by_file)
    assert warnings(caplog) == told(secret, apprise, secret)


@pytest.mark.parametrize(("text", "many"), [(PAIR + USERS, 2), (USERS, 1)])
def test_a_web_configuration(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, many: int) -> None:
    """Hashes of passwords make a secret of it, and the key's file is one; certificates are none."""
    Pki.make(tmp_path)
    for name in ("key.pem", "cert.pem", "ca.pem"):
        (tmp_path / name).chmod(0o644)
    path = write(tmp_path, text)
    path.chmod(0o644)
    webfile.load(path).warn()
    assert warnings(caplog) == told(path, tmp_path / "key.pem")[:many]
