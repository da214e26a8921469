import subprocess
import sys
from pathlib import Path

import pytest

from exporter.commands.check_config import check_files

pytestmark = pytest.mark.usefixtures("checks_in_process")
# The list of hooks is left out, so that its other mistakes, and the hook that a rule requires, come later.
MANY = """\
imds:
  poll_interval: soon
  port: 80
notifications:
  targets:
    - {name: slack, url: "${NOT_THERE}"}
    - {name: c, url: foo://x}
    - {name: d, url: json://localhost}
    - {name: d, url: bar://x}
    - {name: e}
    - {name: f, webhook: "${HOST}${PATH_OF}", headers: {X: "${TOKEN_1}", Y: "${TOKEN_2}"}}
  routes:
    - {targets: [nobody, slakc], match: {min_notice: soon}}
    - {targets: []}
  templates: {title: "{{ even.id }}", body: "{{ event.id }} ${TEAM}"}
hooks:
  - {name: drain}
  - {name: drain, command: [], match: {min_notice: 2h, max_notice: 1h, windows: [{timezone: Europe/Berln}]}}
approval:
  max_per_hour: 0
  rules:
    - {name: x, action: approve, require_hooks: [unknown]}
    - {name: y, action: approve, match: {target: other, transitions: [started]}}
tracing: {enabled: of}
imds:
  poll_interval: sooner
"""

OTHER = '"other" never applies: an event that does not affect this VM is never approved; remove the key'
EXPECTED = [
    "6: notifications.targets[0].url: the environment has no variable NOT_THERE; set it, or use",
    "7: notifications.targets[1].url: Apprise knows no service foo://",
    "9: notifications.targets[3].name: 'd' is the name of notifications.targets[2], too; names must",
    "9: notifications.targets[3].url: Apprise knows no service bar://",
    "10: notifications.targets[4]: has no address; set one of url, url_file, tag or webhook",
    "11: notifications.targets[5].headers.X: the environment has no variable TOKEN_1; set it",
    "11: notifications.targets[5].headers.Y: the environment has no variable TOKEN_2; set it",
    "11: notifications.targets[5].webhook: the environment has no variable HOST; set it",
    "11: notifications.targets[5].webhook: the environment has no variable PATH_OF; set it",
    "13: notifications.routes[0].targets[0]: 'nobody' is not a target; correct it, or add it to ",
    "13: notifications.routes[0].targets[1]: 'slakc' is not a target; did you mean slack?",
    "13: notifications.routes[0].match.min_notice: 'soon' is not a valid duration; write it like ",
    "14: notifications.routes[1].targets: is empty; name at least one target",
    "15: notifications.templates.body: has a ${...}, which is replaced in addresses and headers of targets",
    "15: notifications.templates.title: line 1 of the template: even is unknown; there are event, ",
    "17: hooks[0].command: is missing; add it",
    "18: hooks[1].command: is empty; write it like ",
    "18: hooks[1].match.min_notice: is more than max_notice, so nothing matches; correct one of them",
    "18: hooks[1].match.windows[0].timezone: 'Europe/Berln' is not a known time zone; write it like ",
    "18: hooks[1].name: 'drain' is the name of hooks[0], too; names must be unique",
    "20: approval.max_per_hour: must be at least 1; to approve nothing, set approval.mode to off",
    f"23: approval.rules[1].match.target: {OTHER}",
    "23: approval.rules[1].match.transitions: has no meaning here: use statuses",
    "24: tracing.enabled: 'of' is not supported; did you mean off?",
    "25: imds: is set twice, first on line 1; keep one",
    "26: imds.poll_interval: 'sooner' is not a valid duration; write it like 500ms, 1s, 15m, 1h30m or 7d",
]


def check(folder: Path, text: str, web: str | None = None) -> int:
    file = folder / "exporter.yml"
    file.write_text(text)
    if web is None:
        return check_files([file], None)
    (folder / "web.yml").write_text(web)
    return check_files([file], folder / "web.yml")


