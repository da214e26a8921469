"""What ends the program by itself: what the check of targets finds at the start, and a poll that hangs."""

import json
import signal
from pathlib import Path

import pytest

from tests.builders import body
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.http_server import answer, serving

HELD = "tests.end_to_end.held"
IDLE = answer(body())
TEMPLATES = """
notifications:
  targets: [{name: a, url: "json://127.0.0.1:9/"}]
  templates: {title: "{{ event.nothing }}"}
"""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--notify", "foo://h4nd3lC4n4ry77"], "--notify: URL 1: Apprise knows no service foo://; see"),
        (
            ["--config.file", "FILE"],
            "FILE:4: notifications.templates.title: line 1 of the template: event.nothing is ",
        ),
    ],
)
def test_what_the_check_finds_ends_the_start(tmp_path: Path, flags: list[str], message: str) -> None:
    """An unusable address or template: status 2, and a line with the reason."""
    file, log, environ = tmp_path / "c.yml", tmp_path / "log", {"HELD_CHECK_SECONDS": "60"}
    file.write_text(TEMPLATES)
    flags = [flag.replace("FILE", str(file)) for flag in flags]
    with (
        serving(IDLE) as imds,
        exporter(
            imds.url, tmp_path / "state", free_port(), *flags, environ=environ, log=log, module=HELD
        ) as process,
    ):
        assert process.wait(60) == 2
    assert (
        log.read_text()
        .splitlines()[-1]
        .startswith(f"azure-scheduled-events-exporter: {message.replace('FILE', str(file))}")
    )
    assert "raceback" not in log.read_text()


def test_what_the_check_finds_later_is_a_problem_until_a_reload(tmp_path: Path) -> None:
    """It is named once, and gone with the mistake."""
    file, port = tmp_path / "c.yml", free_port()
    file.write_text(TEMPLATES)
    flags = ("--config.file", str(file), "--instance.name", "vm_0")
    environ = {"HELD_CHECK_SECONDS": "0"}
    with (
        serving(IDLE) as imds,
        exporter(imds.url, tmp_path / "state", port, *flags, environ=environ, module=HELD) as process,
    ):
        status = f"http://127.0.0.1:{port}/api/v1/status"
        (problem,) = eventually(lambda: json.loads(get(status))["problems"])
        assert problem.startswith(f"notifications_failing: {file}:4: notifications.templates.title: line 1")
        file.write_text(TEMPLATES.replace("event.nothing", "event.id"))
        process.send_signal(signal.SIGHUP)
        eventually(lambda: json.loads(get(status))["state"] == "ok")


def test_a_poll_that_hangs(tmp_path: Path) -> None:
    """Where no deadline helps, the process ends with status 1 for its supervisor, with a logged reason."""
    log, state, file = (tmp_path / name for name in ("log", "state", "exporter.yml"))
    file.write_text("imds: {timeout: 1s}\ninstance: {name: WestNO_0}\n")
    # Its main thread looks after the poll twice in that time.
    environ, flags = {"WATCHDOG_USEC": "1000000", "HELD_POLL_SECONDS": "1"}, ("--config.file", str(file))
    with exporter(
        "http://hangs.invalid", state, free_port(), *flags, environ=environ, log=log, module=HELD
    ) as process:
        assert process.wait(60) == 1
    (line,) = (line for line in log.read_text().splitlines() if "level=error" in line)
    assert "exiting, so that a supervisor can restart the exporter" in line
    assert "the poll has not ended within 1 s" in line
    assert "Traceback" not in log.read_text()
