import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.clock import SystemClock
from exporter.commands import events as inspection
from exporter.config import Config, Imds, Instance
from exporter.errors import ImdsError
from tests.builders import FREEZE_ID, REBOOT_ID, body, raw_event
from tests.end_to_end.program import INTERRUPTIBLE, eventually
from tests.http_server import Connection, Request, answer, serving

TWO = body(raw_event(), raw_event(EventId=REBOOT_ID, EventType="Reboot", Resources=["WestNO_9"]))
NAME = answer(b'{"compute": {"name": "WestNO_0"}}')
FAILURE = answer(status="500 Internal Server Error")


class Azure:
    """Answers with a document and a name, both of which can be replaced."""

    def __init__(self, document: bytes, name: bytes = NAME) -> None:
        self.document = document
        self.name = name

    def __call__(self, connection: Connection, request: Request) -> None:
        connection.send(self.name if "/instance" in request.path else self.document)


def settings(url: str, name: str = "") -> Config:
    return Config(imds=Imds(endpoint=url), instance=Instance(name=name))


def shown(
    azure: Azure, capsys: pytest.CaptureFixture[str], *, as_json: bool = False, name: str = ""
) -> tuple[str, str]:
    """Ask once; return output and warnings."""
    with serving(azure) as imds:
        inspection.show(
            settings(imds.url, name), SystemClock(), exporter_url=None, as_json=as_json, watch=False
        )
    return capsys.readouterr()


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One line of JSON: source, VM, incarnation, and the most urgent event first; their lives are unknown."""
    output, warnings = shown(Azure(answer(TWO)), capsys, as_json=True)
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
    azure = Azure(answer(TWO))
    with serving(azure) as imds, watching(imds.url, tmp_path) as (output, _):
        eventually(lambda: FREEZE_ID in output.read_text())
        azure.document = FAILURE
        eventually(lambda: "error: no usable answer: " in output.read_text())
        eventually(lambda: FREEZE_ID in output.read_text().partition("error: no usable answer: ")[2])
        assert "status 500" in " ".join(output.read_text().partition("error: ")[2].split())
        azure.document = answer(body(incarnation=2))
        eventually(lambda: "incarnation 2" in output.read_text())
        eventually(lambda: output.read_text().endswith("No events are pending.\n"))


def test_watching_in_json_gives_answers_only(tmp_path: Path) -> None:
    """A failure is reported on standard error, and the old answer is not printed again."""
    azure = Azure(FAILURE)
    with serving(azure) as imds, watching(imds.url, tmp_path, "--json") as (output, errors):
        eventually(lambda: errors.read_text().startswith("error: "))
        assert output.read_text() == ""
        azure.document = answer(TWO)
        eventually(lambda: output.read_text().endswith("\n"))
        assert json.loads(output.read_text().splitlines()[0])["document_incarnation"] == 1
