import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from apprise import Apprise

from exporter.config.addresses import Address, NotifyUrls, shown
from exporter.errors import ConfigurationError
from exporter.outputs.notifications import checking
from exporter.outputs.notifications.planning import Plan
from exporter.outputs.notifications.protocol import Checked, CheckTarget
from exporter.outputs.notifications.sender import SenderProcess
from tests.configs import checked

pytestmark = pytest.mark.usefixtures("checks_in_process")
CANARY = "canary0123456789abcdef"
SLACK_FORM = "write it like slack://{token_a}/{token_b}/{token_c}"
NOT_TAKEN = f"Apprise does not accept this slack:// URL: {{token_b}} is missing; {SLACK_FORM}"
UNKNOWN = "Apprise knows no service foo://; see the list in its documentation"
ONLY_NAMES = "${...} must contain only the name of a variable; use ${NAME}"
NO_TEMPLATE = "line 1 of the template: Expected an expression, got 'end of statement block'"
# What Apprise names of a URL: the first part that is missing or malformed, and the form of the whole.
MALFORMED = (
    ("slack://CANARY/-CANARY/x", f"slack:// URL: {{token_b}} is malformed; {SLACK_FORM}"),
    ("mailto://u", "mailto:// URL; write it like mailto://user:password@example.com?to=oncall@example.com"),
    (
        "mailto://u:CAN@ARY@gmail.com",
        (
            "mailto:// URL; write it like mailto://user:password@example.com?to=oncall@example.com; "
            "write @ in a user name or password as %40"
        ),
    ),
)
INCOMPLETE = (
    "Apprise does not recognize this https:// URL, or part of it is missing; copy all of it, or use the "
    "service's own scheme, such as slack://"
)
NO_PLACE = "is a URL; set it as a target's url"
NO_URL = "is not a valid URL; write it like mailto://user:password@example.com"


def target(keys: str) -> str:
    """Return a configuration with a target of these keys."""
    return f"notifications: {{targets: [{{name: a, {keys}}}]}}"


def plan(folder: Path, text: str, urls: tuple[str, ...] = (), **environ: str) -> Plan:
    file = folder / "c.yml"
    file.write_text(text)
    return checked(file, environ, urls)[1]


def refused(folder: Path, text: str, urls: tuple[str, ...] = (), **environ: str) -> str:
    """Return the error about a configuration, without the page of the service, which Apprise has."""
    with pytest.raises(ConfigurationError) as caught:
        plan(folder, text, urls, **environ)
    assert CANARY not in str(caught.value)
    return re.sub("; see https://[^ ]+$", "", str(caught.value))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("url: '${ONCALL}'", "url: the environment has no variable ONCALL; set it, or use url_file"),
        ("url: '${EMPTY}'", "url: the environment has no variable EMPTY; set it, or use url_file"),
        ("url: '${A:-json://u:CANARY@h/}'", f"url: {ONLY_NAMES}"),
        ("url: 'json://a.test/, slack://CANARY'", "url: Apprise does not accept this json:// URL"),
        ("url_file: 'json://u:CANARY@h/'", f"url_file: must be the path of a file, but {NO_PLACE}"),
        ("url_file: FOLDER/missing", "url_file: the file cannot be read: No such file or directory"),
        ("url_file: FOLDER/empty", "url_file: the file is empty; it must contain one Apprise URL"),
        ("url_file: FOLDER/two", "url_file: the file has more than one URL; it must contain one Apprise URL"),
        ("url: CANARY", f"url: {NO_URL}"),
        ("url: $CANARY", "url: is not a URL; write a variable as ${NAME}"),
        ("url: 'foo://CANARY'", f"url: {UNKNOWN}"),
        ("url_file: FOLDER/bad", f"url_file: {NOT_TAKEN}"),
        *((f"url: '{url}'", f"url: Apprise does not accept this {reason}") for url, reason in MALFORMED),
        ("url: 'https://hooks.slack.com/services/CANARY'", f"url: {INCOMPLETE}"),
        ("url: 'json://h/', templates: {body: '{% if %}'}", f"templates.body: {NO_TEMPLATE}"),
    ],
)
def test_targets_that_are_refused(tmp_path: Path, keys: str, message: str) -> None:
    """Errors have file, line, key and remedy, and not the secret; of a URL they name what is wrong."""
    for name, content in {"empty": " \n", "two": "json://a/ json://b/", "bad": f"slack://{CANARY}"}.items():
        (tmp_path / name).write_text(content)
    keys = keys.replace("FOLDER", str(tmp_path)).replace("CANARY", CANARY)
    place = f"{tmp_path / 'c.yml'}:1: notifications.targets[0]."
    assert refused(tmp_path, target(keys), EMPTY="") == place + message.replace("FOLDER", str(tmp_path))


