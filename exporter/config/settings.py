"""The configuration: every key, its type and its default, each declared once here.

`load` reads a file; flags and environment variables lie over it (see `Overrides`). Whatever is wrong is a
`ConfigurationError` with file, line, key and remedy, and is found before anything starts.
"""

import logging
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from exporter.config import yamlfile
from exporter.config.checks import fault_of_name, findings, unknown_types
from exporter.config.match import Match
from exporter.config.values import IMDS_ADDRESS, ApiVersion, Endpoint, ExternalUrl, PollInterval, Positive
from exporter.config.yamlnodes import Keys
from exporter.errors import ConfigurationError, Mistakes
from exporter.timefmt import Duration

log = logging.getLogger(__name__)

PROGRAM = "azure-scheduled-events-exporter"


class Mode(StrEnum):
    """Whether approvals are given."""

    OFF = "off"
    DRY_RUN = "dry_run"
    ON = "on"


# YAML 1.1 takes the words off and on for booleans.
_MODE_AS_YAML_READS_IT = {False: Mode.OFF.value, True: Mode.ON.value}

S = TypeVar("S", bound="_Section")


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Imds(_Section, frozen=True):
    """How IMDS is asked."""

    endpoint: Endpoint = Endpoint(IMDS_ADDRESS)
    api_version: ApiVersion = ApiVersion("2020-07-01")
    poll_interval: PollInterval = PollInterval(1)
    timeout: Positive = Positive(10)


class Instance(_Section, frozen=True):
    """What this VM is called; empty: as IMDS says."""

    name: str = ""


class Metrics(_Section, frozen=True):
    """Which events get series of their own."""

    events: Literal["self", "all"] = "self"
    resources: bool = False


class State(_Section, frozen=True):
    """Where the state is kept; empty: `default_state_directory`."""

    directory: str = ""


class InService(_Section, frozen=True):
    """Which events take this VM out of a load balancer."""

    match: Match = Match(event_types=("Reboot", "Redeploy", "Preempt", "Terminate"), max_notice=Duration(300))


class Target(_Section, frozen=True):
    """One receiver of messages; exactly one of ``url``, ``url_file`` and ``tag`` is given."""

    name: str
    url: str = ""
    url_file: str = ""
    tag: str = ""


class Route(_Section, frozen=True):
    """Which transitions go to which targets; with ``leader: first`` only if this VM is the first affected."""

    targets: tuple[str, ...]
    match: Match = Match()
    leader: Literal["all", "first"] = "all"


class WatchNotices(_Section, frozen=True):
    """Who is told that IMDS gives no valid document, and after how long; without targets, all are."""

    after: Positive = Positive(300)
    targets: tuple[str, ...] | None = None


class Templates(_Section, frozen=True):
    """How messages read; empty: as the program writes them."""

    title: str = ""
    body: str = ""
    format: Literal["markdown", "text", "html"] = "markdown"


class Notifications(_Section, frozen=True):
    """Who is told what."""

    apprise_config: str = ""
    targets: tuple[Target, ...] = ()
    routes: tuple[Route, ...] = ()
    watch: WatchNotices = WatchNotices()
    templates: Templates = Templates()
    retry_for: Positive = Positive(24 * 3600)


class Rule(_Section, frozen=True):
    """One rule on approving."""

    name: str
    action: Literal["approve", "hold"]
    match: Match = Match()
    delay: Duration = Duration(0)
    require_hooks: tuple[str, ...] = ()


class Approval(_Section, frozen=True):
    """Which events may go ahead at once."""

    mode: Mode = Mode.OFF
    leader: Literal["first", "any"] = "first"
    failover_after: Duration = Duration(60)
    max_per_hour: int = 10
    rules: tuple[Rule, ...] = ()


class Hook(_Section, frozen=True):
    """A command to run on transitions."""

    name: str
    command: tuple[str, ...]
    match: Match = Match()
    timeout: Positive = Positive(300)


