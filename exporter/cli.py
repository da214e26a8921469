"""The command line: parse, call, exit code."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from exporter import __version__, config
from exporter.clock import SystemClock
from exporter.config import PROGRAM, Overrides
from exporter.config.values import Endpoint, PollInterval
from exporter.errors import ConfigurationError, ExporterError
from exporter.timefmt import parse_duration

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

_FILE = click.Path(path_type=Path)


class _Parsed(click.ParamType[object]):
    """A flag whose text a ``parse`` of ours reads, with its message where it cannot."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Read the flag's text."""
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


_DURATION = _Parsed("duration", parse_duration)


def _flag(name: str, **settings: Any) -> Decorator:
    """Declare a dotted flag and the environment variable that stands for it."""
    word = name.removeprefix("--").replace(".", "_").replace("-", "_")
    return click.option(name, word, envvar=f"SCHEDULED_EVENTS_{word.upper()}", **settings)


def _flags(*flags: Decorator) -> Decorator:
    def declare(command: Command) -> Command:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return declare


_common = _flags(
    _flag("--config.file", type=_FILE, help="Configuration file (YAML)."),
    _flag(
        "--imds.endpoint",
        type=_Parsed("url", Endpoint.parse),
        help="Where IMDS answers: a URL without path, or discover.",
    ),
    _flag(
        "--instance.name", metavar="NAME", help="This VM's name in Resources, where IMDS does not tell it."
    ),
)
_log_format = _flag(
    "--log.format",
    type=click.Choice(["logfmt", "json"]),
    default="logfmt",
    show_default=True,
    help="Of logs.",
)
_notify = _flag(
    "--notify",
    multiple=True,
    metavar="URL",
    help="Tell everything about this VM to this Apprise URL; repeatable, in the environment between spaces.",
)
_serving = _flags(
    _common,
    _notify,
    _flag(
        "--poll.interval", type=_Parsed("duration", PollInterval.parse), help="Time between two polls [1s]."
    ),
    _flag("--state.directory", metavar="PATH", help="Where the state is kept."),
    _flag(
        "--web.listen-address", metavar="ADDRESS", default=":9843", show_default=True, help="Where to serve."
    ),
    _flag("--web.config.file", type=_FILE, help="TLS and passwords, as Prometheus' own exporters take them."),
    _flag("--web.enable-lifecycle", is_flag=True, help="Allow a reload by POST to /-/reload."),
    _log_format,
)


def _log_level(default: str) -> Decorator:
    levels = click.Choice(["debug", "info", "warning", "error"])
    return _flag("--log.level", type=levels, default=default, show_default=True, help="Least level logged.")


class _Program(click.Group):
    """Turns our exceptions into one line and an exit status: 2 for configuration, 1 otherwise."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except ExporterError as error:
            click.echo(f"{PROGRAM}: {error}", err=True)
            ctx.exit(2 if isinstance(error, ConfigurationError) else 1)


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name=PROGRAM)
def main() -> None:
    """Prometheus exporter for Azure Scheduled Events, run on each VM.

    Every flag is also an environment variable: --imds.endpoint is SCHEDULED_EVENTS_IMDS_ENDPOINT. A flag
    beats the environment, and the environment beats the configuration file.
    """


def _overrides(flags: dict[str, Any]) -> Overrides:
    return Overrides(
        imds_endpoint=flags["imds_endpoint"],
        instance_name=flags["instance_name"],
        poll_interval=flags.get("poll_interval"),
        state_directory=flags.get("state_directory"),
    )


@main.command()
@_serving
@_log_level("info")
def run(**flags: Any) -> None:
    """Watch this VM's scheduled events, serve metrics and a page about them, and send messages."""
    from exporter import app, logs

    logs.configure(flags["log_level"], flags["log_format"])
    sys.exit(app.run(_options(flags), SystemClock()))


def _options(flags: dict[str, Any]) -> Any:
    from exporter.app import Options
    from exporter.notifications.addresses import NotifyUrls

    return Options(
        config_file=flags["config_file"],
        overrides=_overrides(flags),
        notify=NotifyUrls(flags["notify"]),
        listen_address=flags["web_listen_address"],
        web_config_file=flags["web_config_file"],
        enable_lifecycle=flags["web_enable_lifecycle"],
    )


