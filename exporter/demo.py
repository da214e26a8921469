"""`demo`: the exporter at work against the embedded simulator, on one terminal."""

import contextlib
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator

import click
import msgspec

from exporter import table
from exporter.app import App, Options
from exporter.clock import Clock
from exporter.simulator import Simulator, SimulatorServer, load_scenarios
from exporter.snapshot import Snapshot
from exporter.times import rfc3339
from exporter.values import Endpoint
from exporter.views import event_view

SPEED = 60.0
_REFRESH_SECONDS = 1.0


def run(options: Options, clock: Clock) -> int:
    """Play all scenarios until interrupted, with a table of events; give the exit status."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with _simulator(options) as endpoint, tempfile.TemporaryDirectory(prefix="demo-state-") as directory:
        given = options.overrides
        overrides = msgspec.structs.replace(
            given, imds_endpoint=endpoint, state_directory=given.state_directory or directory
        )
        app = App(msgspec.structs.replace(options, overrides=overrides), clock)
        app.start()
        try:
            click.echo(_headline(app))
            _watch(app, clock, stopping)
        finally:
            app.stop()
    return 0


@contextlib.contextmanager
def _simulator(options: Options) -> Iterator[Endpoint]:
    if options.overrides.imds_endpoint is not None:
        yield options.overrides.imds_endpoint
        return
    simulator = Simulator(load_scenarios(), speed=SPEED, loop=True)
    with SimulatorServer(simulator) as server:
        yield Endpoint(server.url)


def _watch(app: App, clock: Clock, stopping: threading.Event) -> None:
    on_terminal = sys.stdout.isatty()
    shown: object = None
    told: set[tuple[str, str, object]] = set()
    while not stopping.wait(_REFRESH_SECONDS):
        snapshot = app.snapshot
        if on_terminal:
            click.clear()
            click.echo(
                f"Page, metrics and API: {app.url}   Simulator: {snapshot.endpoint}   Stop with Ctrl-C."
            )
        elif (snapshot.current, snapshot.past) == shown:
            continue
        shown = (snapshot.current, snapshot.past)
        _tell(snapshot, told, again=on_terminal)
        _table(snapshot, clock)


def _headline(app: App) -> str:
    return f"Page, metrics and API: {app.url}   Stop with Ctrl-C."


def _tell(snapshot: Snapshot, told: set[tuple[str, str, object]], *, again: bool) -> None:
    """Write a line for each transition: the last eight on a terminal, otherwise those not yet told."""
    lines = sorted(
        (record.at, tracked.key, record.transition.value, tracked.event.event_type)
        for tracked in (*snapshot.current, *snapshot.past)
        for record in tracked.transitions
    )
    for at, key, transition, event_type in lines[-8:] if again else lines:
        if again or (key, transition, at) not in told:
            click.echo(table.printable(f"{rfc3339(at)}  {transition:<10} {event_type:<10} {key}"))
        told.add((key, transition, at))


def _table(snapshot: Snapshot, clock: Clock) -> None:
    now = clock.now()
    views = [event_view(tracked, snapshot.target(tracked)) for tracked in snapshot.current]
    click.echo(table.summary(snapshot, now))
    for line in table.render(views, now) if views else ["No events are pending."]:
        click.echo(line)
