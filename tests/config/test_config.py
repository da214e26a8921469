import re
from pathlib import Path
from typing import Any

import pytest

from exporter import app, config
from exporter.config import Config, Mode, Overrides
from exporter.errors import ConfigurationError, Mistakes

REQUIRING = "{name: a, action: approve, require_hooks: [kubernetes.drain]}"


def read(folder: Path, text: str, **overrides: Any) -> Config:
    """Read a configuration whose addresses may have the variable TOKEN."""
    file, mistakes = folder / "c.yml", Mistakes()
    file.write_text(text)
    loaded = app.read(app.Options(file, Overrides(**overrides)), {"TOKEN": "secret"}, mistakes)
    mistakes.check()
    return loaded.config


@pytest.mark.parametrize(
    ("word", "mode"), [("off", Mode.OFF), ("on", Mode.ON), ('"true"', Mode.ON), ("dry_run", Mode.DRY_RUN)]
)
def test_modes(tmp_path: Path, word: str, mode: Mode) -> None:
    """Off and on are read, though YAML takes them for booleans."""
    assert read(tmp_path, f"approval: {{mode: {word}}}").approval.mode is mode


@pytest.mark.parametrize(
    ("word", "value"),
    [("auto", "auto"), ("on", True), ("no", False), ('"off"', False), ('"on"', True), ('"false"', False)],
)
def test_switches(tmp_path: Path, word: str, value: object) -> None:
    """On and off are the same with and without quotes, which tools such as Helm and Ansible add."""
    found = read(tmp_path, f"tracing: {{enabled: {word}}}\notlp: {{metrics: {word}, logs: {word}}}")
    assert (found.tracing.enabled, found.otlp.metrics, found.otlp.logs) == (value, value, value)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"{section}:" for section in Config.__struct_fields__),
        "notifications:\n  targets:\n  routes:\n  templates:",
        "approval: {mode: , rules: }",
        "in_service:\n  match:",
        "tracing: {enabled: }",
    ],
)
def test_a_section_with_nothing_in_it(tmp_path: Path, text: str) -> None:
    """Whoever comments out all keys of a section gets its defaults, or those of the section around it."""
    assert read(tmp_path, text) == Config()
    target = "{name: a, url: 'json://x', templates: {}}"
    assert (
        read(tmp_path, f"notifications: {{targets: [{target}]}}").notifications.targets[0].templates is None
    )


def test_flags_lie_over_the_file(tmp_path: Path) -> None:
    """Flags take precedence over the file, which has all other values."""
    text = "imds: {endpoint: discover, poll_interval: 5s}\ninstance: {name: a}\nstate: {directory: /a}"
    settings = read(tmp_path, text, imds_endpoint="http://b", state_directory="/b")
    assert (settings.imds.endpoint, settings.imds.poll_interval) == ("http://b", 5)
    assert (settings.instance.name, settings.state.directory) == ("a", "/b")
    settings = read(tmp_path, text, poll_interval=2, instance_name="")
    assert (settings.imds.endpoint, settings.imds.poll_interval) == ("discover", 2)
    assert settings.instance.name == ""
    assert app.load(None, Overrides(imds_endpoint="http://c")).imds.endpoint == "http://c"


def bad_configs() -> list[tuple[str, str]]:
    """Read the fixtures: each is a comment with the message, then the file."""
    fixtures = (Path(__file__).parent.parent / "bad_configs.yml").read_text()
    found = re.findall(r"^# (\d+: .*)\n((?:[^#].*\n)+)", fixtures, re.MULTILINE)
    return [(text, message) for message, text in found]


@pytest.mark.parametrize(("text", "message"), bad_configs())
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Everything that makes no sense is refused with file, line, key and remedy."""
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'c.yml'}:{message}"


@pytest.mark.parametrize(
    "text",
    [
        "approval: {max_per_hour: 1}",
        "hooks: [{name: h, command: [sh, '']}]",
        "in_service: {match: {min_notice: 5m, max_notice: 5m}}",
        "notifications: {targets: [{name: notify-me, url: 'json://x'}, {name: oncall-7, url: 'json://x'}]}",
        "notifications: {targets: [{name: a, webhook: 'https://a', headers: {X: ä}}]}",
        f"kubernetes: {{drain: {{enabled: true}}}}\napproval: {{rules: [{REQUIRING}]}}",
    ],
)
def test_what_is_taken(tmp_path: Path, text: str) -> None:
    """What is close to a mistake, but is none, is not refused."""
    read(tmp_path, text)


def test_where_the_state_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configured directory, else systemd's, else the user's place for state."""
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", "/home/a/state")
    assert config.state_directory(Config()) == Path("/home/a/state") / config.PROGRAM
    monkeypatch.delenv("XDG_STATE_HOME")
    assert config.state_directory(Config()) == Path.home() / ".local/state" / config.PROGRAM
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert config.state_directory(Config()) == Path("/var/lib") / config.PROGRAM
    monkeypatch.setenv("STATE_DIRECTORY", "/run/a:/run/b")
    assert config.state_directory(Config()) == Path("/run/a")
    assert config.state_directory(Config(state=config.State(directory="/c"))) == Path("/c")


def test_an_unknown_event_type_is_taken_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Azure may add types; the warning names file, line, key and the type that is meant, if it is a slip."""
    file = tmp_path / "c.yml"
    file.write_text("\nin_service: {match: {event_types: [Frezze, Evacuate]}}\n")
    loaded = app.read(app.Options(file), {}, Mistakes())
    loaded.warn()
    assert loaded.config.in_service.match.event_types == ("Frezze", "Evacuate")
    place = f"{file}:2: in_service.match.event_types"
    known = "Freeze, Reboot, Redeploy, Preempt, Terminate, SpotRebalanceRecommendation"
    assert [vars(record)["problem"] for record in caplog.records] == [
        f"{place}[0]: 'Frezze' is not a known event type; did you mean Freeze?",
        f"{place}[1]: 'Evacuate' is not a known event type; known are {known}",
    ]
