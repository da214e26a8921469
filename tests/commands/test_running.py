import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import bcrypt
import pytest

from exporter.clock import SystemClock
from exporter.commands import events as inspection
from exporter.commands.events import NoExporterError, RunningExporter
from exporter.config import Config
from exporter.errors import ExporterError
from exporter.simulator import Simulator, SimulatorServer
from exporter.web.settings import WebSettings
from tests.builders import FREEZE_ID
from tests.commands.test_events import NAME, TWO, Azure, settings
from tests.end_to_end.program import free_port
from tests.http_server import answer, serving
from tests.web.certificates import Pki
from tests.web.support import freeze, life, served, site, snapshot

PROGRAM = [sys.executable, "-m", "exporter", "events"]


@contextmanager
def running(**fields: object) -> Iterator[str]:
    """Serve an exporter with a Freeze; return its address."""
    picture = snapshot(**{"current": (life(freeze()),)} | fields)
    with served(site(picture)) as port:
        yield f"http://127.0.0.1:{port}"


def shown(
    url: str, capsys: pytest.CaptureFixture[str], *, as_json: bool = False, config: Config | None = None
) -> tuple[str, str]:
    """Ask once; return output and warnings."""
    inspection.show(config or Config(), SystemClock(), exporter_url=url, as_json=as_json, watch=False)
    return capsys.readouterr()


def test_the_exporter_knows_when(capsys: pytest.CaptureFixture[str]) -> None:
    """Its JSON has what IMDS does not: when an event was first seen, and its transitions."""
    with running() as url:
        output, warnings = shown(url, capsys, as_json=True)
    found = json.loads(output)
    assert warnings == ""
    assert (found["source"], found["instance"], found["document_incarnation"]) == ("exporter", "WestNO_0", 7)
    (event,) = found["current"]
    assert (event["id"], event["first_seen"]) == (FREEZE_ID, "2026-03-04T21:59:00Z")
    assert [one["transition"] for one in event["transitions"]] == ["scheduled"]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_blind_exporter_is_a_warning(capsys: pytest.CaptureFixture[str], *, as_json: bool) -> None:
    """The last known events are shown, with a warning that they may be out of date."""
    with running(up=False, last_error="no answer within 10 s") as url:
        output, warnings = shown(url, capsys, as_json=as_json)
    assert FREEZE_ID in output
    assert warnings == (
        "warning: the exporter has had no valid response from IMDS since 2026-03-04T21:59:59Z: "
        "no answer within 10 s\n"
    )


def test_without_an_exporter_imds_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """If no exporter responds, the events are from IMDS, with a note on what is missing."""
    url = f"http://127.0.0.1:{free_port()}"
    with serving(Azure(answer(TWO), NAME)) as imds:
        output, _ = shown(url, capsys, config=settings(imds.url))
        assert f"WestNO_0: IMDS at {imds.url}" in output
        expected = f"no exporter answers at {url}; IMDS does not know when an event was first seen or started"
        assert expected in " ".join(output.split())
        assert json.loads(shown(url, capsys, as_json=True, config=settings(imds.url))[0])["source"] == "imds"


def users() -> WebSettings:
    """Return settings with one user, whose password has letters that URLs quote."""
    return WebSettings(users={"ops": bcrypt.hashpw(b"p@ss/word", bcrypt.gensalt(4))})


def test_a_password_in_the_url_lets_in() -> None:
    """User name and password of the URL are sent, and never shown."""
    with served(site(snapshot(), settings=users)) as port:
        asked = RunningExporter(f"http://ops:p%40ss%2Fword@127.0.0.1:{port}")
        assert asked.status().instance == "WestNO_0"
        assert asked.url == f"http://127.0.0.1:{port}"
        wrong = RunningExporter(f"http://ops:wrong@127.0.0.1:{port}")
        with pytest.raises(ExporterError, match="SCHEDULED_EVENTS_EXPORTER_URL") as caught:
            wrong.status()
        assert "wrong" not in str(caught.value)


def test_tls(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS works if the certificate can be verified; every other error names its remedy."""
    file = pki.folder / "web.yml"
    file.write_text("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")
    context = WebSettings.load(file).tls
    assert context is not None
    with served(site(snapshot()), tls=lambda: context) as port:
        with pytest.raises(ExporterError, match="SSL_CERT_FILE"):
            RunningExporter(f"https://127.0.0.1:{port}").status()
        with pytest.raises(ExporterError, match=r"--exporter\.url https://"):
            RunningExporter(f"http://127.0.0.1:{port}").status()
        monkeypatch.setenv("SSL_CERT_FILE", str(pki.folder / "ca.pem"))
        assert RunningExporter(f"https://127.0.0.1:{port}").status().instance == "WestNO_0"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (answer(b"<html>"), "is not an exporter of this version"),
        (answer(b"[]"), "is not an exporter of this version"),
        (answer(status="404 Not Found"), "answers with status 404"),
        (answer(status="302 Found"), "answers with status 302"),
    ],
)
def test_what_is_not_an_exporter_is_an_error(document: bytes, message: str) -> None:
    """A response of another service on the port is an error."""
    with serving(Azure(document)) as other, pytest.raises(ExporterError, match=message) as caught:
        RunningExporter(other.url).status()
    assert not isinstance(caught.value, NoExporterError)
    assert "--imds.endpoint" in str(caught.value)


def test_imds_is_asked_if_its_endpoint_is_given() -> None:
    """With --imds.endpoint no exporter is asked, even if one runs."""
    with running() as url, SimulatorServer(Simulator()) as imds:
        words = ["--exporter.url", url, "--imds.endpoint", imds.url, "--json"]
        done = subprocess.run([*PROGRAM, *words], capture_output=True, timeout=120, check=True)
    assert json.loads(done.stdout)["source"] == "imds"
