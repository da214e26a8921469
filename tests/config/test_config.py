"""Tests of `exporter.config`, its loading and checks: the whole file, its defaults, and what is refused."""

from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from exporter import config
from exporter.config import Config, Endpoint, Mode, Overrides, PollInterval, loading
from exporter.config.match import Whom
from exporter.errors import ConfigurationError, Mistakes
from exporter.timefmt import Duration

EVERYTHING = """
imds:
  endpoint: http://169.254.169.254
  api_version: "2020-07-01"
  poll_interval: 1s
  timeout: 10s
instance:
  name: ""
metrics:
  events: self
  resources: false
state:
  directory: ""
notifications:
  apprise_config: ""
  targets:
    - name: oncall
      url: ${ONCALL_URL}
  routes:
    - match: {event_types: [Reboot, Redeploy, Preempt, Terminate]}
      targets: [oncall]
  templates: {title: "{{ event.type }}", body: "{{ event.id }}", format: markdown}
  retry_for: 24h
approval:
  mode: off
  leader: first
  failover_after: 60s
  max_per_hour: 10
  rules:
    - name: short-freeze
      match: {event_types: [Freeze], max_duration: 8s}
      action: approve
      delay: 0s
      require_hooks: []
hooks:
  - name: drain
    match: {event_types: [Reboot], transitions: [scheduled]}
    command: ["/usr/local/bin/drain"]
    timeout: 5m
in_service:
  match: {event_types: [Reboot, Redeploy, Preempt, Terminate], max_notice: 5m}
tracing:
  enabled: auto
web:
  external_url: ""
"""


def read(folder: Path, text: str, **overrides: object) -> Config:
    """Load a file with this text."""
    file = folder / "c.yml"
    file.write_text(text)
    return loading.load(file, msgspec.convert(overrides, Overrides, dec_hook=lambda kind, value: kind(value)))


def test_every_key(tmp_path: Path) -> None:
    """Each documented key is read; what is written out as the default is the default."""
    settings = read(tmp_path, EVERYTHING)
    assert settings.imds == Config().imds
    assert settings.instance == Config().instance
    assert settings.metrics == Config().metrics
    assert settings.state == Config().state
    assert settings.in_service == Config().in_service
    assert settings.tracing == Config().tracing
    assert settings.web == Config().web
    assert msgspec.structs.replace(settings.approval, rules=()) == Config().approval
    assert settings.notifications.retry_for == Config().notifications.retry_for == Duration(86400)
    assert settings.notifications.targets[0].url == "${ONCALL_URL}"
    assert settings.notifications.routes[0].targets == ("oncall",)
    assert settings.approval.rules[0].match.max_duration == Duration(8)
    assert settings.hooks[0].command == ("/usr/local/bin/drain",)
    assert settings.hooks[0].timeout == config.Hook("a", ("b",)).timeout == Duration(300)


def test_a_match_with_every_key(tmp_path: Path) -> None:
    """Each key of a match is read."""
    text = """
in_service:
  match:
    event_types: [Freeze]
    event_sources: [User]
    statuses: [Started]
    target: any
    resources: ["web_*"]
    min_duration: 1s
    max_duration: 1m
    min_notice: 0s
    max_notice: 7d
    windows: [{days: [mon, tue], from: "22:00", to: "06:00", timezone: Europe/Berlin}]
"""
    match = read(tmp_path, text).in_service.match
    assert (match.event_types, match.event_sources, match.statuses) == (("Freeze",), ("User",), ("Started",))
    assert (match.target, match.resources) == (Whom.ANY, ("web_*",))
    assert (match.min_duration, match.max_duration, match.min_notice, match.max_notice) == tuple(
        map(Duration, (1, 60, 0, 604800))
    )
    assert match.windows is not None
    assert (match.windows[0].days, match.windows[0].start, match.windows[0].end) == (
        ("mon", "tue"),
        1320,
        360,
    )
    assert match.windows[0].timezone.info() == ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("word", "mode"),
    [("off", Mode.OFF), ("on", Mode.ON), ("false", Mode.OFF), ('"on"', Mode.ON), ("dry_run", Mode.DRY_RUN)],
)
def test_modes(tmp_path: Path, word: str, mode: Mode) -> None:
    """Off and on are read, though YAML takes them for booleans."""
    assert read(tmp_path, f"approval: {{mode: {word}}}").approval.mode is mode


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
    """Whoever comments out all keys of a section gets its defaults."""
    assert read(tmp_path, text) == Config()


