"""The configuration: every key, its type and its default, each declared once here."""

import os
import re
import sys
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from exporter.config.kubernetes import Kubernetes
from exporter.config.match import Match, Name, Text, Zone, parse_text
from exporter.errors import ConfigurationError, did_you_mean, is_encodable
from exporter.model.events import LONGEST_NAME
from exporter.timefmt import DURATION, Duration, parse_duration, parsed

AUTO = "auto"  # the newest version that IMDS knows, see `exporter.imds.client`
API_VERSIONS = (
    AUTO,
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
    "2024-07-09",
)
PROGRAM = "azure-scheduled-events-exporter"
IMDS_ADDRESS = "http://169.254.169.254"
DISCOVER = "discover"


# What flags and files may contain. The ValueError of each function contains the mistake and the correct form,
# but not the value.


def http_url(text: str) -> SplitResult | None:
    """Return the parts of an HTTP or HTTPS URL with a host; None for any other text."""
    # `urlsplit` drops line breaks and tabs.
    if " " in text or not text.isprintable():
        return None
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        return None
    return url if usable else None


def parse_endpoint(value: object) -> str:
    """Return the address of IMDS: a URL without path, or ``discover``."""
    text, remedy = str(value), f"write a URL without path, like {IMDS_ADDRESS}, or {DISCOVER}"
    if text == DISCOVER:
        return text
    url = http_url(text)
    if url is None:
        raise ValueError(f"is not a valid URL; {remedy}")
    if url.path.strip("/") or set("?#@") & set(text):
        raise ValueError(f"has more than scheme, host and port; {remedy}")
    return text.rstrip("/")


def parse_link(value: object) -> str:
    """Return a URL for links, which may have a path; "" if not specified."""
    text, remedy = str(value), "write it like https://vm-1.example.com:9843/"
    if text == "":
        return text
    # Printable ASCII, without what ends a URL in texts and HTML.
    if http_url(text) is None or not re.fullmatch("[!#-;=?-_a-~]+", text):
        raise ValueError(f"is not a valid URL; {remedy}")
    if set("?#@") & set(text):
        raise ValueError(f"has more than scheme, host, port and path; {remedy}")
    return text


def parse_instance_name(value: object) -> str:
    name = parse_text(value)
    if name != name.strip():
        raise ValueError("begins or ends with a space; remove it")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"has {len(name)} characters; at most {LONGEST_NAME} are allowed")
    return name


def parse_poll_interval(value: object) -> float:
    """Return a duration from 200ms, as IMDS throttles at 5 requests a second, to 1h."""
    seconds = parse_duration(value)
    if not 0.2 <= seconds <= 3600:
        raise ValueError("is out of range; Azure asks for 1s, and 200ms to 1h is possible")
    return seconds


def parse_positive(value: object) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("is too short; write more than 0s")
    return seconds


def parse_api_version(value: object) -> str:
    """Return `AUTO` or a version of the Scheduled Events API: a date, also a later one."""
    text = str(value)
    if text == AUTO:
        return text
    try:
        usable = re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) and date.fromisoformat(text)
    except ValueError:
        usable = None
    if not usable:
        raise ValueError(f"is not a known version; known are {', '.join(API_VERSIONS)}")
    return text


class Mode(StrEnum):
    OFF = "off"
    DRY_RUN = "dry_run"
    ON = "on"


# In YAML 1.1 on and off are booleans; in quotes, as tools write them, they are text.
_BOOLEANS = {"true": "on", "false": "off"}


def parse_mode(value: object) -> Mode:
    word = _BOOLEANS.get(str(value).lower(), str(value))
    try:
        return Mode(word)
    except ValueError:
        raise ValueError(f"is not supported; {did_you_mean(word, list(Mode))}") from None


def parse_switch(value: object) -> Literal["auto"] | bool:
    word = _BOOLEANS.get(str(value).lower(), str(value))
    if word == AUTO:
        return "auto"
    if word not in ("on", "off"):
        raise ValueError(f"is not supported; {did_you_mean(word, ('on', 'off', AUTO))}")
    return word == "on"


Endpoint = Annotated[str, parsed(parse_endpoint)]
InstanceName = Annotated[str, parsed(parse_instance_name)]
Link = Annotated[str, parsed(parse_link)]
PollInterval = Annotated[float, parsed(parse_poll_interval, **DURATION)]
Positive = Annotated[float, parsed(parse_positive, **DURATION)]
ApiVersion = Annotated[str, parsed(parse_api_version)]
ApprovalMode = Annotated[Mode, parsed(parse_mode, enum=[*Mode, True, False])]
Switch = Annotated[Literal["auto"] | bool, parsed(parse_switch, enum=[AUTO, "on", "off", True, False])]


class Imds(msgspec.Struct, frozen=True):
    endpoint: Endpoint = IMDS_ADDRESS
    api_version: ApiVersion = AUTO
    poll_interval: PollInterval = 1
    timeout: Positive = 10


class Instance(msgspec.Struct, frozen=True):
    name: InstanceName = ""


class Events(msgspec.Struct, frozen=True):
    """How long before NotBefore an event is reported as imminent; never if empty."""

    imminent: tuple[Positive, ...] = (300,)


class Metrics(msgspec.Struct, frozen=True):
    events: Literal["self", "all"] = "self"  # whose events have series of their own
    resources: bool = False  # a series for each VM that an event affects
    tags: tuple[str, ...] = ()  # tags of the VM that become labels


