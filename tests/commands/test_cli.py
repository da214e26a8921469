import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from exporter.cli import main
from tests.builders import FREEZE_ID
from tests.commands.test_events import running

URL = "json://user:secret-pass@host.example"
WRONG = ["127.0.0.1:9843", "ftp://u:secret@x", "http://a b", "http://x?a", "http://x#b", "http://\u202e"]
SHAPE = f"a text of {len(URL)} characters"


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
        (["run", URL], f"Got unexpected extra argument ({SHAPE})"),
        (["run", "a", URL], f"Got unexpected extra arguments (a {SHAPE})"),
        (["run", URL, f"{URL}/x"], f"arguments ({SHAPE} a text of {len(URL) + 2} characters)"),
        ([URL], SHAPE),
        ([f"--{URL}"], f"a text of {len(URL) + 2} characters"),
        (["run", f"--{URL}=x"], f"a text of {len(URL) + 2} characters"),
        (["run", "--log.level", URL], f"{SHAPE} is not one of 'debug', 'info', 'warning', 'error'."),
        (["run", f"--log.format={URL}"], f"{SHAPE} is not one of 'logfmt', 'json'."),
        (["run", "--poll.interval", URL], f"{SHAPE} is not a valid duration; "),
        (["run", "--imds.endpoint", URL], "is not a valid URL; write a URL without path, "),
        (["simulate", "--instances", URL], f"{SHAPE} is not a valid integer range."),
        (["simulate", "--speed", URL], f"{SHAPE} is not a valid float range."),
        (["simulate", "--instances", "0"], "0 is not in the range 1<=x<=1000."),
        (["simulate", "--speed", "0.09"], "0.09 is not in the range 0.1<=x<=10000."),
        (["notify-test", "--transition", URL], f"{SHAPE} is not one of 'advised', "),
        (["run", "--poll.interval", "10ms"], "10ms is out of range; "),
        (["run", "--config.file", "a.yml"], "a.yml: cannot be read: No such file or directory"),
        (["run", "--web.config.file", "a.yml"], "a.yml: cannot be read: No such file or directory"),
        (["run", "--web.listen-address", "nonsense"], "nonsense"),
        (["run", "--notify", "nonsense"], "--notify: URL 1: is not a valid URL; write it like mailto://"),
        (["demo", "--notify", "slack://x"], "--notify: URL 1: Apprise does not accept this slack:// URL"),
        (["run", "--log.level", "loud"], "'loud' is not one of 'debug', 'info', 'warning', 'error'."),
    ],
)
def test_an_error_does_not_repeat_what_may_be_a_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """Of a misplaced URL only the length is shown; other values are shown as they are."""
    assert message in error(monkeypatch, capsys, *words)


@pytest.mark.parametrize("text", WRONG)
def test_the_address_of_an_exporter_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """The error has the correct form and does not repeat the text, which may contain a password."""
    message = error(monkeypatch, capsys, "events", "--exporter.url", text)
    assert message.endswith(": is not a valid URL; write it like http://127.0.0.1:9843")


@pytest.mark.skipif(sys.platform == "win32", reason="file names are text there")
def test_what_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """A path that page, API and messages could not show is an error, wherever it is given."""
    path, shown = b"/nowhere/st\xffate", r"'/nowhere/st\udcffate'"
    (tmp_path / "config.yml").write_text("notifications: {targets: [{name: a, url: json://localhost}]}")
    for words, environ, message in (
        ([b"run", b"--state.directory", path], {}, f"the argument {shown} is not UTF-8 text; choose another"),
        ([b"approve", path], {}, f"the argument {shown} is not UTF-8 text; choose another"),
        (
            [b"run"],
            {b"SCHEDULED_EVENTS_STATE_DIRECTORY": path},
            "the variable SCHEDULED_EVENTS_STATE_DIRECTORY is not UTF-8 text; choose another value",
        ),
        (
            [b"run", b"--config.file", os.fsencode(tmp_path / "config.yml")],
            {b"STATE_DIRECTORY": path},
            f"the path of the state directory, {shown}, is not UTF-8 text; set state.directory",
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


def test_event_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Event ids are those that the running exporter lists; without one there are none."""
    with running() as url:
        monkeypatch.setenv("SCHEDULED_EVENTS_EXPORTER_URL", url)
        assert completed("approve", FREEZE_ID[:3].lower()) == [FREEZE_ID]
        assert completed("approve", FREEZE_ID, "") == []
    assert completed("approve", "") == []


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
        *(("doctor", "warning terminal"), ("check-config a.yml", "warning terminal")),
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
        ("SCHEDULED_EVENTS_LOG_LEVEL", "loud", "'loud' is not one of 'debug', 'info', 'warning', 'error'."),
        ("SCHEDULED_EVENTS_POLL_INTERVAL", "1 day", "'1 day' is not a valid duration; write it like 500ms,"),
        ("SCHEDULED_EVENTS_IMDS_ENDPOINT", "imds", "is not a valid URL; write a URL without path, like"),
        ("SCHEDULED_EVENTS_INSTANCE_NAME", "vm ", "begins or ends with a space; remove it"),
        ("SCHEDULED_EVENTS_WEB_ENABLE_LIFECYCLE", "perhaps", "'perhaps' is not a valid boolean."),
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
    assert "Invalid value for '--log.format': 'xml'" in capsys.readouterr().err


def test_the_log_level_in_capitals(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what many other programs take."""
    monkeypatch.setenv("SCHEDULED_EVENTS_LOG_LEVEL", "INFO")
    monkeypatch.setattr("exporter.logs.configure", lambda *how: sys.exit(" ".join(how)))
    with pytest.raises(SystemExit, match=r"^info json$"):
        main(["run", "--log.format", "JSON"])


@pytest.mark.parametrize("name", main.commands)
def test_help_lines_are_sentences(name: str) -> None:
    """Each explanation of a flag begins with a capital letter and ends with a full stop or a default."""
    command = main.commands[name]
    for option in command.params:
        if isinstance(option, click.Option):
            assert re.fullmatch(r"[A-Z].*(\.|\.  \[default: .*\])", option.help or "", re.DOTALL), option.name
            _, shown = option.get_help_record(click.Context(command)) or ("", "")
            is_set = isinstance(option.default, str | float) and not option.is_flag
            assert not is_set or "[default: " in shown