class Tracing(_Section, frozen=True):
    """Whether spans are sent."""

    enabled: Literal["auto"] | bool = "auto"


class Web(_Section, frozen=True):
    """What messages need of the web server; the rest is in the file of ``--web.config.file``."""

    external_url: ExternalUrl = ExternalUrl("")


class Config(_Section, frozen=True):
    """The whole file."""

    imds: Imds = Imds()
    instance: Instance = Instance()
    metrics: Metrics = Metrics()
    state: State = State()
    notifications: Notifications = Notifications()
    approval: Approval = Approval()
    hooks: tuple[Hook, ...] = ()
    in_service: InService = InService()
    tracing: Tracing = Tracing()
    web: Web = Web()


class Overrides(_Section, frozen=True):
    """What flags and environment variables said; None where they said nothing."""

    imds_endpoint: Endpoint | None = None
    poll_interval: PollInterval | None = None
    instance_name: str | None = None
    state_directory: str | None = None


def load(path: Path | None, overrides: Overrides) -> Config:
    """Read the file, if there is one, and lay the overrides over it.

    Raises:
        ConfigurationError: something in the file is wrong.
    """
    mistakes = Mistakes()
    settings, _ = load_located(path, overrides, mistakes)
    mistakes.check()
    return settings


def load_located(
    path: Path | None, overrides: Overrides, mistakes: Mistakes
) -> tuple[Config, yamlfile.Locate]:
    """Do as `load`, without what is wrong; return also what makes the error of a key found wrong later.

    Raises:
        ConfigurationError: so much is wrong that nothing is left.
    """
    if path is None:
        return _laid_over(Config(), overrides), yamlfile.error_without_file
    file = yamlfile.read(path)
    return _laid_over(_checked(file, mistakes), overrides), file.error


def warn(config: Config, locate: yamlfile.Locate) -> None:
    """Log a warning for each event type that is not known: it may be a slip, or one that Azure added."""
    for keys, doubt in unknown_types(config):
        log.warning("unknown event type", extra={"problem": str(locate(keys, doubt))})


def _laid_over(config: Config, overrides: Overrides) -> Config:
    if fault := fault_of_name(overrides.instance_name or ""):
        raise ConfigurationError(f"instance.name: {fault}")
    return msgspec.structs.replace(
        config,
        imds=_replace(config.imds, endpoint=overrides.imds_endpoint, poll_interval=overrides.poll_interval),
        instance=_replace(config.instance, name=overrides.instance_name),
        state=_replace(config.state, directory=overrides.state_directory),
    )


def state_directory(config: Config) -> Path:
    """Return the directory for the state: the configured one, systemd's, or the platform's usual place."""
    chosen = config.state.directory or os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("PROGRAMDATA", r"C:\ProgramData"))
    elif os.geteuid() == 0:
        base = Path("/var/lib")
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / PROGRAM


def _replace(section: S, **given: object) -> S:
    return msgspec.structs.replace(
        section, **{key: value for key, value in given.items() if value is not None}
    )


def _checked(file: yamlfile.YamlFile, mistakes: Mistakes) -> Config:
    config = yamlfile.convert_sound(
        file, Config, mistakes, words={("approval", "mode"): _MODE_AS_YAML_READS_IT}
    )
    for keys, fault in findings(config):
        if not _follows(file.place(keys), file.faulty):
            with mistakes:
                raise file.error(keys, fault)
    return config


def _follows(place: Keys, faulty: Sequence[Keys]) -> bool:
    """Return whether a finding may be there only because a faulty value was left out."""
    if "require_hooks" in place:
        return any(keys[0] == "hooks" for keys in faulty)
    if "routes" in place or place[-1:] == ("tag",):
        sources = (("notifications", "targets"), ("notifications", "apprise_config"))
        return any(keys[:2] in sources for keys in faulty)
    return any(keys[: len(place)] == place for keys in faulty)
