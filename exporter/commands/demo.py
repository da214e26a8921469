"""`demo`: the exporter with the embedded simulator, on one terminal."""

import contextlib
import os
import queue
import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from exporter.app import OUTPUTS, App, Options, checked
from exporter.clock import Clock, FastClock
from exporter.commands import invoked, terminal
from exporter.config.addresses import Address
from exporter.config.loading import Loaded
from exporter.errors import Mistakes
from exporter.model.messages import Delivery, Rendered, Severity
from exporter.model.views import Demonstration, EventView, event_view
from exporter.model.wording import printable
from exporter.outputs.notifications import planning
from exporter.outputs.notifications.output import Notifications
from exporter.outputs.notifications.planning import Plan
from exporter.outputs.notifications.protocol import Checked, Request, Send
from exporter.outputs.notifications.sender import SenderProcess
from exporter.outputs.output import Core
from exporter.simulator import Simulator, SimulatorServer, load_scenarios

SPEED = 60.0
KEPT = 50
TERMINAL = "terminal"
_REFRESH_SECONDS = 0.5
_POLL_INTERVAL = 0.25  # close to Azure's limit: the 30 seconds before an eviction take half a second
_LEAST_MESSAGE_LINES = 8  # on a small terminal, the lines for messages below headline, table and two rules
_BODY_LINES = 6  # the newest message is cut to this where the titles of earlier ones need the lines


def run(options: Options, clock: Clock) -> int:
    """Play all scenarios until interrupted, with messages and a table of events; return the exit status."""
    # The app checks them in the background, and the demo does not wait for that.
    mistakes = Mistakes()
    loaded, _ = checked(options, os.environ, mistakes)
    mistakes.check()
    loaded.warn()
    # Not an event: the handler could interrupt its wait while that holds the lock.
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: signals.put(received))
    console = Console()
    with demonstrating(options, clock) as demo:
        if not console.is_interactive:
            _print(demo, console, signals)
        else:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                while not _is_stopped(signals):
                    live.update(frame(demo, console.height), refresh=True)
    for line in demo.messages.arrivals():
        console.print(line, soft_wrap=True)
    click.echo(next_steps(notify=bool(options.notify)))
    return 0


def _is_stopped(signals: queue.SimpleQueue[int]) -> bool:
    """Wait for a signal until it is time to refresh."""
    with contextlib.suppress(queue.Empty):
        return bool(signals.get(timeout=_REFRESH_SECONDS))
    return False


def next_steps(*, notify: bool) -> str:
    """Return what to try after the demo, which sent messages with ``notify``."""
    program = invoked()
    steps = [
        ("On an Azure VM", f"{program} run{' --notify URL' if notify else ''}"),
        ("If something does not work there", f"{program} doctor"),
    ]
    if not notify:
        mail = "mailto://user:password@example.com?to=oncall@example.com"
        steps.insert(0, ("The same with real messages, here by email", f"{program} demo --notify '{mail}'"))
    return "\n".join(("Try next:", *(f"  {what}:\n    {command}" for what, command in steps)))


class Demo(NamedTuple):
    app: App
    clock: Clock
    messages: "Messages"

    @property
    def events(self) -> list[EventView]:
        return [event_view(life) for life in self.app.snapshot.current]


@contextlib.contextmanager
def demonstrating(options: Options, clock: Clock) -> Iterator[Demo]:
    """Run the exporter until the end of the block, against the embedded simulator unless another is given."""
    given = options.overrides
    if given.imds_endpoint is None:
        clock = FastClock(clock, SPEED)
    messages = Messages()
    with (
        _simulator(options, clock) as endpoint,
        tempfile.TemporaryDirectory(prefix="demo-state-") as directory,
    ):
        overrides = msgspec.structs.replace(
            given,
            imds_endpoint=endpoint,
            state_directory=given.state_directory or directory,
            poll_interval=given.poll_interval or (None if given.imds_endpoint else _POLL_INTERVAL),
        )
        outputs = [partial(_Notifications, messages) if make is Notifications else make for make in OUTPUTS]
        app = App(msgspec.structs.replace(options, overrides=overrides), clock, outputs)
        if isinstance(clock, FastClock):
            app.demonstration = Demonstration(_notice(clock.speed), clock.speed, clock.began)
        app.start()
        try:
            yield Demo(app, clock, messages)
        finally:
            app.stop()


