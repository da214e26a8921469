import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import pytest

from exporter.clock import SystemClock
from exporter.commands import events as inspection
from exporter.commands.events import NoExporterError, RunningExporter
from exporter.config import Config, Imds, Instance
from exporter.errors import ExporterError, ImdsError
from tests.bench import Build
from tests.builders import FREEZE_ID, REBOOT_ID, body, raw_event
from tests.end_to_end.program import INTERRUPTIBLE, eventually, free_port
from tests.http_server import Connection, Request, Respond, answer, dripping, endless, serving, then_hang_up
from tests.web.certificates import Pki, write

TWO = body(raw_event(), raw_event(EventId=REBOOT_ID, EventType="Reboot", Resources=["WestNO_9"]))
NAME = answer(b'{"compute": {"name": "WestNO_0"}}')
FAILURE = answer(status="500 Internal Server Error")


class Azure:
    """Answers with a document and a name, both of which can be replaced."""

    def __init__(self, document: bytes, name: bytes = NAME) -> None:
        self.document = document
        self.name = name
        self.asked = 0

    def __call__(self, connection: Connection, request: Request) -> None:
        self.asked += 1
        connection.send(self.name if "/instance" in request.path else self.document)


def settings(url: str) -> Config:
    return Config(imds=Imds(endpoint=url))


def asked(
    exporter: str | None,
    capsys: pytest.CaptureFixture[str],
    *,
    as_json: bool = False,
    config: Config | None = None,
    ids: Sequence[str] = (),
) -> tuple[str, str]:
    settings = config or Config()
    inspection.show(settings, SystemClock(), ids, exporter_url=exporter, as_json=as_json, watch=False)
    return capsys.readouterr()


def shown(azure: Azure, capsys: pytest.CaptureFixture[str], *, as_json: bool = False) -> tuple[str, str]:
    with serving(azure) as imds:
        return asked(None, capsys, as_json=as_json, config=settings(imds.url))


def test_some_events(capsys: pytest.CaptureFixture[str]) -> None:
    """The first characters of their ids choose them; those of none are an error that lists all."""
    with serving(Azure(answer(TWO))) as imds:
        config = settings(imds.url)
        output, _ = asked(None, capsys, as_json=True, config=config, ids=[REBOOT_ID[:8].lower()])
        assert [event["id"] for event in json.loads(output)["current"]] == [REBOOT_ID]
        with pytest.raises(ExporterError, match=f"^none is not pending. Pending events: .*{FREEZE_ID}"):
            asked(None, capsys, config=config, ids=["none"])


def test_json_does_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Characters that control it or reorder text are escaped, which leaves the data the same."""
    text = "a\x9b31mb\u202ec\x7fd\U000e0001e\N{GRINNING FACE}"
    output, _ = shown(Azure(answer(body(raw_event(Description=text)))), capsys, as_json=True)
    assert output.removesuffix("\n").isprintable()
    assert json.loads(output)["current"][0]["description"] == text


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One line of JSON: source, VM, incarnation, and the most urgent event first; their lives are unknown."""
    later = raw_event(EventId=REBOOT_ID, NotBefore="Wed, 04 Mar 2026 23:00:00 GMT", Resources=["WestNO_9"])
    output, warnings = shown(Azure(answer(body(later, raw_event()))), capsys, as_json=True)
    assert warnings == ""
    assert len(output.splitlines()) == 1
    found = json.loads(output)
    assert (found["instance"], found["document_incarnation"]) == ("WestNO_0", 1)
    assert [(event["id"], event["target"]) for event in found["current"]] == [
        (FREEZE_ID, "self"),
        (REBOOT_ID, "other"),
    ]
    freeze = found["current"][0]
    assert freeze["not_before"] == "2026-03-04T22:15:00Z"
    assert freeze["duration_seconds"] == 5
    assert (freeze["first_seen"], freeze["started"], freeze["outcome"]) == (None, None, None)
    assert (found["source"], freeze["transitions"]) == ("imds", [])


def test_a_name_that_imds_does_not_tell(capsys: pytest.CaptureFixture[str]) -> None:
    """The events are shown with a warning."""
    output, warnings = shown(Azure(answer(TWO), FAILURE), capsys)
    assert FREEZE_ID in output
    assert warnings.startswith("warning: this VM's name is not known: ")


def test_the_name_of_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    """It decides which events are this VM's, whatever IMDS calls the VM."""
    with serving(Azure(answer(TWO))) as imds:
        config = Config(imds=Imds(endpoint=imds.url), instance=Instance(name="WestNO_9"))
        found = json.loads(asked(None, capsys, as_json=True, config=config)[0])
    assert found["instance"] == "WestNO_9"
    assert [event["target"] for event in found["current"]] == ["other", "self"]


