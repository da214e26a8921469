"""Flags that several commands share, each with its environment variable."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from exporter.config import Endpoint, Overrides, PollInterval, http_url
from exporter.timefmt import Duration

FILE = click.Path(path_type=Path)


class Parsed(click.ParamType[object]):
    """The type of a flag with a ``parse`` function, whose ValueError is the message."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return the value of the flag's text."""
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _exporter_url(text: str) -> str:
    """Return a URL without trailing slash; an error does not repeat it, as it may contain a password."""
    url = http_url(text)
    if url is None or url.query or url.fragment or not text.isprintable() or " " in text:
        raise ValueError("is not a valid URL; write it like http://127.0.0.1:9843")
    return text.rstrip("/")


DURATION = Parsed("duration", Duration.parse)


def flag(name: str, **settings: Any) -> click.Option:
    """Return a dotted flag, with its environment variable."""
    word = name.removeprefix("--").replace(".", "_").replace("-", "_")
    return click.Option([name, word], envvar=f"SCHEDULED_EVENTS_{word.upper()}", **settings)


def listen_address(default: str) -> click.Option:
    """Return the flag of the address to serve on."""
    help_text = "Address to listen on, as HOST:PORT or :PORT."
    return flag("--web.listen-address", metavar="ADDRESS", default=default, show_default=True, help=help_text)


def log_level(default: str) -> click.Option:
    """Return the flag of the log level."""
    levels = click.Choice(["debug", "info", "warning", "error"])
    help_text = "Only log messages of this level or above."
    return flag("--log.level", type=levels, default=default, show_default=True, help=help_text)


COMMON = (
    flag("--config.file", type=FILE, help="Configuration file (YAML)."),
    flag(
        "--imds.endpoint",
        type=Parsed("url", Endpoint.parse),
        help="Address of IMDS: a URL without a path, or discover.  [default: http://169.254.169.254]",
    ),
    flag(
        "--instance.name",
        metavar="NAME",
        help="Name of this VM in the Resources of events.  [default: as IMDS says]",
    ),
)
NOTIFY = flag(
    "--notify",
    multiple=True,
    metavar="URL",
    help="Apprise URL of a target that gets every message about this VM; repeatable. Separate several by "
    "spaces in the environment variable.",
)
STATE_DIRECTORY = flag(
    "--state.directory",
    metavar="PATH",
    help="Directory of the state.  [default: $STATE_DIRECTORY, else the usual place of the platform]",
)
WEB_CONFIG = flag(
    "--web.config.file",
    type=FILE,
    help="Web configuration file (TLS and passwords), in the format of Prometheus exporters.",
)
LOG_FORMAT = flag(
    "--log.format",
    type=click.Choice(["logfmt", "json"]),
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
    help="Address of the running exporter. If it requires a password, use http://USER:PASSWORD@HOST:PORT, "
    "preferably in the environment variable.",
)


def serving(address: str, level: str) -> list[click.Parameter]:
    """Return the flags of the commands that run the exporter, with defaults for its address and log level."""
    return [
        *COMMON,
        NOTIFY,
        flag(
            "--poll.interval",
            type=Parsed("duration", PollInterval.parse),
            help="Time between two polls of IMDS.  [default: 1s]",
        ),
        STATE_DIRECTORY,
        listen_address(address),
        WEB_CONFIG,
        flag("--web.enable-lifecycle", is_flag=True, help="Reload the configuration on POST to /-/reload."),
        LOG_FORMAT,
        log_level(level),
    ]


SIMULATION = (
    listen_address("127.0.0.1:9844"),
    click.Option(
        ["--scenario", "scenarios"],
        multiple=True,
        metavar="NAME|FILE",
        help="Scenario to play: a bundled one, or a file that ends in .yaml or .yml; repeatable "
        "[default: all].",
    ),
    click.Option(
        ["--idle"], is_flag=True, help="Play nothing until a scenario is started on the page or by the API."
    ),
    click.Option(
        ["--speed"],
        type=click.FloatRange(min=0.1, max=10000),
        default=1.0,
        show_default=True,
        help="How many times as fast as the clock simulated time passes.",
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
        help="Number of VMs to simulate, each at a port of its own from --web.listen-address on.",
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
        help="Simulated time after that in which no events are listed; up to five minutes on Azure.",
    ),
)


def overrides(flags: dict[str, Any]) -> Overrides:
    """Return the flags that take precedence over the configuration file."""
    names = ("imds_endpoint", "poll_interval", "instance_name", "state_directory")
    return Overrides(**{name: flags.get(name) for name in names})
