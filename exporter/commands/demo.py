"""`demo`: the exporter at work against the embedded simulator, on one terminal."""

import contextlib
import signal
import sys
import tempfile
import threading
from collections.abc import Hashable, Iterator

import click
import msgspec

from exporter.app import App, Options
from exporter.clock import Clock
from exporter.commands import table
from exporter.config.values import Endpoint
from exporter.model.messages import Delivery, Rendered
from exporter.model.snapshot import Snapshot
from exporter.model.views import event_view
from exporter.simulator import Simulator, SimulatorServer, load_scenarios

SPEED = 60.0
KEPT = 50
_TITLES = 9
_REFRESH_SECONDS = 1.0


def run(options: Options, clock: Clock) -> int:
    """Play all scenarios until interrupted, with messages and a table of events; return the exit status."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with _simulator(options) as endpoint, tempfile.TemporaryDirectory(prefix="demo-state-") as directory:
        given = options.overrides
        overrides = msgspec.structs.replace(
            given, imds_endpoint=endpoint, state_directory=given.state_directory or directory
        )
        messages = Messages()
        app = App(
            msgspec.structs.replace(options, overrides=overrides), clock, senders={"terminal": messages}
        )
        app.start()
        try:
            _watch(app, messages, clock, stopping)
        finally:
            app.stop()
    return 0


class Messages:
    """A notification target that keeps what it gets, for the terminal."""

    address = "terminal"
    body_limit = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[Rendered] = []
        self.count = 0

    def send(self, rendered: Rendered, about: Hashable = None) -> Delivery:
        """Take one."""
        del about
        with self._lock:
            self._kept = [*self._kept[1 - KEPT :], rendered]
            self.count += 1
        return Delivery(delivered=True)

    def newest(self, count: int = KEPT) -> list[Rendered]:
        """Return the last messages, oldest first."""
        with self._lock:
            return self._kept[-count:] if count else []


@contextlib.contextmanager
def _simulator(options: Options) -> Iterator[Endpoint]:
    if options.overrides.imds_endpoint is not None:
        yield options.overrides.imds_endpoint
        return
    simulator = Simulator(load_scenarios(), speed=SPEED, loop=True)
    with SimulatorServer(simulator) as server:
        yield Endpoint(server.url)


def _watch(app: App, messages: Messages, clock: Clock, stopping: threading.Event) -> None:
    if not sys.stdout.isatty():
        click.echo(_headline(app))
    told, shown = 0, None
    while not stopping.wait(_REFRESH_SECONDS):
        if sys.stdout.isatty():
            _redraw(app, messages, clock)
            continue
        count = messages.count
        for message in messages.newest(min(count - told, KEPT)):
            click.echo(f"\n{_printable(message.title)}\n{_printable(message.body)}\n")
        told = count
        events = app.snapshot.current
        if events != shown:
            _table(app.snapshot, clock)
        shown = events


def _redraw(app: App, messages: Messages, clock: Clock) -> None:
    """Draw the screen anew: what is pending, the newest message whole, and the titles before it."""
    click.clear()
    click.echo(_headline(app))
    _table(app.snapshot, clock)
    kept = messages.newest(_TITLES)
    if not kept:
        click.echo("\nNo message yet.")
        return
    click.echo(f"\n{_printable(kept[-1].title)}\n{_printable(kept[-1].body)}\n")
    for message in reversed(kept[:-1]):
        click.echo(_printable(message.title))


def _headline(app: App) -> str:
    return f"Page, metrics and API: {app.url}   Simulator: {app.snapshot.endpoint}   Stop with Ctrl-C."


def _printable(text: str) -> str:
    return "\n".join(map(table.printable, text.split("\n")))


def _table(snapshot: Snapshot, clock: Clock) -> None:
    now = clock.now()
    views = [event_view(tracked) for tracked in snapshot.current]
    click.echo(table.summary(snapshot, now))
    for line in table.render(views, now) if views else ["No events are pending."]:
        click.echo(line)