def test_lines_are_not_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    """What is piped into another program has each event's row, and its VMs, on one line."""
    names = [f"a-long-name-of-a-vm_{number}" for number in range(9)]
    output, _ = shown(Azure(answer(body(raw_event(EventType="T" * 99, Resources=names)))), capsys)
    row, whom = output.splitlines()[-2:]
    assert row.startswith(FREEZE_ID)
    assert row.endswith("T" * 99)
    assert ", ".join(names) in whom


@pytest.mark.parametrize("document", [FAILURE, answer(b"<html>")])
def test_no_usable_answer_is_an_error(document: bytes) -> None:
    """Asked once, there is nothing to show."""
    with serving(Azure(document)) as imds, pytest.raises(ImdsError):
        inspection.show(settings(imds.url), SystemClock(), exporter_url=None, as_json=False, watch=False)


@contextmanager
def watching(url: str, folder: Path, *flags: str) -> Iterator[tuple[Path, Path]]:
    """Run `events --watch`, asking five times a second, and interrupt it at the end."""
    file, output, errors = folder / "config.yml", folder / "output", folder / "errors"
    file.write_text("imds: {poll_interval: 200ms}\n")
    command = [*INTERRUPTIBLE, sys.executable, "-u", "-m", "exporter", "events", "--watch"]
    command += ["--imds.endpoint", url, "--config.file", str(file), *flags]
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
    try:
        yield output, errors
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "Traceback" not in errors.read_text()
    finally:
        process.kill()
        process.wait()


def test_watching_goes_on_through_errors(tmp_path: Path) -> None:
    """While IMDS fails, the error is shown above the last known events, and then it is gone."""
    azure, began = Azure(answer(TWO)), time.monotonic()
    with serving(azure) as imds, watching(imds.url, tmp_path) as (output, _):
        eventually(lambda: FREEZE_ID in output.read_text())
        azure.document = FAILURE
        eventually(lambda: "error: no usable answer: " in output.read_text())
        eventually(lambda: FREEZE_ID in output.read_text().partition("error: no usable answer: ")[2])
        assert "status 500" in " ".join(output.read_text().partition("error: ")[2].split())
        azure.document = answer(body(incarnation=2))
        eventually(lambda: "incarnation 2" in output.read_text())
        eventually(lambda: output.read_text().endswith("No events are pending.\n"))
    assert azure.asked < 9 + 5 * (time.monotonic() - began)


def test_watching_in_json_gives_answers_only(tmp_path: Path) -> None:
    """A failure is reported on standard error, and the old answer is not printed again."""
    azure = Azure(FAILURE)
    with serving(azure) as imds, watching(imds.url, tmp_path, "--json") as (output, errors):
        eventually(lambda: errors.read_text().startswith("error: "))
        assert output.read_text() == ""
        azure.document = answer(TWO)
        eventually(lambda: output.read_text().endswith("\n"))
        assert json.loads(output.read_text().splitlines()[0])["document_incarnation"] == 1


PROGRAM = [sys.executable, "-m", "exporter", "events"]