@main.command()
@_serving
@_log_level("warning")
def demo(**flags: Any) -> None:
    """Show the exporter at work with no Azure around.

    A simulator plays all its scenarios at 60 times the speed; every message is printed, and a table of events
    keeps itself up to date.
    """
    from exporter import logs
    from exporter.commands import demo as demonstration

    logs.configure(flags["log_level"], flags["log_format"])
    sys.exit(demonstration.run(_options(flags), SystemClock()))


@main.command()
@_flag(
    "--web.listen-address",
    metavar="ADDRESS",
    default="127.0.0.1:9844",
    show_default=True,
    help="Where to serve.",
)
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="NAME", help="A scenario to play; repeatable [all]."
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.1, max=10000),
    default=1.0,
    show_default=True,
    help="Times as fast.",
)
@click.option("--loop", is_flag=True, help="Begin again after the last scenario.")
@_flag(
    "--instance.name", metavar="NAME", default="demo_0", show_default=True, help="The simulated VM's name."
)
@click.option(
    "--first-call-delay",
    type=_DURATION,
    default="0s",
    show_default=True,
    help="How long the first answer takes; up to two minutes on Azure.",
)
@click.option(
    "--empty-after-switch-on",
    type=_Parsed("duration", parse_duration),
    default="0s",
    show_default=True,
    help="How long no events are listed after that, in simulated time; up to five minutes on Azure.",
)
def simulate(**flags: Any) -> None:
    """Simulate Azure's Scheduled Events endpoint, for testing this or any other client."""
    import signal
    import threading

    from exporter.simulator import Simulator, SimulatorServer, load_scenarios

    simulator = Simulator(
        load_scenarios(flags["scenarios"] or None),
        speed=flags["speed"],
        loop=flags["loop"],
        vm_name=flags["instance_name"],
        first_call_delay=flags["first_call_delay"],
        empty_after_switch_on=flags["empty_after_switch_on"],
    )
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with SimulatorServer(simulator, flags["web_listen_address"]) as server:
        click.echo(f"IMDS simulator at {server.url}; try: {PROGRAM} run --imds.endpoint {server.url}")
        # A signal that another thread took is noticed only when this one wakes.
        while not stopping.wait(1.0):
            pass


@main.command()
@_common
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("--watch", is_flag=True, help="Ask again every poll interval, until interrupted.")
def events(*, as_json: bool, watch: bool, **flags: Any) -> None:
    """Show what IMDS says now."""
    from exporter.commands import events as inspection

    settings = config.load(flags["config_file"], _overrides(flags))
    inspection.show(settings, SystemClock(), as_json=as_json, watch=watch)


@main.command()
@_common
@click.argument("event_ids", metavar="EVENT_ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--wait", is_flag=True, help="Wait until the events have started.")
@click.option("--timeout", type=_DURATION, default="30m", show_default=True, help="How long to wait.")
def approve(event_ids: tuple[str, ...], *, yes: bool, wait: bool, timeout: float, **flags: Any) -> None:
    """Let events start now, instead of at NotBefore, for every VM that they affect.

    Shows first what they are and which VMs they affect. With --wait the exit status is 0 if all have started
    or completed, 3 if one was cancelled, and 1 otherwise.
    """
    from exporter.commands import approve as manual

    settings = config.load(flags["config_file"], _overrides(flags))
    sys.exit(manual.run(settings, event_ids, SystemClock(), yes=yes, wait=timeout if wait else None))


@main.command("notify-test")
@_common
@_notify
@_log_format
@_log_level("warning")
def notify_test(**flags: Any) -> None:
    """Send a sample of each transition to every target.

    Says which arrived, how long it took, and why where one did not. The exit status is 0 if all arrived.
    """
    from exporter import logs
    from exporter.commands import notify_test as trial
    from exporter.notifications import planning

    logs.configure(flags["log_level"], flags["log_format"])
    settings, plan = planning.load(flags["config_file"], _overrides(flags), flags["notify"], os.environ)
    sys.exit(trial.run(settings, plan, SystemClock()))


@main.command("check-config")
@click.argument("files", nargs=-1, required=True, type=_FILE)
def check_config(files: tuple[Path, ...]) -> None:
    """Validate configuration files with their targets and templates; exit with 1 if one is wrong."""
    from exporter import logs

    logs.configure("warning", "logfmt")
    problems = [problem for file in files if (problem := _problem(file))]
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(1 if problems else 0)


def _problem(file: Path) -> str:
    from exporter.notifications import planning

    try:
        planning.load(file, Overrides(), (), os.environ)
    except ConfigurationError as error:
        return str(error)
    click.echo(f"{file}: ok")
    return ""