def test_every_mistake_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its line, in the file's order; what others may have caused is not reported."""
    assert check(tmp_path, MANY) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    lines = [line.removeprefix(f"{tmp_path / 'exporter.yml'}:") for line in errors.splitlines()]
    assert len(lines) == len(EXPECTED), errors
    for expected in EXPECTED:
        assert any(line.startswith(expected) for line in lines), expected
    assert [int(line.partition(":")[0]) for line in lines] == [int(one.partition(":")[0]) for one in EXPECTED]


def test_the_web_configuration_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All its mistakes are reported, in addition to those of the other file."""
    web = "tls_server_config: {cert_file: missing.pem}\nbasic_auth_users: {ann: secret-1}\nunknown: 1\n"
    assert check(tmp_path, "imds: {port: 1}\n", web) == 1
    errors = capsys.readouterr().err
    assert "exporter.yml:1: imds.port: unknown key" in errors
    for place in ("3: unknown", "1: tls_server_config.key_file", "2: basic_auth_users.ann"):
        assert f"web.yml:{place}: " in errors
    assert "secret" not in errors
    assert check(tmp_path, "", "basic_auth_users: {}\n") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / name}: ok" for name in ("exporter.yml", "web.yml")
    ]


def test_a_setting_without_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a warning, with its line, and the exit status stays 0; test_advice has them all."""
    assert check(tmp_path, "\nhooks: [{name: h, command: [/nowhere/x]}]\n") == 0
    file = tmp_path / "exporter.yml"
    warning = f"warning: {file}:2: hooks[0].command: the program does not exist\n"
    assert capsys.readouterr() == (f"{file}: ok\n", warning)


def test_doubts_come_with_mistakes(tmp_path: Path) -> None:
    """What is wrong comes first, and one pass tells both."""
    file = tmp_path / "exporter.yml"
    secret = "in_service: {match: {event_types: [reboot]}}\nnotifications: {targets: [{name: a, url: 'json://a:b@h'}]}"
    file.write_text(f"{secret}\nweb: {{port: 1}}\nhooks: [{{name: h, command: [/nowhere/x]}}]\n")
    file.chmod(0o644)
    command = [sys.executable, "-m", "exporter", "check-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    wrong, unknown, readable, useless = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert wrong.startswith(f"{file}:3: web.port: unknown key")
    assert unknown.startswith("warning: unknown event type")
    said, _, remedy = readable.partition("; ")
    assert said == f"warning: file with secrets is readable by all users: {file}"
    assert remedy.startswith("write ${NAME} instead")
    assert useless == f"warning: {file}:4: hooks[0].command: the program does not exist"


def test_the_command(tmp_path: Path) -> None:
    """It takes the web configuration alone, and refuses to check nothing."""
    web = tmp_path / "web.yml"
    web.write_text("")
    for words, status, text in (
        (["--web.config.file", str(web)], 0, f"{web}: ok"),
        ([], 2, "Missing argument 'FILE...', or --web.config.file."),
        ([str(tmp_path / "missing.yml")], 1, "missing.yml: cannot be read: No such file or directory"),
    ):
        command = [sys.executable, "-m", "exporter", "check-config", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, text in done.stdout + done.stderr) == (status, True)


def test_the_services_of_a_tag_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With those of included files, so that a loss shows."""
    (tmp_path / "more").write_text("oncall=json://h/1\noncall,chat=json://h/2\n")
    (tmp_path / "apprise").write_text("include ./more\noncall=json://h/3\n")
    targets = "[{name: a, tag: oncall}, {name: b, tag: chat}]"
    assert (
        check(tmp_path, f"notifications: {{apprise_config: {tmp_path / 'apprise'}, targets: {targets}}}") == 0
    )
    file = tmp_path / "exporter.yml"
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: target a: 3 services with the tag oncall",
        f"{file}: target b: 1 service with the tag chat",
        f"{file}: ok",
    ]


def test_a_mistake_in_one_of_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is that of a mistake, and the others are still said to be valid."""
    good, bad = tmp_path / "good.yml", tmp_path / "bad.yml"
    good.write_text("")
    bad.write_text("nonsense: true")
    assert check_files([bad, good], None) == 1
    assert capsys.readouterr().out == f"{good}: ok\n"
