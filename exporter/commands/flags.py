"""Flags that several commands share, each with its environment variable: their values, completion and errors.

With ``--service`` they are those of the installed service.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import click

from exporter.config import (
    IMDS_ADDRESS,
    PROGRAM,
    Overrides,
    http_url,
    loading,
    parse_endpoint,
    parse_instance_name,
    parse_poll_interval,
)
from exporter.config.yamlfile import repeated
from exporter.errors import ExporterError, cause, is_encodable, one_line
from exporter.timefmt import parse_duration

FILE = click.Path(path_type=Path)
_STATE_DIRECTORY = "$STATE_DIRECTORY, else the default directory of the platform"


class Parsed(click.ParamType[object]):
    """The type of a flag with a ``parse`` function, whose ValueError is what is wrong with the value."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            return self._parse(str(value))
        except ValueError as error:
            # With "@" it may be a password, as it is with "://".
            subject = "" if "@" in str(value) else repeated(value, ())
            self.fail(f"{subject or 'the value'} {error}", param, ctx)


def _exporter_url(text: str) -> str:
    """Return a URL without trailing slash."""
    url = http_url(text)
    if url is None or url.query or url.fragment or not text.isprintable() or " " in text:
        raise ValueError("is not a valid URL; write it like http://127.0.0.1:9843")
    return text.rstrip("/")


