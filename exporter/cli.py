"""The command line: parsing, commands and exit status."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import click

from exporter import __version__
from exporter.clock import SystemClock
from exporter.commands import invoked
from exporter.commands.flags import (
    COMMON,
    DURATION,
    EXPORTER_URL,
    FILE,
    LOG_FORMAT,
    NOTIFY,
    SERVICE,
    SIMULATION,
    WEB_CONFIG,
    Parsed,
    complete_targets,
    log_level,
    overrides,
    refuse_bytes,
    serving,
    state_directory,
    without_value,
)
from exporter.config import PROGRAM
from exporter.config.match import parse_name
from exporter.errors import ConfigurationError, ExporterError
from exporter.model.lifecycle import Transition
from exporter.model.messages import WatchChange

_OUTPUT_FAILURES = (errno.ENOSPC, errno.EIO)
_TESTABLE = (*Transition, *WatchChange)  # what notify-test can send samples of


class _Command(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Click's own error would repeat them.
        ctx.allow_extra_args = True
        left = super().parse_args(ctx, args)
        if left and not ctx.resilient_parsing:
            ctx.fail("Got an unexpected argument; write a flag before each value.")
        return left


class _Program(click.Group):
    """Turns our exceptions into one line and an exit status: 2 for configuration, 1 otherwise."""

    command_class = _Command

    def make_context(
        self, info_name: str | None, args: list[str], *rest: Any, **kwargs: Any
    ) -> click.Context:
        refuse_bytes(args, os.environ)
        try:
            return super().make_context(info_name, args, *rest, **kwargs)
        except click.UsageError as error:
            raise without_value(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise without_value(error) from None
        except ExporterError as error:
            for line in error.problems if isinstance(error, ConfigurationError) else [str(error)]:
                click.echo(f"{PROGRAM}: {line}", err=True)
            ctx.exit(2 if isinstance(error, ConfigurationError) else 1)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno not in _OUTPUT_FAILURES or error.filename is not None:
                raise
            click.echo(f"{PROGRAM}: the output cannot be written: {error.strerror}", err=True)
            # Otherwise the interpreter would write again at exit, and end with another status.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name=PROGRAM)
def main() -> None:
    """Prometheus exporter for Azure Scheduled Events, to be run on each VM.

    Every flag with a dot in its name, and --notify, can also be set by an environment variable:
    --imds.endpoint by SCHEDULED_EVENTS_IMDS_ENDPOINT. A flag takes precedence over the environment variable,
    which takes precedence over the configuration file.
    """


@main.command(params=serving(":9843", "info"))
def run(**flags: Any) -> None:
    """Run the exporter.

    Polls IMDS, serves metrics and a page, sends messages, runs hooks and approves events, as configured,
    until SIGTERM or SIGINT. SIGHUP reloads the configuration file.
    """
    from exporter import app, logs

    logs.configure(flags["log_level"], flags["log_format"])
    sys.exit(app.run(_options(flags), SystemClock()))


def _options(flags: dict[str, Any]) -> Any:
    from exporter.app import Options
    from exporter.config.addresses import NotifyUrls

    return Options(
        config_file=flags["config_file"],
        overrides=overrides(flags),
        notify=NotifyUrls(flags["notify"]),
        listen_address=flags["web_listen_address"],
        web_config_file=flags["web_config_file"],
        enable_lifecycle=flags["web_enable_lifecycle"],
    )


@main.command(
    params=serving(
        "127.0.0.1:9843",
        "warning",
        endpoint="the embedded simulator",
        interval="250ms, or 1s with --imds.endpoint",
        directory="a temporary directory",
    )
)
def demo(**flags: Any) -> None:
    """Run the exporter against a simulator, without Azure.

    The simulator plays all its scenarios at 60 times the speed. The terminal shows the events and the
    messages in simulated time, and the address of the page. If --imds.endpoint is set, it is polled instead.
    """
    from exporter import logs
    from exporter.commands import demo as demonstration

    logs.configure(flags["log_level"], flags["log_format"])
    sys.exit(demonstration.run(_options(flags), SystemClock()))


@main.command(params=[*SIMULATION])
def simulate(**flags: Any) -> None:
    """Simulate IMDS, to test this or any other client.

    IMDS is Azure's Instance Metadata Service. The scenarios begin with the first request for scheduledevents.
    The page at the printed address starts scenarios, approves and cancels events, and injects faults.
    """
    import queue
    import signal
    import time

    from exporter.simulator import Simulator, SimulatorServer, load_scenarios

    simulator = Simulator(
        load_scenarios(flags["scenarios"] or None),
        speed=flags["speed"],
        loop=flags["loop"],
        vm_name=flags["instance_name"],
        first_call_delay=flags["first_call_delay"],
        empty_after_switch_on=flags["empty_after_switch_on"],
        idle=flags["idle"],
        instances=flags["instances"],
    )
    # Not an event: the handler could interrupt its wait while that holds the lock.
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: signals.put(received))
    with SimulatorServer(simulator, flags["web_listen_address"]) as server:
        click.echo(f"IMDS simulator at {server.url}; try: {invoked()} run --imds.endpoint {server.url}")
        for vm, url in list(server.urls.items())[1:]:
            click.echo(f"{vm} at {url}")
        # A signal delivered to another thread is handled only when this one wakes up.
        while signals.empty():
            time.sleep(1.0)


@main.command(params=[*COMMON, EXPORTER_URL])
@click.argument("event_ids", metavar="[EVENT_ID...]", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--watch", is_flag=True, help="Ask again at every poll interval until interrupted.")
def events(
    event_ids: tuple[str, ...], *, as_json: bool, watch: bool, exporter_url: Any, **flags: Any
) -> None:
    """Show the current events, all or some.

    The first characters of an id suffice. Asks the running exporter, which knows when each event was first
    seen and started. Asks IMDS instead if --imds.endpoint is set or if no exporter answers.
    """
    from exporter.app import load
    from exporter.commands import events as inspection

    settings = load(flags["config_file"], overrides(flags))
    url = None if flags["imds_endpoint"] else exporter_url
    inspection.show(settings, SystemClock(), event_ids, exporter_url=url, as_json=as_json, watch=watch)


@main.command(params=[*COMMON])
@click.argument("event_ids", metavar="EVENT_ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--wait", is_flag=True, help="Wait until the events have started or are gone.")
@click.option("--timeout", type=DURATION, default="30m", show_default=True, help="Maximum time to wait.")
def approve(event_ids: tuple[str, ...], *, yes: bool, wait: bool, timeout: float, **flags: Any) -> None:
    """Approve events by hand.

    Approved events start before their NotBefore, for every VM that they affect. The first characters of an id
    suffice. Shows the events and the affected VMs, and asks for confirmation. With --wait, the exit status is
    0 if all have started or completed, 3 if one was cancelled, and 1 otherwise.
    """
    from exporter.app import load
    from exporter.commands import approve as manual

    settings = load(flags["config_file"], overrides(flags))
    sys.exit(manual.run(settings, event_ids, SystemClock(), yes=yes, wait=timeout if wait else None))


@main.command("notify-test", params=[SERVICE, *COMMON, NOTIFY, LOG_FORMAT, log_level("warning")])
@click.option(
    "--target",
    type=Parsed("name", parse_name),
    metavar="NAME",
    shell_complete=complete_targets,
    help="Send to this target only.",
)
@click.option(
    "--transition",
    type=click.Choice([change.value for change in _TESTABLE]),
    help="Send a sample of this transition only.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Send a sample of every transition that the routes send to the target.",
)
def notify_test(*, target: str | None, transition: str | None, every: bool, **flags: Any) -> None:
    """Send a sample message to every target.

    The sample is of the transition scheduled, or of the first transition that the routes send to the target.
    An Alertmanager gets an alert that ends after a minute.
    Prints whether each message arrived, how long that took, and why if it did not. The exit status is 0 if
    all arrived.
    """
    from exporter import app, logs
    from exporter.commands import notify_test as trial
    from exporter.config.addresses import NotifyUrls
    from exporter.errors import Mistakes
    from exporter.outputs.notifications.checking import opened

    logs.configure(flags["log_level"], flags["log_format"])
    wanted = next((change for change in _TESTABLE if change.value == transition), None)
    mistakes = Mistakes()
    options = app.Options(flags["config_file"], overrides(flags), NotifyUrls(flags["notify"]))
    loaded = app.read(options, os.environ, mistakes)
    with opened(loaded, os.environ, mistakes) as (plan, sender):
        mistakes.check()
        loaded.warn()
        alertmanagers = loaded.addresses["alertmanager"]
        sample = trial.Trial(loaded.config, plan, sender, SystemClock(), alertmanagers)
        sys.exit(sample.run(target=target, transition=wanted, every=every))


@main.command()
@click.argument("directory", metavar="DIR", type=FILE)
def assets(directory: Path) -> None:
    """Write alerts, dashboards and deployment files.

    They are written into DIR, a new directory, with a sample configuration.
    """
    from exporter.commands.assets import write

    for path in write(directory):
        click.echo(path)


@main.command(params=[SERVICE, *COMMON, NOTIFY, state_directory(), WEB_CONFIG, EXPORTER_URL])
def doctor(**flags: Any) -> None:
    """Find out why the exporter does not work.

    Asks the running exporter for its configuration and targets. If none runs, or to check a file before a
    reload, pass the flags that it is run with. Each line begins with ok, warning or failure and ends with the
    remedy, and the last one is the next step; the exit status is 1 if there is a failure. Nothing is changed,
    approved or sent, and Scheduled Events are not switched on.
    """
    from exporter import logs
    from exporter.commands import doctor as examination
    from exporter.config.addresses import NotifyUrls

    logs.configure("warning", "terminal")
    asked = examination.Asked(
        config_file=flags["config_file"],
        web_config_file=flags["web_config_file"],
        overrides=overrides(flags),
        notify=NotifyUrls(flags["notify"]),
        exporter_url=flags["exporter_url"],
    )
    sys.exit(examination.run(asked, SystemClock()))


_FILES = click.Argument(
    ["files"], metavar="[FILE]...", nargs=-1, type=FILE, envvar="SCHEDULED_EVENTS_CONFIG_FILE"
)


_SCHEMA = click.Option(
    ["--schema"], is_flag=True, help="Write the JSON schema of the configuration file, for editors."
)


@main.command("check-config", params=[SERVICE, _FILES, WEB_CONFIG, _SCHEMA])
def check_config(*, files: tuple[Path, ...], web_config_file: Path | None, schema: bool) -> None:
    """Validate configuration files.

    Checks targets and templates as well. Prints every mistake as FILE:LINE: KEY: WHAT IS WRONG; the exit
    status is 1 if there is one. Warnings, for example about a route that nothing can match, do not change the
    exit status.
    """
    from exporter import logs
    from exporter.commands.check_config import check_files

    if schema:
        from exporter.commands.schema import written

        click.echo(written(), nl=False)
        return
    if not files and web_config_file is None:
        raise click.UsageError("Missing argument 'FILE...', or --web.config.file.")
    logs.configure("warning", "terminal")
    sys.exit(check_files(files, web_config_file))
