"""Tests of `exporter.notifications.addresses` and `planning`: finding targets, and what is refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exporter.config import Overrides, loading
from exporter.errors import ConfigurationError, Mistakes
from exporter.notifications import planning, services
from exporter.notifications.addresses import Address, NotifyUrls, resolve, shown
from exporter.notifications.planning import Plan
from tests.end_to_end.program import eventually

CANARY = "canary0123456789abcdef"
NOT_TAKEN = "Apprise does not take this slack:// URL; see the service's page in its documentation"
UNKNOWN = "Apprise knows no service foo://; see the list in its documentation"
ONLY_NAMES = "between ${ and } only the name of a variable may stand; use ${NAME}"
NO_PLACE = "is a URL; give that as a target's url"
NO_URL = "is not a valid URL; write it like mailto://user:password@example.com"


def plan(folder: Path, text: str, urls: tuple[str, ...] = (), **environ: str) -> Plan:
    """Load a configuration, and plan what it asks for."""
    file = folder / "c.yml"
    file.write_text(text)
    return planning.load(file, Overrides(), urls, environ)[1]


def url_of(folder: Path, target: str, **environ: str) -> str:
    """Return the URL that a target resolves to."""
    file = folder / "c.yml"
    file.write_text(f"notifications: {{targets: [{{name: a, {target}}}]}}")
    mistakes = Mistakes()
    settings, locate = loading.load_located(file, Overrides(), mistakes)
    found = resolve(settings.notifications, (), locate, environ, mistakes)
    mistakes.check()
    (address,) = found
    return address.url


def test_where_a_url_comes_from(tmp_path: Path) -> None:
    """It stands in the file, in a variable of the environment, or in a file of its own."""
    secret = tmp_path / "secret"
    secret.write_text("json://in.file/\n")
    secret.chmod(0o600)
    assert url_of(tmp_path, "url: 'json://here/'") == "json://here/"
    assert url_of(tmp_path, "url: '${A}'", A="json://a/") == "json://a/"
    assert url_of(tmp_path, "url: 'json://${U}:${P}@h/$1'", U="u", P="${U}") == "json://u:${U}@h/$1"
    assert url_of(tmp_path, f"url_file: {secret}") == "json://in.file/"


def test_a_plan_has_every_target(tmp_path: Path) -> None:
    """Targets of the file and of --notify, each with the routes that lead to it."""
    text = "notifications: {targets: [{name: a, url: 'json://h/'}], retry_for: 1h}"
    found = plan(tmp_path, text, ("json://i/", "json://j/"))
    assert list(found.senders) == ["a", "notify-1", "notify-2"]
    assert [route.targets for route in found.routes] == [("a", "notify-1", "notify-2")]
    assert found.retry_for == 3600.0


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("url: '${ONCALL}'", "url: the environment has no variable 'ONCALL'; set it, or use url_file"),
        ("url: '${EMPTY}'", "url: the environment has no variable 'EMPTY'; set it, or use url_file"),
        ("url: '${A:-json://u:CANARY@h/}'", f"url: {ONLY_NAMES}"),
        ("url: '${json://u:CANARY@h/}'", f"url: {ONLY_NAMES}"),
        ("url: 'json://a.test/, slack://CANARY'", f"url: {NOT_TAKEN.replace('slack', 'json')}"),
        ("url_file: 'json://u:CANARY@h/'", f"url_file: must be the path of a file, but {NO_PLACE}"),
        ("url_file: FOLDER/missing", "url_file: the file cannot be read: No such file or directory"),
        ("url_file: FOLDER/empty", "url_file: the file is empty; put one Apprise URL there"),
        ("url_file: FOLDER/two", "url_file: the file has more than one URL; put one Apprise URL there"),
        ("url: CANARY", f"url: {NO_URL}"),
        ("url: 'foo://CANARY'", f"url: {UNKNOWN}"),
        ("url: 'slack://CANARY'", f"url: {NOT_TAKEN}"),
        ("url_file: FOLDER/bad", f"url_file: {NOT_TAKEN}"),
    ],
)
def test_targets_that_are_refused(tmp_path: Path, target: str, message: str) -> None:
    """Errors have file, line, key and remedy, and not the secret."""
    for name, content in {"empty": " \n", "two": "json://a/ json://b/", "bad": f"slack://{CANARY}"}.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o600)
    target = target.replace("FOLDER", str(tmp_path)).replace("CANARY", CANARY)
    with pytest.raises(ConfigurationError) as caught:
        plan(tmp_path, f"notifications: {{targets: [{{name: a, {target}}}]}}", EMPTY="")
    place = f"{tmp_path / 'c.yml'}:1: notifications.targets[0]."
    assert str(caught.value) == place + message.replace("FOLDER", str(tmp_path))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        (("json://a/", "  "), "--notify: URL 2 is empty"),
        ((f"slack://{CANARY}",), f"--notify: URL 1: {NOT_TAKEN}"),
        (("json://a/", f"{CANARY}"), f"--notify: URL 2: {NO_URL}"),
    ],
)
def test_flags_that_are_refused(tmp_path: Path, urls: tuple[str, ...], message: str) -> None:
    """An error about a URL on the command line has its position there."""
    with pytest.raises(ConfigurationError) as caught:
        plan(tmp_path, "", urls)
    assert str(caught.value) == message


def test_tags_of_an_apprise_file(tmp_path: Path) -> None:
    """An existing Apprise configuration is used by tag; a tag that it does not have is refused."""
    file = tmp_path / "apprise.yml"
    file.write_text("urls:\n  - json://h/: [{tag: oncall}]\n")
    text = "notifications: {{apprise_config: {}, targets: [{{name: a, tag: {}}}]}}"
    assert list(plan(tmp_path, text.format(file, "oncall")).senders) == ["a"]
    with pytest.raises(ConfigurationError) as caught:
        plan(tmp_path, text.format(file, "offcall"))
    problem = "notifications.apprise_config has no service with this tag that Apprise takes; add it there"
    assert str(caught.value) == f"{tmp_path / 'c.yml'}:1: notifications.targets[0].tag: {problem}"
    with pytest.raises(
        ConfigurationError, match=r"1: notifications\.apprise_config: the file cannot be read: No such"
    ):
        plan(tmp_path, text.format(tmp_path / "missing.yml", "oncall"))


@pytest.mark.parametrize(
    ("file", "tag", "place"),
    [
        (f"json://u:{CANARY}@h/", "x", "apprise_config: must be the path of a file"),
        ("apprise.yml", f"json://u:{CANARY}@h/", "targets[0].tag: must be a tag"),
    ],
)
def test_a_url_in_the_wrong_place_is_not_shown(tmp_path: Path, file: str, tag: str, place: str) -> None:
    """Whoever puts the URL where a file or a tag belongs does not find it in the log."""
    (tmp_path / "apprise.yml").write_text("urls:\n  - json://h/: [{tag: x}]\n")
    path = file if "://" in file else tmp_path / file
    with pytest.raises(ConfigurationError) as caught:
        plan(tmp_path, f"notifications: {{apprise_config: '{path}', targets: [{{name: a, tag: '{tag}'}}]}}")
    assert str(caught.value) == f"{tmp_path / 'c.yml'}:1: notifications.{place}, but {NO_PLACE}"


def test_services_of_a_file_that_are_not_taken_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file with some invalid services is used; a warning about those is logged once."""
    file = tmp_path / "apprise.yml"
    wrong = "".join(f"  - {scheme}://{CANARY}: [{{tag: x}}]\n" for scheme in ("slack", "foo"))
    file.write_text(f"urls:\n  - json://h/: [{{tag: [x, y]}}]\n{wrong}")
    file.chmod(0o600)
    targets = "[{name: a, tag: x}, {name: b, tag: y}]"
    assert list(plan(tmp_path, f"notifications: {{apprise_config: {file}, targets: {targets}}}").senders)
    (record,) = caplog.records
    assert record.getMessage() == "file contains services that Apprise does not accept"
    assert (vars(record)["path"], vars(record)["count"]) == (str(file), 2)
    assert CANARY not in caplog.text


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("json://u:secret@example.com:80/x", "json://example.com"),
        ("json://u:p@secret.word@example.com/", "json://..."),
        ("json://u:p/secret.word@example.com/", "json://..."),
        ("json://first.last:se?cret@example.com/", "json://..."),
        ("json://first.last:123#cret@example.com/", "json://..."),
        ("mailto://u:p@mail.example.com?to=ops@example.com", "mailto://mail.example.com"),
        ("mailto://u:p@secret.word@mail.example.com", "mailto://..."),
        ("slack://secret.token/", "slack://..."),
        ("json://user:pass@host.example:80/path?a=b", "json://host.example"),
        ("jsons://127.0.0.1/path", "jsons://127.0.0.1"),
        ("mailto://user:pass@gmail.com", "mailto://gmail.com"),
        ("ntfy://topic", "ntfy://..."),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/", "slack://..."),
        ("tgram://123:abc/1", "tgram://..."),
        ("json://[::1", "json://..."),
        ("a secret", "no URL"),
    ],
)
def test_what_is_shown_of_a_url(url: str, label: str) -> None:
    """Scheme and host, and no host where it may be a token or part of a password."""
    assert shown(url) == label
    assert repr(Address("a", url=url)) == f"<a: {label}>"


