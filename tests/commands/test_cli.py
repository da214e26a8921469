import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from exporter.cli import main

URL = "json://user:secret-pass@host.example"
WRONG = ["127.0.0.1:9843", "ftp://u:secret@x", "http://a b", "http://x?a", "http://x#b", "http://\u202e"]
EXTRA = "Error: Got an unexpected argument; write a flag before each value."


def error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["program", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    shown = capsys.readouterr().err
    assert "secret" not in shown
    return shown.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", URL], EXTRA),
        (["run", "a", URL, f"{URL}/x"], EXTRA),
        ([URL], "Error: No such command."),
        (["rum"], "Error: No such command. Did you mean 'run'?"),
        ([f"--{URL}"], "Error: No such option '--json'."),
        (["run", f"--{URL}=x"], "Error: No such option '--json'."),
        (
            ["run", "--config.fil=x"],
            "Error: No such option '--config.fil'. (Did you mean one of: '--config.file', ",
        ),
        (["run", "--log.level", URL], "'--log.level': must be one of: debug, info, warning, error"),
        (["run", f"--log.format={URL}"], "'--log.format': must be one of: logfmt, json"),
        (
            ["run", "--poll.interval", URL],
            "'--poll.interval': the value is not a valid duration; write it like 500ms,",
        ),
        (["run", "--poll.interval", "10ms"], "'--poll.interval': '10ms' is out of range; "),
        (
            ["run", "--imds.endpoint", URL],
            "'--imds.endpoint': the value is not a valid URL; write a URL without path, ",
        ),
        (
            ["run", "--instance.name", URL],
            "'--instance.name': the value is a URL, which is not possible here",
        ),
        *(
            (["simulate", "--instances", value], "'--instances': must be a number from 1 to 1000")
            for value in (URL, "0")
        ),
        *(
            (["simulate", "--speed", value], "'--speed': must be a number from 0.1 to 10000")
            for value in (URL, "0.09")
        ),
        (
            ["simulate", "--scenario", URL],
            "--scenario: the value is not a scenario; must be one of: live-migration, ",
        ),
        (
            ["notify-test", "--target", URL],
            "'--target': the value is a URL, and names appear in logs and metrics; ",
        ),
        (["notify-test", "--transition", URL], "'--transition': must be one of: advised, "),
        (["run", "--config.file", "a.yml"], "a.yml: cannot be read: No such file or directory"),
        (["run", "--web.config.file", "a.yml"], "a.yml: cannot be read: No such file or directory"),
        (["run", "--web.listen-address", URL], "--web.listen-address: the value is not HOST:PORT; use"),
        (["run", "--notify", "nonsense"], "--notify: URL 1: is not a valid URL; write it like mailto://"),
        (["demo", "--notify", "slack://x"], "--notify: URL 1: Apprise does not accept this slack:// URL"),
        *(
            (["events", "--exporter.url", text], " is not a valid URL; write it like http://127.0.0.1:9843")
            for text in WRONG
        ),
    ],
)
def test_an_error_names_the_flag_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """A value that looks like an address is not repeated: it may be a secret in the wrong place."""
    assert message in error(monkeypatch, capsys, *words)


@pytest.mark.skipif(sys.platform == "win32", reason="file names are text there")
def test_what_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """A path that page, API and messages could not show is an error, wherever it is given."""
    path = b"/nowhere/st\xffate"
    (tmp_path / "config.yml").write_text("notifications: {targets: [{name: a, url: json://localhost}]}")
    for words, environ, message in (
        ([b"run", b"--state.directory", path], {}, "argument 3 is not UTF-8 text; choose another"),
        ([b"approve", path], {}, "argument 2 is not UTF-8 text; choose another"),
        (
            [b"run"],
            {b"SCHEDULED_EVENTS_STATE_DIRECTORY": path},
            "the variable SCHEDULED_EVENTS_STATE_DIRECTORY is not UTF-8 text; choose another value",
        ),
        (
            [b"run", b"--config.file", os.fsencode(tmp_path / "config.yml")],
            {b"STATE_DIRECTORY": path},
            "the path of the state directory is not UTF-8 text; set state.directory",
        ),
    ):
        command = [os.fsencode(sys.executable), b"-m", b"exporter", *words]
        done = subprocess.run(command, env={**os.environb, **environ}, capture_output=True, check=False)
        assert (done.returncode, message in done.stderr.decode()) == (2, True), done.stderr.decode()
        assert "Traceback" not in done.stderr.decode()


def test_an_output_that_cannot_be_written() -> None:
    """A full disk ends a command with status 1 and one line."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "exporter", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith(": the output cannot be written: No space left on device\n")
    assert done.stderr.count("\n") == 1


def completed(*words: str) -> list[str]:
    *before, last = words
    found = ShellComplete(main, {}, "azure-scheduled-events-exporter", "_X").get_completions(
        list(before), last
    )
    return [item.value for item in found]


def test_targets_and_scenarios(tmp_path: Path) -> None:
    """Targets are those of the configuration file; without one there are none."""
    file = tmp_path / "c.yml"
    file.write_text("notifications: {targets: [{name: oncall, url: x}, {name: chat, url: x}]}")
    assert completed("notify-test", "--config.file", str(file), "--target", "ON") == ["oncall"]
    assert completed("notify-test", "--config.file", str(tmp_path), "--target", "") == []
    assert completed("simulate", "--scenario", "live") == ["live-migration"]


@pytest.mark.parametrize(
    ("words", "style"),
    [
        *(("run", "info logfmt"), ("demo", "warning logfmt"), ("notify-test", "warning logfmt")),
        *(("doctor", "warning terminal"), ("run --log.level INFO --log.format JSON", "info json")),
    ],
)
def test_how_commands_log(monkeypatch: pytest.MonkeyPatch, words: str, style: str) -> None:
    """From the beginning; those that people run say only what is wrong."""
    monkeypatch.setattr("exporter.logs.configure", lambda *how: sys.exit(" ".join(how)))
    with pytest.raises(SystemExit, match=f"^{style}$"):
        main(words.split())


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("SCHEDULED_EVENTS_LOG_LEVEL", "too loud", "must be one of: debug, info, warning, error"),
        ("SCHEDULED_EVENTS_POLL_INTERVAL", "1 day", "'1 day' is not a valid duration; write it like 500ms,"),
        (
            "SCHEDULED_EVENTS_IMDS_ENDPOINT",
            "imds",
            "'imds' is not a valid URL; write a URL without path, like",
        ),
        ("SCHEDULED_EVENTS_INSTANCE_NAME", "vm ", "'vm ' begins or ends with a space; remove it"),
        ("SCHEDULED_EVENTS_WEB_ENABLE_LIFECYCLE", "perhaps", "must be true or false"),
    ],
)
def test_errors_name_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, fault: str
) -> None:
    """A value of the environment is named by its variable, one of the command line by its flag."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["run"])
    assert f"Invalid value for {name}: {fault}" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["run", "--log.format", "xml"])
    assert (
        "Invalid value for '--log.format': 'xml' is not one of 'logfmt', 'json'." in capsys.readouterr().err
    )