class State(msgspec.Struct, frozen=True):
    """The directory of the state; empty: see `state_directory`."""

    directory: Text = ""


class InService(msgspec.Struct, frozen=True):
    """The events during which ``/-/in-service`` answers 503."""

    match: Match = Match(event_types=("Reboot", "Redeploy", "Preempt", "Terminate"), max_notice=300)


class Templates(msgspec.Struct, frozen=True):
    """Templates of messages; empty: the built-in ones."""

    title: str = ""
    body: str = ""
    format: Literal["markdown", "text", "html"] = "markdown"


class TargetTemplates(Templates, frozen=True):
    """Templates of one target; a webhook has only a body."""

    content_type: str = ""  # of a webhook's body; empty: JSON


class Target(msgspec.Struct, frozen=True):
    """One receiver of messages; exactly one of ``url``, ``url_file``, ``tag`` and ``webhook`` is given."""

    name: Name
    url: str = ""  # of Apprise
    url_file: str = ""  # a file with one
    tag: str = ""  # of services in the file `Notifications.apprise_config`
    webhook: str = ""  # the URL that gets events by POST
    headers: dict[str, str] = {}  # of a webhook
    templates: TargetTemplates | None = None  # None: those of `Notifications`, for a webhook none


class Route(msgspec.Struct, frozen=True):
    """Which transitions go to which targets."""

    targets: tuple[Name, ...]
    match: Match = Match()
    leader: Literal["all", "first"] = "all"  # the VMs that notify: all, or the first that is affected


class WatchNotices(msgspec.Struct, frozen=True):
    """Messages about the lack of a valid document."""

    after: Positive = 300
    targets: tuple[Name, ...] | None = None  # None: all


class Notifications(msgspec.Struct, frozen=True):
    apprise_config: str = ""  # a file of Apprise, of which targets use services by their tags
    targets: tuple[Target, ...] = ()
    routes: tuple[Route, ...] = ()
    watch: WatchNotices = WatchNotices()
    templates: Templates = Templates()
    timezone: Zone = "UTC"  # of times in messages
    retry_for: Positive = 24 * 3600  # an older message is given up


class Rule(msgspec.Struct, frozen=True):
    """A rule for approvals; the first that matches decides."""

    name: Name
    action: Literal["approve", "hold"]
    match: Match = Match()
    delay: Duration = 0  # since the beginning of the event's life
    require_hooks: tuple[Name, ...] = ()  # hooks that have to succeed before


class Approval(msgspec.Struct, frozen=True):
    mode: ApprovalMode = Mode.OFF
    leader: Literal["first", "any"] = "first"  # which of the affected VMs approves
    failover_after: Duration = 60  # each further VM waits for so much longer
    max_per_hour: int = 10
    rules: tuple[Rule, ...] = ()


class Hook(msgspec.Struct, frozen=True):
    name: Name
    command: tuple[str, ...]  # the program and its arguments, without a shell
    match: Match = Match()
    timeout: Positive = 300


class Tracing(msgspec.Struct, frozen=True):
    enabled: Switch = "auto"


class Otlp(msgspec.Struct, frozen=True):
    """Which signals beside traces leave by OTLP."""

    metrics: Switch = "auto"
    logs: Switch = "auto"


class Alertmanager(msgspec.Struct, frozen=True):
    """Alertmanagers that get the events of this VM as alerts."""

    urls: tuple[str, ...] = ()
    headers: dict[str, str] = {}  # of each request
    match: Match = Match()
    labels: dict[str, str] = {}  # added to each alert


class Web(msgspec.Struct, frozen=True):
    """The web server's settings for messages; all others are in the file of ``--web.config.file``."""

    external_url: Link = ""
    runbook_url: Link = ""


class Config(msgspec.Struct, frozen=True):
    imds: Imds = Imds()
    instance: Instance = Instance()
    events: Events = Events()
    metrics: Metrics = Metrics()
    state: State = State()
    notifications: Notifications = Notifications()
    approval: Approval = Approval()
    hooks: tuple[Hook, ...] = ()
    kubernetes: Kubernetes = Kubernetes()
    in_service: InService = InService()
    tracing: Tracing = Tracing()
    otlp: Otlp = Otlp()
    alertmanager: Alertmanager = Alertmanager()
    web: Web = Web()


class Overrides(msgspec.Struct, frozen=True):
    """Values of flags and environment variables; None if not specified."""

    imds_endpoint: Endpoint | None = None
    poll_interval: PollInterval | None = None
    instance_name: str | None = None
    state_directory: str | None = None


def state_directory(config: Config) -> Path:
    """Return the directory for the state: the configured one, systemd's, or the platform's default.

    Raises:
        ConfigurationError: its path is not UTF-8 text, so that page and API could not show it.
    """
    chosen = config.state.directory or os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    path = Path(chosen) if chosen else _default_directory()
    if not is_encodable(str(path.absolute())):
        raise ConfigurationError("the path of the state directory is not UTF-8 text; set state.directory")
    return path


def _default_directory() -> Path:
    if sys.platform == "win32":
        base = Path(os.environ.get("PROGRAMDATA", r"C:\ProgramData"))
    elif os.geteuid() == 0:
        base = Path("/var/lib")
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / PROGRAM
