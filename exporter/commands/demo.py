"""`demo`: the exporter with the embedded simulator, on one terminal."""

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from exporter.app import App, Options
from exporter.clock import Clock
from exporter.commands import terminal
from exporter.config import Endpoint, PollInterval
from exporter.model.messages import AnyMessage, Backlog, Delivery, Rendered, Writer
from exporter.model.views import EventView, event_view
from exporter.model.wording import printable
from exporter.notifications import planning
from exporter.notifications.planning import Plan
from exporter.simulator import Simulator, SimulatorServer, load_scenarios

SPEED = 60.0
KEPT = 50
_REFRESH_SECONDS = 0.5
# Close to Azure's limit: the 30 seconds before an eviction take half a second.
_POLL_INTERVAL = PollInterval(0.25)
# On a small terminal, the lines for messages below headline, table and two rules.
_LEAST_MESSAGE_LINES = 8
# The newest message is cut to this.
_BODY_LINES = 6

V = TypeVar("V")


def run(options: Options, clock: Clock) -> int:
    """Play all scenarios until interrupted, with messages and a table of events; return the exit status.

    Raises:
        ConfigurationError: the file, a target or a template is invalid.
    """
    # The app checks them in the background, and the demo does not wait for that.
    planning.load(options.config_file, options.overrides, options.notify, os.environ)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    console = terminal.console()
    with demonstrating(options, clock) as demo:
        if not console.is_interactive:
            _print(demo, console, stopping)
            return 0
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(frame(demo, console.height), refresh=True)
                if stopping.wait(_REFRESH_SECONDS):
                    return 0


class Demo(NamedTuple):
    """A running exporter, its messages, and the speed of its simulated time."""

    app: App
    clock: Clock
    speed: float
    messages: "Messages"

    @property
    def events(self) -> list[EventView]:
        """The current events, newest first."""
        return [event_view(tracked) for tracked in self.app.snapshot.current]


@contextlib.contextmanager
def demonstrating(options: Options, clock: Clock) -> Iterator[Demo]:
    """Run the exporter until the end of the block, against the embedded simulator unless another is given."""
    given = options.overrides
    speed = SPEED if given.imds_endpoint is None else 1.0
    messages = Messages()
    with _simulator(options) as endpoint, tempfile.TemporaryDirectory(prefix="demo-state-") as directory:
        overrides = msgspec.structs.replace(
            given,
            imds_endpoint=endpoint,
            state_directory=given.state_directory or directory,
            poll_interval=given.poll_interval or (None if speed == 1 else _POLL_INTERVAL),
        )
        app = App(
            msgspec.structs.replace(options, overrides=overrides),
            clock,
            senders={"terminal": messages},
            adapt=partial(simulated, speed=speed, began=clock.now()),
            notice=_notice(speed),
        )
        app.start()
        try:
            yield Demo(app, clock, speed, messages)
        finally:
            app.stop()


class Messages:
    """A notification target that keeps its messages for the terminal."""

    address = "terminal"
    body_limit = None
    backlog = Backlog.DIGEST

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[Rendered] = []
        self.count = 0

    def send(self, rendered: Rendered, delivered_to: set[str] | None = None) -> Delivery:
        """Keep a message."""
        del delivered_to
        with self._lock:
            self._kept = [*self._kept[1 - KEPT :], rendered]
            self.count += 1
        return Delivery(delivered=True)

    def newest(self, count: int = KEPT) -> list[Rendered]:
        """Return the last messages, oldest first."""
        with self._lock:
            return self._kept[-count:] if count else []


def simulated(plan: Plan, speed: float, began: datetime) -> Plan:
    """Return the plan with messages in simulated time, which passes faster than the clock since ``began``."""
    if speed == 1:
        return plan
    return plan._replace(renderer=lambda: _SimulatedWriter(plan.renderer(), speed, began))