ODD = 'a@b:c/d?e#f&g;[h]%"<> '


@pytest.mark.parametrize(
    ("url", "value", "expected"),
    [
        ("json://u:${V}@h.test", ODD, f"json://u:{quote(ODD, safe='')}@h.test"),
        ("webhook: https://u:${V}@h.test/${V}", "a@b", "https://u:a%40b@h.test/a@b"),
        ("json://h.test/a,ntfy://${V}:p@h.test/b", "/", "json://h.test/a,ntfy://%2F:p@h.test/b"),
        # Of user name and password together the first colon stays.
        ("json://${V}@h.test", "ann:p@ss:word", "json://ann:p%40ss%3Aword@h.test"),
        ("slack://${V}", f"T1JJ3T3L2/A1BRTD4JD/{CANARY}/#a", f"slack://T1JJ3T3L2/A1BRTD4JD/{CANARY}/#a"),
        ("mailto://u:p@h.test?to=${V}", "a@a.test,b@a.test", "mailto://u:p@h.test?to=a@a.test,b@a.test"),
        ("${V}", " json://h.test/, json://i.test/", "json://h.test/, json://i.test/"),
        ("json://h.test/${V}/$1", "${V}", "json://h.test/${V}/$1"),
        ("json://u@${V}:8080/a@b", "h.test", "json://u@h.test:8080/a@b"),
    ],
)
def test_a_value_in_an_address(tmp_path: Path, url: str, value: str, expected: str) -> None:
    """No character of a user name or a password decides where a message goes; elsewhere all are kept."""
    key, _, text = url.rpartition(": ")
    address = plan(tmp_path, target(f"{key or 'url'}: '{text}'"), V=f"{value}\n").addresses["a"]
    assert (address.webhook or address.url) == expected


@pytest.mark.parametrize(
    "keys", ["url: 'json://u:${V}@h.test'", "webhook: 'https://h', headers: {X: '${V}'}"]
)
def test_a_value_with_a_control_character_is_refused(tmp_path: Path, keys: str) -> None:
    """No address or header can have one; the error names the variable alone."""
    fault = "contains a line break or another control character; remove it"
    found = refused(tmp_path, target(keys), V=f"{CANARY}\nX: y")
    assert found.endswith(f": the value of the variable V {fault}")


@pytest.mark.parametrize("service", ["mailto", "ntfy"])
def test_apprise_decodes_what_was_encoded(tmp_path: Path, service: str) -> None:
    """A service logs in with the very password that the variable has."""
    password = 'p@ss/w:o?r#d&;%41["<ü'
    url = plan(tmp_path, target(f"url: '{service}://ann:${{V}}@h.test/x'"), V=password).addresses["a"].url
    plugin: Any = Apprise.instantiate(url)
    assert (plugin.user, plugin.password, plugin.host) == ("ann", password, "h.test")


TEAMS = "is an address of Teams that no longer works; copy the new one from the workflow in Teams"
CONNECTOR = "is of a connector of Teams, and these are retired; use a workflow in Teams and copy its URL"
PLACEHOLDER = "has a placeholder such as INTEGRATION_KEY; write your own value in its place"
FLOW = f"prod-1.westus.logic.azure.com:443/workflows/643e69f83c8944{CANARY}"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"https://{FLOW}/triggers/manual/paths/invoke?sig={CANARY}", TEAMS),
        (f"workflows://{FLOW}/{CANARY}/", TEAMS),
        (f"https://a.webhook.office.com/webhookb2/{CANARY}", CONNECTOR),
        (f"msteams://team/{CANARY}/b/c/", CONNECTOR),
        ("pagerduty://INTEGRATION_KEY@unused", PLACEHOLDER),
        ("slack://TOKEN_A/TOKEN_B/TOKEN_C", PLACEHOLDER),
        (f"json://h.test/ mailtos://{CANARY}:PASSWORD@h.test", PLACEHOLDER),
    ],
)
def test_addresses_to_which_nothing_can_be_sent(tmp_path: Path, url: str, message: str) -> None:
    """Apprise accepts them, and each message would fail; a webhook of Logic Apps has the same host."""
    assert f": {message}" in refused(tmp_path, target("url: '${V}'"), V=url)
    hook = plan(tmp_path, target("webhook: '${V}'"), V=f"https://{FLOW}").addresses["a"]
    assert hook.webhook == f"https://{FLOW}"
    plan(tmp_path, "", ("json://u:tokens@h.test/MY_KEYS", "json://h.test/a_TOKEN"))


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        (("json://a/", "  "), "--notify: URL 2 is empty"),
        ((f"slack://{CANARY}",), f"--notify: URL 1: {NOT_TAKEN}"),
        (("json://a/", f"{CANARY}"), f"--notify: URL 2: {NO_URL}"),
    ],
)
def test_flags_that_are_refused(tmp_path: Path, urls: tuple[str, ...], message: str) -> None:
    """An error about a URL on the command line, or in the variable, has its position there."""
    assert refused(tmp_path, "", urls) == message
    if all(map(str.strip, urls)):
        variable = "SCHEDULED_EVENTS_NOTIFY"
        found = refused(tmp_path, "", urls, **{variable: " ".join(urls)})
        assert found == message.replace("--notify", variable)