def test_what_flags_say_is_not_shown() -> None:
    """The options of the program can be printed."""
    assert CANARY not in repr(NotifyUrls((CANARY,)))


def test_checking_goes_on_where_no_child_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an interpreter of its own the check is done in this process."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="URL 1: Apprise knows no service foo://"):
        plan(tmp_path, "", ("foo://x",))


def test_a_check_that_is_stopped_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is killed, nothing is wrong, and no further check begins."""
    started = tmp_path / "started"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 600\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    checker, found = services.Checker(), (Address("a", url="foo://x"),)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(checker.refused, found)
        eventually(started.exists)
        checker.stop()
        assert result.result(timeout=30) == []
    assert checker.refused(found) == []


def test_a_check_that_takes_too_long_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The targets are used unchecked, with a log message."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr(services, "_CHECK_SECONDS", 0.1)
    assert services.Checker().refused((Address("a", url="foo://x"),)) == []
    assert caplog.messages == ["target check timed out; using the targets unchecked"]


def test_nothing_in_the_current_directory_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is done by the modules of this program, wherever it is started."""
    (tmp_path / "msgspec.py").write_text("import pathlib\npathlib.Path('has-run').touch()\n")
    monkeypatch.chdir(tmp_path)
    plan(tmp_path, "", ("json://h/",))
    assert not (tmp_path / "has-run").exists()