class _SimulatedWriter:
    """Renders messages in simulated time."""

    def __init__(self, writer: Writer, speed: float, began: datetime) -> None:
        self._writer = writer
        self._speed = speed
        self._began = began

    def render(
        self, message: AnyMessage, now: datetime, *, limit: int | None = None, late: bool = False
    ) -> Rendered:
        """Render one message."""
        # The delay of the delivery is real time.
        now = self._when(message.at) + (now - message.at)
        return self._writer.render(self._moved(message), now, limit=limit, late=late)

    def digest(
        self, messages: Sequence[AnyMessage], now: datetime, *, limit: int | None = None
    ) -> tuple[Rendered, int]:
        """Render the first of several messages as one."""
        return self._writer.digest([*map(self._moved, messages)], self._when(now), limit=limit)

    def _when(self, at: datetime) -> datetime:
        return self._began + (at - self._began) * self._speed

    def _moved(self, value: V) -> V:
        """Return a time, or a value that contains times, in simulated time."""
        found: object = value
        if isinstance(value, datetime):
            found = self._when(value)
        elif isinstance(value, tuple):
            found = tuple(map(self._moved, value))
        elif isinstance(value, msgspec.Struct):
            fields = {name: self._moved(getattr(value, name)) for name in value.__struct_fields__}
            if fields.get("impact_seconds") is not None:
                fields["impact_seconds"] *= self._speed
            found = msgspec.structs.replace(value, **fields)
        return found  # type: ignore[return-value]  # of the same type, whichever it is


@contextlib.contextmanager
def _simulator(options: Options) -> Iterator[Endpoint]:
    if options.overrides.imds_endpoint is not None:
        yield options.overrides.imds_endpoint
        return
    simulator = Simulator(load_scenarios(), speed=SPEED, loop=True)
    with SimulatorServer(simulator) as server:
        yield Endpoint(server.url)


def _notice(speed: float) -> str:
    if speed == 1:
        return ""
    return f"Simulated events at {speed:g}x: 15 minutes take {900 / speed:g} seconds. No VM is affected."


def headline(demo: Demo) -> list[str]:
    """Return the lines above the events."""
    endpoint, page = demo.app.snapshot.endpoint, f"Page, metrics and API: {demo.app.url}   Stop with Ctrl-C."
    if demo.speed == 1:
        return [f"Events of {endpoint}", page]
    return [_notice(demo.speed), page, f"Simulator's page: {endpoint}"]


def frame(demo: Demo, height: int) -> Text:
    """Return the screen: headline, events, the newest message in full, and the titles of earlier ones."""
    head = [Text(line, style="bold") for line in headline(demo)]
    room = height - len(head) - 2
    parts = [*head, Text(), *_events(demo, room - _LEAST_MESSAGE_LINES), Text()]
    lines = _messages(demo)
    text = Text("\n").join((parts + lines)[:height])
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _events(demo: Demo, room: int) -> list[Text]:
    views = demo.events
    if not demo.app.snapshot.up:
        reason = demo.app.snapshot.last_error or "its first answer can take a while"
        return [Text(f"No valid response from IMDS yet: {printable(reason)}", style="yellow")]
    # A row takes two lines; two more are for the head and the note on omitted events.
    shown = views[: max((room - 2) // 2, 1)]
    lines = list(terminal.coloured(shown, demo.clock.now(), demo.speed).split("\n"))
    if len(views) > len(shown):
        lines.append(Text(f"... and {len(views) - len(shown)} more on the page"))
    return lines


def _messages(demo: Demo) -> list[Text]:
    kept = demo.messages.newest()
    if not kept:
        return [Text("No message yet.")]
    body = [Text(printable(line)) for line in kept[-1].body.splitlines()[:_BODY_LINES]]
    return [_title(kept[-1]), *body, Text(), *(_title(message) for message in reversed(kept[:-1]))]


def _title(message: Rendered) -> Text:
    return Text(printable(message.title), style=terminal.STYLES[message.severity])


def _print(demo: Demo, console: Console, stopping: threading.Event) -> None:
    """Print messages as they arrive, and the table of events when it has changed."""
    for line in headline(demo):
        click.echo(line)
    told, shown = 0, None
    while not stopping.wait(_REFRESH_SECONDS):
        count = demo.messages.count
        for message in demo.messages.newest(min(count - told, KEPT)):
            body = "\n".join(map(printable, message.body.split("\n")))
            click.echo(f"\n{printable(message.title)}\n{body}\n")
        told = count
        events = demo.app.snapshot.current
        if events != shown:
            console.print(terminal.coloured(demo.events, demo.clock.now(), demo.speed))
        shown = events