def test_tags_of_an_apprise_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An existing Apprise configuration is used by tag; a tag that it does not have is refused."""
    file, place = tmp_path / "apprise.yml", f"{tmp_path / 'c.yml'}:1: notifications"
    file.write_text("urls:\n  - json://h/: [{tag: oncall}]\n")
    text = f"notifications: {{apprise_config: {file}, targets: [{{name: a, tag: oncall}}]}}"
    assert plan(tmp_path, text).addresses["a"].label == "tag oncall"
    assert "does not accept" not in caplog.text
    problem = "notifications.apprise_config has no service with this tag that Apprise accepts; add it there"
    assert refused(tmp_path, text.replace("oncall", "offcall")) == f"{place}.targets[0].tag: {problem}"
    for content, problem in (
        ("urls:\n  - json://h/\n     - {tag: oncall}\n", f"{file}:3: is not valid YAML: "),
        ("url:\n  - json://h/: [{tag: oncall}]\n", f"{place}.targets[0].tag: Apprise accepts no service in "),
    ):
        file.write_text(content)
        assert refused(tmp_path, text).startswith(problem)
    missing = f"notifications: {{apprise_config: {tmp_path / 'missing.yml'}}}"
    assert refused(tmp_path, missing).startswith(f"{place}.apprise_config: the file cannot be read: No such")


CANNOT = "the file cannot be read"
FURTHER = "includes further files, which is not possible there; include them in"


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.yml", "include: missing.yml", f"FOLDER/missing.yml: {CANNOT}: No such file or directory"),
        ("a.cfg", "include ./large", f"FOLDER/large: {CANNOT}: it has more than 64 KiB"),
        ("a.cfg", "include ./binary", f"FOLDER/binary: {CANNOT}: it is not text"),
        (
            "a.cfg",
            "\n include nested",
            "FOLDER/a.cfg:2: Apprise takes this for tags; write include ./ before",
        ),
        ("a.cfg", "include ./fifo", f"FOLDER/fifo: {CANNOT}: it is not a regular file"),
        ("a.cfg", "include ./nested", f"FOLDER/nested: {FURTHER} FOLDER/a.cfg"),
        ("a.cfg", "include wrong.yml", "FOLDER/wrong.yml:3: is not valid YAML: expected ',' or '}'"),
        (
            "a.yml",
            f"include: ['HTTPS://u:{CANARY}@h.test/x']",
            "FOLDER/a.yml: includes a URL; only local files can be included",
        ),
    ],
)
def test_faults_of_apprise_files(tmp_path: Path, name: str, content: str, fault: str) -> None:
    """A file that loses services is refused; nothing is fetched, and reading is bounded."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_text("x=json://h.test\n" * 5000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "nested").write_text("include ./large\nx=json://h.test\n")
    (tmp_path / "wrong.yml").write_text("urls:\n- {a: {{ b }}\n")
    (tmp_path / name).write_text(content)
    text = f"notifications: {{apprise_config: {tmp_path / name}, targets: [{{name: a, tag: x}}]}}"
    place = f"{tmp_path / 'c.yml'}:1: notifications.targets[0].tag: "
    assert refused(tmp_path, text).startswith(place + fault.replace("FOLDER", str(tmp_path)))


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
    text = f"notifications: {{apprise_config: '{path}', targets: [{{name: a, tag: '{tag}'}}]}}"
    assert refused(tmp_path, text) == f"{tmp_path / 'c.yml'}:1: notifications.{place}, but {NO_PLACE}"