def test_the_exporter_knows_when(build: Build, capsys: pytest.CaptureFixture[str]) -> None:
    """Its JSON has what IMDS does not: when an event was first seen, and its transitions."""
    bench = build()
    bench.show(raw_event())
    output, warnings = asked(bench.app.url, capsys, as_json=True)
    found = json.loads(output)
    assert warnings == ""
    assert (found["source"], found["instance"], found["document_incarnation"]) == ("exporter", "WestNO_0", 1)
    (event,) = found["current"]
    assert (event["id"], event["first_seen"]) == (FREEZE_ID, "2026-03-04T22:00:01Z")
    assert [one["transition"] for one in event["transitions"]] == ["scheduled"]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_blind_exporter_is_a_warning(
    build: Build, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    """The last known events are shown as of then, with a warning that there may be newer ones."""
    bench = build()
    bench.show(raw_event())
    bench.outage(5)
    output, warnings = asked(bench.app.url, capsys, as_json=as_json)
    assert FREEZE_ID in output
    blind = "warning: the exporter has had no valid response from IMDS since 2026-03-04T22:00:01Z: GET "
    assert warnings.startswith(blind)
    assert "status 500" in warnings
    if as_json:
        assert json.loads(output)["up"] is False
    else:
        assert "At 2026-03-04T22:00:01Z, incarnation 1; newer events are unknown" in output


def test_without_an_exporter_imds_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """If no exporter responds, the events are from IMDS, with a note on what is missing."""
    url = f"http://127.0.0.1:{free_port()}"
    with serving(Azure(answer(TWO), NAME)) as imds:
        output, _ = asked(url, capsys, config=settings(imds.url))
        assert f"WestNO_0: IMDS at {imds.url}" in output
        expected = f"no exporter answers at {url}; IMDS does not know when an event was first seen or started"
        assert expected in " ".join(output.split())
        assert json.loads(asked(url, capsys, as_json=True, config=settings(imds.url))[0])["source"] == "imds"
    with pytest.raises(
        ExporterError, match=f"no exporter answers at {url}, and IMDS has no usable answer: GET "
    ):
        asked(url, capsys, config=settings(f"http://127.0.0.1:{free_port()}"))


def test_a_password_in_the_url_lets_in(build: Build, tmp_path: Path) -> None:
    """User name and password of the URL are sent, and never shown; both may have letters that URLs quote."""
    hashed = bcrypt.hashpw(b"p@ss/word", bcrypt.gensalt(4)).decode()
    url = build(web_config_file=write(tmp_path, f"basic_auth_users: {{ops: '{hashed}'}}")).app.url
    asked = RunningExporter(url.replace("//", "//ops:p%40ss%2Fword@"))
    assert (asked.status().instance, asked.url) == ("WestNO_0", url)
    with pytest.raises(ExporterError, match=r"not accept this.*SCHEDULED_EVENTS_EXPORTER_URL") as caught:
        RunningExporter(url.replace("//", "//ops:wrong@")).status()
    assert "wrong" not in str(caught.value)
    with pytest.raises(ExporterError, match="serves no TLS"):
        RunningExporter(url.replace("http:", "https:")).status()


def test_tls(build: Build, pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS works if the certificate can be verified; every other error names its remedy."""
    pair = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
    url = build(web_config_file=write(pki.folder, pair)).app.url
    with pytest.raises(ExporterError, match="SSL_CERT_FILE"):
        RunningExporter(url).status()
    with pytest.raises(ExporterError, match=r"--exporter\.url https://"):
        RunningExporter(url.replace("https:", "http:")).status()
    monkeypatch.setenv("SSL_CERT_FILE", str(pki.folder / "ca.pem"))
    assert RunningExporter(url).status().instance == "WestNO_0"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (answer(b"<html>"), "is not an exporter of this version"),
        (answer(status="302 Found", headers="Location: /\r\n"), r"is not an exporter \(status 302\)"),
    ],
)
def test_what_is_not_an_exporter_is_an_error(
    document: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A response of another service on the port is an error."""
    with serving(Azure(document)) as other, pytest.raises(ExporterError, match=message) as caught:
        asked(other.url, capsys)
    assert not isinstance(caught.value, NoExporterError)
    assert "--imds.endpoint" in str(caught.value)


@pytest.mark.parametrize(
    ("respond", "kind", "message"),
    [
        (dripping(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 10_000), NoExporterError, "no exporter answers at"),
        (
            endless(b"HTTP/1.1 200 OK\r\n\r\n", b"["),
            ExporterError,
            "answer is over 32 MiB; pass the exporter's",
        ),
        (then_hang_up(b""), ExporterError, "closed the connection"),
        (then_hang_up(b"220 mail.example ESMTP\r\n"), ExporterError, "does not speak HTTP"),
    ],
)
def test_whatever_sits_on_the_port_is_bounded(
    monkeypatch: pytest.MonkeyPatch, respond: Respond, kind: type[ExporterError], message: str
) -> None:
    """The limit is for the whole answer, however slowly it comes; every other end is named."""
    if kind is NoExporterError:
        monkeypatch.setattr(inspection, "_SECONDS", 0.5)
    with serving(respond) as other, pytest.raises(ExporterError, match=message) as caught:
        RunningExporter(other.url).status()
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "url", ["exporter:9843", "http://a..b:9843", "http://127.0.0.1:99999", "http://a b/"]
)
def test_an_address_that_is_none_has_no_exporter(url: str) -> None:
    """Shell completion takes the address from the environment, where no flag has checked it."""
    with pytest.raises(NoExporterError, match="no exporter answers at"):
        RunningExporter(url).events()


def test_imds_is_asked_if_its_endpoint_is_given(build: Build) -> None:
    """With --imds.endpoint no exporter is asked, even if one runs."""
    bench = build()
    words = ["--exporter.url", bench.app.url, "--imds.endpoint", bench.imds.url, "--json"]
    done = subprocess.run([*PROGRAM, *words], capture_output=True, timeout=120, check=True)
    assert json.loads(done.stdout)["source"] == "imds"