def test_flags_lie_over_the_file(tmp_path: Path) -> None:
    """Flags take precedence over the file, which has all other values."""
    text = "imds: {endpoint: discover, poll_interval: 5s}\ninstance: {name: a}\nstate: {directory: /a}"
    settings = read(tmp_path, text, imds_endpoint="http://b", state_directory="/b")
    assert [str(settings.imds.endpoint), str(settings.imds.poll_interval)] == ["http://b", "5s"]
    assert (settings.instance.name, settings.state.directory) == ("a", "/b")
    settings = read(tmp_path, text, poll_interval=PollInterval(2), instance_name="")
    assert [str(settings.imds.endpoint), str(settings.imds.poll_interval)] == ["discover", "2s"]
    assert settings.instance.name == ""
    assert loading.load(None, Overrides(imds_endpoint=Endpoint("http://c"))).imds.endpoint == "http://c"


def test_a_name_that_is_no_text() -> None:
    """A VM name with bytes that no encoding has is refused, before it can do harm."""
    with pytest.raises(ConfigurationError, match=r"instance\.name: .* is not valid UTF-8"):
        loading.load(None, Overrides(instance_name="vm-\udcff"))


@pytest.mark.parametrize("letter", ["a", "ä", "𝄞"])
def test_a_name_is_as_long_as_names_in_documents_at_most(tmp_path: Path, letter: str) -> None:
    """256 characters are a name, in the file and as a flag; one more is an error where it stands."""
    longest = letter * 256
    assert read(tmp_path, f"instance: {{name: {longest}}}").instance.name == longest
    assert loading.load(None, Overrides(instance_name=longest)).instance.name == longest
    message = "instance.name: has 257 characters; at most 256 are allowed"
    with pytest.raises(ConfigurationError) as caught:
        loading.load(None, Overrides(instance_name=longest + letter))
    assert str(caught.value) == message
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, f"imds: {{}}\ninstance: {{name: {longest}{letter}}}")
    assert str(caught.value).endswith(f":2: {message}")


def bad_configs() -> list[tuple[str, str]]:
    """Read the fixtures: each is a comment with the message, then the file."""
    _, *parts = (Path(__file__).parent.parent / "bad_configs.yml").read_text().split("---\n")
    return [(text, message.removeprefix("# ")) for message, text in (part.split("\n", 1) for part in parts)]


@pytest.mark.parametrize(("text", "message"), bad_configs())
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Everything that makes no sense is refused with file, line, key and remedy."""
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'c.yml'}:{message}"


def test_errors_found_later_name_the_line_too(tmp_path: Path) -> None:
    """Errors found after reading have the same form; without a file, only the key."""
    file = tmp_path / "c.yml"
    file.write_text("notifications:\n  targets: []\n")
    _, locate = loading.load_located(file, Overrides(), Mistakes())
    assert str(locate(("notifications", "targets"), "is odd")) == f"{file}:2: notifications.targets: is odd"
    _, locate = loading.load_located(None, Overrides(), Mistakes())
    assert str(locate(("notifications", "targets"), "is odd")) == "notifications.targets: is odd"


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


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("reboot", "did you mean Reboot?"),
        ("Frezze", "did you mean Freeze?"),
        ("Evacuate", "known are Freeze, Reboot, Redeploy, Preempt, Terminate"),
    ],
)
def test_an_unknown_event_type_is_taken_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, word: str, hint: str
) -> None:
    """Azure may add types; the warning names file, line, key and the type that is meant, if it is a slip."""
    file = tmp_path / "c.yml"
    file.write_text(
        f"metrics:\n  resources: true\nin_service: {{match: {{event_types: [Freeze, {word}]}}}}\n"
    )
    settings, locate = loading.load_located(file, Overrides(), Mistakes())
    loading.warn(settings, locate)
    assert settings.in_service.match.event_types == ("Freeze", word)
    (record,) = caplog.records
    assert record.__dict__["problem"] == (
        f"{file}:3: in_service.match.event_types[1]: '{word}' is not a known event type; {hint}"
    )


def test_an_external_url_is_a_page(tmp_path: Path) -> None:
    """A path is possible, as a proxy may add one."""
    for url in ("https://vm-1.example.com:9843/", "http://10.0.0.4:9843", "https://proxy.example.com/vm-1/"):
        assert read(tmp_path, f"web: {{external_url: '{url}'}}").web.external_url == url