def test_services_of_a_file_that_are_not_taken_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with some invalid services is used; a warning about those is logged once."""
    monkeypatch.setattr(checking, "SenderProcess", SenderProcess)
    file = tmp_path / "apprise.yml"
    wrong = "".join(f"  - {scheme}://{CANARY}: [{{tag: x}}]\n" for scheme in ("slack", "foo"))
    more = tmp_path / "more"
    more.write_text("x=json://i/\n")
    file.write_text(f"include: more\nurls:\n  - json://h/: [{{tag: [x, y]}}]\n{wrong}")
    file.chmod(0o600)
    targets = "[{name: a, tag: x}, {name: b, tag: y}]"
    found = plan(tmp_path, f"notifications: {{apprise_config: {file}, targets: {targets}}}")
    assert found.services == {"a": 2, "b": 1}
    readable, record = caplog.records
    assert readable.getMessage() == "file with secrets is readable by all users"
    assert vars(readable)["path"] == more
    assert record.getMessage() == "file contains services that Apprise does not accept"
    assert (vars(record)["path"], vars(record)["count"]) == (str(file), 2)
    assert CANARY not in caplog.text


def test_misspelt_parameters_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Apprise ignores them without a word; the warning says which is likely to be meant."""
    url = (
        "mailto://u:p@h.test?too=a@h.test&formatt=text&from=b@h.test&Mode=ssl&+Too=x json://i.test?x=1&-too=1"
    )
    native = f"https://discord.com/api/webhooks/123456789012345678/{'a' * 68}?formatt=text"
    plan(tmp_path, target(f"url: '{url}'"), (native,))
    problems = [vars(one)["problem"] for one in caplog.records if one.getMessage() == "unknown parameter"]
    place = f"{tmp_path / 'c.yml'}:1: notifications.targets[0].url"
    problem = "has a parameter that the service does not know; did you mean"
    assert problems == [f"{place}: {problem} to?", f"{place}: {problem} format?"]


def test_what_cannot_be_checked_is_no_mistake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says what, and why."""
    process = SenderProcess({})
    process.stop()
    monkeypatch.setattr(checking, "SenderProcess", lambda *_: process)
    target = "{name: a, url: 'json://h/', templates: {body: B}}"
    found = plan(tmp_path, f"notifications: {{templates: {{title: T}}, targets: [{target}]}}")
    assert found.incidents == {"a": True}
    logged = [vars(one) for one in caplog.records if one.getMessage() == "cannot be checked"]
    assert {one["reason"] for one in logged} == {"the exporter is stopping"}
    places = ["target a", "notifications.templates.title", "notifications.targets[0].templates.body"]
    assert [one["what"] for one in logged] == places


def test_a_template_with_a_gap_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is used, and fails only where Azure leaves something out."""
    plan(tmp_path, "notifications: {templates: {title: '{{ event.not_before.year }}'}}")
    gap = vars(caplog.records[-1])
    assert gap["message"] == "template fails for events with missing values"
    assert (gap["key"], gap["reason"][:32]) == (
        "notifications.templates.title",
        "line 1 of the template: 'None' h",
    )
    assert gap["remedy"].startswith("such messages are sent with the built-in text; put {% if %} around")


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("json://u:secret@example.com:80/x", "json://example.com"),
        ("json://u:p@secret.word@example.com/", "json://..."),
        ("json://first.last:se?cret@example.com/", "json://..."),
        ("mailto://u:p@mail.example.com?to=ops@example.com", "mailto://mail.example.com"),
        ("slack://secret.token/", "slack://..."),
        ("ntfy://topic", "ntfy://..."),
        ("46elks://user:secret@+15551234567", "46elks://..."),
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


def test_nothing_in_the_current_directory_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is done by the modules of this program, wherever it is started; its process ends after it."""
    (tmp_path / "msgspec.py").write_text("import pathlib\npathlib.Path('has-run').touch()\n")
    monkeypatch.chdir(tmp_path)
    process = SenderProcess(dict(os.environ))
    monkeypatch.setattr(checking, "SenderProcess", lambda *_: process)
    plan(tmp_path, "", ("json://h/",))
    assert not (tmp_path / "has-run").exists()
    stopped = process.ask(CheckTarget(Address("a")))
    assert stopped == Checked(failure="the exporter is stopping")