class Messages:
    """The rendered messages for the terminal, and the last result of each target beside it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[str, tuple[Address, Delivery | None]] = {}
        self._kept: list[Rendered] = []
        self._count = 0

    def keep(self, rendered: Rendered) -> None:
        with self._lock:
            self._kept = [*self._kept, rendered][-KEPT:]
            self._count += 1

    def expect(self, addresses: Iterable[Address]) -> None:
        """Set the targets whose results are shown."""
        with self._lock:
            self._results = {address.target: (address, None) for address in addresses}

    def record(self, target: str, delivery: Delivery) -> None:
        with self._lock:
            if target in self._results and not delivery.skipped:
                self._results[target] = self._results[target][0], delivery

    def arrivals(self) -> list[Text]:
        """Return a line for each target: whether its last message arrived, or why not."""
        with self._lock:
            results = list(self._results.values())
        return [_arrival(address, delivery) for address, delivery in results]

    def after(self, told: int) -> tuple[list[Rendered], int]:
        """Return the messages after the first ``told``, as far as they are kept, and the count of all."""
        with self._lock:
            new = self._count - told
            return self._kept[-new:] if new else [], self._count


def _arrival(address: Address, delivery: Delivery | None) -> Text:
    target = printable(f"{address.target} ({address.label})")
    if delivery is None:
        return Text(f"{target}: no message yet")
    if delivery.delivered:
        return Text(f"{target}: arrived", style=terminal.STYLES[Severity.SUCCESS])
    return Text(f"{target}: failed: {printable(delivery.reason)}", style=terminal.STYLES[Severity.CRITICAL])


class _Sender(SenderProcess):
    def __init__(self, messages: Messages, speed: float, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self._messages = messages
        self._speed = speed

    def ask(self, request: Request, **facts: Any) -> Delivery | Checked:
        if isinstance(request, Send):
            request = as_in_demo(request, self._speed)
        answer = super().ask(request, **facts)
        if isinstance(request, Send) and isinstance(answer, Delivery):
            self._messages.record(request.address.target, answer)
            if answer.rendered is not None:
                self._messages.keep(answer.rendered)
        return answer


class _Notifications(Notifications):
    def __init__(self, messages: Messages, core: Core) -> None:
        super().__init__(core, sender_type=partial(_Sender, messages, core.clock.speed))
        self._messages = messages

    def plan_of(self, loaded: Loaded) -> Plan:
        self._messages.expect(loaded.addresses[self.name])
        return planning.plan_of(loaded, local=[TERMINAL], keep_state=True)


def as_in_demo(send: Send, speed: float) -> Send:
    """Return a request with the delay in real time, and a mark in titles outside of the terminal."""
    at, marker = send.message.at, "" if send.address.target == TERMINAL else "(demo) "
    return msgspec.structs.replace(send, now=at + (send.now - at) / speed, marker=marker)


@contextlib.contextmanager
def _simulator(options: Options, clock: Clock) -> Iterator[str]:
    if options.overrides.imds_endpoint is not None:
        yield options.overrides.imds_endpoint
        return
    simulator = Simulator(load_scenarios(), speed=SPEED, loop=True, clock=clock)
    with SimulatorServer(simulator) as server:
        yield server.url


def _notice(speed: float) -> str:
    times = f"Simulated events and times at {speed:g}x: 15 minutes take {900 / speed:g} s."
    return f"{times} No real VM is involved."


def headline(demo: Demo) -> list[str]:
    endpoint, page = demo.app.snapshot.endpoint, f"Page, metrics and API: {demo.app.url}   Stop with Ctrl-C."
    if demo.clock.speed != 1:
        return [_notice(demo.clock.speed), page, f"Simulator's page: {endpoint}"]
    return [f"Events of {endpoint}", page]


def frame(demo: Demo, height: int) -> Text:
    """Return the screen: headline, events, the newest message, and the titles of earlier ones."""
    head = [Text(line, style="bold") for line in headline(demo)]
    head += demo.messages.arrivals()[: max(height - len(head) - _LEAST_MESSAGE_LINES, 0)]
    room = height - len(head) - 2
    events = _events(demo, room - _LEAST_MESSAGE_LINES)
    lines = [*head, Text(), *events, Text(), *_messages(demo, room - len(events))]
    text = Text("\n").join(lines[:height])
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _events(demo: Demo, room: int) -> list[Text]:
    views = demo.events
    if not demo.app.snapshot.up:
        reason = demo.app.snapshot.last_error or "its first answer can take a while"
        return [Text(f"No valid response from IMDS yet: {printable(reason)}", style="yellow")]
    # A row takes two lines; two more are for the head and the note on omitted events.
    shown = views[: max((room - 2) // 2, 1)]
    lines = list(terminal.table(shown, demo.clock.now()).split("\n"))
    if len(views) > len(shown):
        lines.append(Text(f"... and {len(views) - len(shown)} more on the page"))
    return lines


def _messages(demo: Demo, room: int) -> list[Text]:
    """Return the newest message and the titles of earlier ones; titles give way to its body if need be."""
    kept, _ = demo.messages.after(0)
    if not kept:
        return [Text("No message yet.")]
    titles = [_title(message) for message in reversed(kept[:-1])]
    body_room = max(room - 2 - len(titles), _BODY_LINES)
    body = [Text(printable(line)) for line in kept[-1].body.splitlines()[:body_room]]
    return [_title(kept[-1]), *body, Text(), *titles]


def _title(message: Rendered) -> Text:
    return Text(printable(message.title), style=terminal.STYLES[message.severity])


def _print(demo: Demo, console: Console, signals: queue.SimpleQueue[int]) -> None:
    """Print messages as they arrive, and the table of events when it has changed."""
    for line in headline(demo):
        click.echo(line)
    told, shown = 0, None
    arrivals = list[Text]()
    while not _is_stopped(signals):
        messages, told = demo.messages.after(told)
        for message in messages:
            body = "\n".join(map(printable, message.body.split("\n")))
            click.echo(f"\n{printable(message.title)}\n{body}\n")
        before, arrivals = arrivals, demo.messages.arrivals()
        for arrival in arrivals:
            if arrival not in before:
                console.print(arrival, soft_wrap=True)
        events = demo.app.snapshot.current
        if events != shown:
            console.print(terminal.table(demo.events, demo.clock.now()), soft_wrap=True)
        shown = events