class Flag(click.Option):
    """A flag that is also an environment variable, which errors about its value name."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        is_variable = ctx is not None and (
            ctx.get_parameter_source(self.name or "") is click.core.ParameterSource.ENVIRONMENT
        )
        return str(self.envvar) if is_variable else super().get_error_hint(ctx)


DURATION = Parsed("duration", parse_duration)


def flag(name: str, **settings: Any) -> click.Option:
    word = name.removeprefix("--").replace(".", "_").replace("-", "_")
    return Flag([name, word], envvar=f"SCHEDULED_EVENTS_{word.upper()}", **settings)


def listen_address(default: str) -> click.Option:
    help_text = "Address to listen on, as HOST:PORT or :PORT."
    return flag("--web.listen-address", metavar="ADDRESS", default=default, show_default=True, help=help_text)


def log_level(default: str) -> click.Option:
    levels = click.Choice(["debug", "info", "warning", "error"], case_sensitive=False)
    help_text = "Only log messages of this level or above."
    return flag("--log.level", type=levels, default=default, show_default=True, help=help_text)


def common(endpoint: str = IMDS_ADDRESS) -> tuple[click.Option, ...]:
    return (
        flag("--config.file", type=FILE, help="Configuration file (YAML)."),
        flag(
            "--imds.endpoint",
            type=Parsed("url", parse_endpoint),
            help=f"Address of IMDS: a URL without a path, or discover.  [default: {endpoint}]",
        ),
        flag(
            "--instance.name",
            type=Parsed("name", parse_instance_name),
            metavar="NAME",
            help="Name of this VM in the Resources of events.  [default: from IMDS]",
        ),
    )


COMMON = common()
NOTIFY = flag(
    "--notify",
    multiple=True,
    metavar="URL",
    help="Apprise URL of a target that gets every message about this VM; repeatable. Separate several by "
    "spaces in the environment variable.",
)
WEB_CONFIG = flag(
    "--web.config.file",
    type=FILE,
    help="Web configuration file (TLS and passwords), in the format of Prometheus exporters.",
)
LOG_FORMAT = flag(
    "--log.format",
    type=click.Choice(["logfmt", "json"], case_sensitive=False),
    default="logfmt",
    show_default=True,
    help="Format of log lines.",
)
EXPORTER_URL = flag(
    "--exporter.url",
    metavar="URL",
    type=Parsed("url", _exporter_url),
    default="http://127.0.0.1:9843",
    show_default=True,
    help="Address of the running exporter. If it requires a password, use https://USER:PASSWORD@HOST:PORT, "
    "preferably in the environment variable.",
)


def state_directory(default: str = _STATE_DIRECTORY) -> click.Option:
    return flag("--state.directory", metavar="PATH", help=f"Directory of the state.  [default: {default}]")


def serving(
    address: str,
    level: str,
    *,
    endpoint: str = IMDS_ADDRESS,
    interval: str = "1s",
    directory: str = _STATE_DIRECTORY,
) -> list[click.Parameter]:
    return [
        *common(endpoint),
        NOTIFY,
        flag(
            "--poll.interval",
            type=Parsed("duration", parse_poll_interval),
            help=f"Time between two polls of IMDS.  [default: {interval}]",
        ),
        state_directory(directory),
        listen_address(address),
        WEB_CONFIG,
        flag("--web.enable-lifecycle", is_flag=True, help="Reload the configuration on POST to /-/reload."),
        LOG_FORMAT,
        log_level(level),
    ]


# Completion by the shell; a source that fails completes nothing.


def complete_scenarios(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from exporter.simulator import load_scenarios

    return _matching((scenario.name for scenario in load_scenarios()), incomplete)


def complete_targets(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    try:
        settings = loading.load(ctx.params.get("config_file"), Overrides())
    except ExporterError:
        return []
    return _matching((target.name for target in settings.notifications.targets), incomplete)


def _matching(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.lower().startswith(incomplete.lower())]


SIMULATION = (
    listen_address("127.0.0.1:9844"),
    click.Option(
        ["--scenario", "scenarios"],
        multiple=True,
        metavar="NAME|FILE",
        shell_complete=complete_scenarios,
        help="Scenario to play: a bundled one, or a file that ends in .yaml or .yml; repeatable.  "
        "[default: all]",
    ),
    click.Option(
        ["--idle"], is_flag=True, help="Play nothing until a scenario is started on the page or by the API."
    ),
    click.Option(
        ["--speed"],
        type=click.FloatRange(min=0.1, max=10000),
        default=1.0,
        show_default=True,
        help="Speed of simulated time, as a multiple of real time.",
    ),
    click.Option(["--loop"], is_flag=True, help="Start again after the last scenario."),
    flag(
        "--instance.name",
        metavar="NAME",
        default="demo_0",
        show_default=True,
        help="Name of the simulated VM, which every bundled scenario affects.",
    ),
    click.Option(
        ["--instances"],
        type=click.IntRange(min=1, max=1000),
        default=1,
        show_default=True,
        help="Number of VMs to simulate, each on its own port, starting with that of --web.listen-address.",
    ),
    click.Option(
        ["--first-call-delay"],
        type=DURATION,
        default="0s",
        show_default=True,
        help="Time until the first answer; up to two minutes on Azure.",
    ),
    click.Option(
        ["--empty-after-switch-on"],
        type=DURATION,
        default="0s",
        show_default=True,
        help="Simulated time after the first answer during which no events are listed; up to five minutes "
        "on Azure.",
    ),
)


def overrides(flags: dict[str, Any]) -> Overrides:
    names = ("imds_endpoint", "poll_interval", "instance_name", "state_directory")
    return Overrides(**{name: flags.get(name) for name in names})


def refuse_bytes(args: Iterable[str], environ: Mapping[str, str]) -> None:
    """Refuse what is not UTF-8: no JSON, trace or message could show it. Python reads it as surrogates."""
    for number, text in enumerate(args, 1):
        if not is_encodable(text):
            raise click.UsageError(f"argument {number} is not UTF-8 text; choose another")
    for name, text in environ.items():
        if name.startswith("SCHEDULED_EVENTS_") and not is_encodable(text):
            raise click.UsageError(f"the variable {name} is not UTF-8 text; choose another value")


def without_value(error: click.UsageError) -> click.UsageError:
    """Return an error of click without the value that it repeats, which may be a secret.

    A single word that is none of the words that a flag takes is kept.
    """
    if isinstance(error, click.NoSuchCommand):
        return click.NoSuchCommand(error.command_name, "No such command.", error.possibilities, error.ctx)
    if isinstance(error, click.NoSuchOption):
        # Up to what is in no name: in --json://... a URL follows.
        name = re.split(r"[^\w.-]", error.option_name)[0]
        return click.NoSuchOption(name, None, error.possibilities, error.ctx)
    if isinstance(error, click.BadParameter) and error.param is not None:
        kind, words = error.param.type, ""
        if isinstance(kind, click.Choice) and not re.match(r"'\w+' ", error.message):
            words = f"must be one of: {', '.join(kind.choices)}"
        elif isinstance(kind, click.IntRange | click.FloatRange):
            words = f"must be a number from {kind.min:g} to {kind.max:g}"
        elif isinstance(kind, click.types.BoolParamType):
            words = "must be true or false"
        return click.BadParameter(words, error.ctx, error.param) if words else error
    return error


# The installed service, as systemd knows it.

_PROPERTIES = ("LoadState", "ExecStart", "Environment", "EnvironmentFiles")
_CREDENTIALS = Path(f"/run/credentials/{PROGRAM}.service")
_SYSTEMCTL_SECONDS = 30
_STATE = Path("/var/lib") / PROGRAM


def service_variables(run: click.Command, show: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the service, its flags included, from what `systemctl show` prints."""
    if show.get("LoadState") != "loaded":
        raise ExporterError(
            f"--service: there is no service {PROGRAM}; pass the configuration as --config.file"
        )
    variables = dict(word.split("=", 1) for word in shlex.split(show.get("Environment", "")))
    for path, optional in _files(show.get("EnvironmentFiles", "")):
        if path.exists() or not optional:
            variables.update(_read(path))
    if _CREDENTIALS.exists():
        variables["CREDENTIALS_DIRECTORY"] = str(_CREDENTIALS)
    if _STATE.exists():
        variables["STATE_DIRECTORY"] = str(_STATE)
    variables |= _flags(run, show.get("ExecStart", ""))
    host, _, port = variables.get("SCHEDULED_EVENTS_WEB_LISTEN_ADDRESS", ":9843").rpartition(":")
    reachable = host if host not in ("", "0.0.0.0", "[::]") else "127.0.0.1"  # noqa: S104  # not to listen on
    return {"SCHEDULED_EVENTS_EXPORTER_URL": f"http://{reachable}:{port}"} | variables


def use_service(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Put the variables of the service into the environment, under those that are set already."""
    if wanted and not context.resilient_parsing:
        run = cast(click.Group, context.find_root().command).commands["run"]
        for name, value in service_variables(run, _show()).items():
            os.environ.setdefault(name, value)


SERVICE = click.Option(
    ["--service"],
    is_flag=True,
    expose_value=False,
    callback=use_service,
    help="Use the flags, the environment and the configuration of the installed service (systemd); as root.",
)


def _show() -> dict[str, str]:
    command = ["systemctl", "show", f"{PROGRAM}.service", f"--property={','.join(_PROPERTIES)}"]
    try:
        done = subprocess.run(  # noqa: S603  # a program of the system
            command, capture_output=True, text=True, timeout=_SYSTEMCTL_SECONDS, check=True
        )
    except FileNotFoundError as error:
        remedy = "pass the configuration as --config.file"
        raise ExporterError(f"--service: there is no systemctl on this machine; {remedy}") from error
    except subprocess.CalledProcessError as error:
        words = one_line(error.stderr) or f"status {error.returncode}"
        raise ExporterError(f"--service: systemctl failed: {words}") from error
    except subprocess.TimeoutExpired as error:
        words = f"no answer within {_SYSTEMCTL_SECONDS:g} s"
        raise ExporterError(f"--service: systemctl failed: {words}") from error
    except OSError as error:
        raise ExporterError(f"--service: systemctl failed: {cause(error)}") from error
    properties: dict[str, str] = {}
    for name, _, value in (line.partition("=") for line in done.stdout.splitlines()):
        # Each file of variables is a line of its own.
        properties[name] = f"{properties[name]}\n{value}" if name in properties else value
    return properties


def _files(text: str) -> Iterator[tuple[Path, bool]]:
    """Yield each file, and whether it may be missing: ``/etc/a (ignore_errors=yes)``."""
    for path, _, options in (entry.partition(" (") for entry in text.split("\n") if entry):
        yield Path(path), "ignore_errors=yes" in options


def _read(path: Path) -> dict[str, str]:
    """Read a file of variables as systemd does: NAME=VALUE lines, with quotes, and comments."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ExporterError(f"--service: {path} cannot be read: {cause(error)}; run this as root") from error
    pairs = (line.strip().partition("=") for line in lines if line.strip()[:1] not in ("", "#", ";"))
    return {name: "".join(shlex.split(value)) if value[:1] in "'\"" else value for name, _, value in pairs}


def _flags(run: click.Command, start: str) -> dict[str, str]:
    """Return the flags in a command line, ``{ path=... ; argv[]=PROGRAM run --a b ; ...}``, as variables."""
    words = shlex.split(start.partition("argv[]=")[2].partition(" ; ")[0])
    given = run.make_context("run", words[words.index("run") + 1 :] if "run" in words else [])
    variables = {}
    for option in run.params:
        name = option.name or ""
        if (
            isinstance(option, click.Option)
            and given.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        ):
            value = given.params[name]
            variables[str(option.envvar)] = " ".join(value) if option.multiple else str(value)
    return variables
