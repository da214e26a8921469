"""The whole program in one process, in front of a simulated IMDS, with a clock that is moved by hand.

`Bench` builds the real `App` from a configuration file. Only its edges are replaced: senders keep messages
in memory, commands of hooks are noted instead of run, spans go to a list, and requests to IMDS are noted.
Everything else, with the web server, the state on disk and the client of IMDS, is as in production, and is
looked at as users do: by HTTP.
"""

import json
import random
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from exporter.app import OUTPUTS, App, Options
from exporter.config import Overrides
from exporter.imds.client import ImdsClient
from exporter.model.jobs import HookOutcome
from exporter.model.messages import Rendered
from exporter.outputs.hooks.command import Command, CommandResult
from exporter.outputs.notifications.output import Notifications
from exporter.outputs.otlp.telemetry import LogRecord, Signal, Span
from exporter.outputs.otlp.worker import ExportOutcome
from exporter.simulator import Fault, Simulator, SimulatorServer
from tests.bench.loops import HandLoops
from tests.bench.senders import MemorySender, MemoryTarget
from tests.builders import body
from tests.clocks import HandClock

VM = "WestNO_0"
SUCCEEDED = CommandResult(HookOutcome.SUCCEEDED, 0, 0.0, "")
# IMDS that does not return the name of the VM.
NAMELESS = Fault("error", endpoint="instance")


class MemoryReceiver:
    """A receiver of one signal: spans, log records or families of metrics, of which it keeps each push."""

    def __init__(self) -> None:
        self.problem = ""
        self.answer: Callable[[Sequence[Any]], ExportOutcome] = lambda _: ExportOutcome()
        self.spans: list[Span] = []
        self.records: list[LogRecord] = []
        self.pushes: list[tuple[datetime, dict[str, Metric]]] = []
        self.tries = 0
        self.open = 0
        self.attributes: Mapping[str, str] = {}
        self.clock: HandClock

    def export(self, given: Iterable[Any]) -> ExportOutcome:
        items = list(given)
        self.tries += 1
        outcome = ExportOutcome(problem=self.problem) if self.problem else self.answer(items)
        if not outcome.problem:
            self.spans += [one for one in items if isinstance(one, Span)]
            self.records += [one for one in items if isinstance(one, LogRecord)]
            families = {one.name: one for one in items if isinstance(one, Metric)}
            self.pushes += [(self.clock.now(), families)] if families else []
        return outcome

    def shutdown(self) -> None:
        """Count the end of one exporter: the next process uses this receiver again."""
        self.open -= 1


class Bench:
    """The program with this configuration file, at rest; `close` it in the end.

    ``fields`` are those of `Options` and of `Overrides`; the endpoint and the directory of the state are
    the bench's own unless they are given. With ``real_senders`` messages go to the addresses of the file.
    """

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        text: str = "",
        *,
        real_senders: bool = False,
        **fields: Any,
    ) -> None:
        random.seed(0)
        self.folder = folder
        self.file = folder / "exporter.yml"
        self.clock = HandClock()
        self.loops = HandLoops(self.clock, patch)
        # The hand clock stands still, so that all requests fall into one second.
        self.simulator = Simulator(clock=self.clock, idle=True, vm_name=VM, requests_per_second=0)
        self.senders = MemorySender(is_real=real_senders)
        self.receivers = {signal: MemoryReceiver() for signal in Signal}
        self.receiver = self.receivers[Signal.TRACES]
        self.commands: list[Command] = []
        self.command_result: Callable[[Command], CommandResult] = lambda _: SUCCEEDED
        # What the client of IMDS is asked for, and when: "" for a document, else the id of an approval.
        self.asked: list[tuple[float, str]] = []
        self.before_answer: Callable[[str], None] = lambda _: None
        self._incarnation = 0
        self.state = folder / "state"
        self._options = fields
        patch.setattr("exporter.outputs.hooks.command.run", self._run)
        # The time that the test waits is not part of the simulated time.
        patch.setattr("exporter.watch.poller.Sleep._run_delay", lambda _: 0.0)
        for signal in Signal:
            self.receivers[signal].clock = self.clock
            made = "metrics.MetricExporter" if signal is Signal.METRICS else f"{signal}.exporter"
            patch.setattr(f"exporter.outputs.otlp.{made}", partial(self._receive, signal))
        self._watch_requests(patch)
        self.imds = SimulatorServer(self.simulator)
        self.imds.__enter__()
        self.start(text)

    def start(self, text: str | None = None) -> None:
        """Start the program, with another configuration if one is given, and run it until it is at rest."""
        if text is not None:
            self.file.write_text(text)
        names = Overrides.__struct_fields__
        overrides: dict[str, Any] = {"imds_endpoint": self.imds.url, "state_directory": str(self.state)}
        overrides |= {name: value for name, value in self._options.items() if name in names}
        options = {name: value for name, value in self._options.items() if name not in names}
        usual: dict[str, Any] = {
            "config_file": self.file,
            "listen_address": "127.0.0.1:0",
            "enable_lifecycle": True,
        }
        given = Options(**(usual | options), overrides=Overrides(**overrides))
        notifications = partial(Notifications, sender_type=lambda *_: self.senders)
        outputs = [notifications if make is Notifications else make for make in OUTPUTS]
        self.app = App(given, self.clock, outputs)
        self.app.start()
        self.loops.settle()

    def restart(self, text: str | None = None, *, after: float = 0.0) -> None:
        self.app.stop()
        self.clock.pass_seconds(after)
        self.start(text)

    def forget(self, text: str | None = None) -> None:
        """Start the program again without its state."""
        self.app.stop()
        shutil.rmtree(self.state)
        self.start(text)

    def kill(self) -> None:
        """Start the program again with the state as it is on disk now, without an orderly stop."""
        killed, self.state = self.state, self.folder / f"{self.state.name}+"
        shutil.copytree(killed, self.state)
        problems = {signal: one.problem for signal, one in self.receivers.items()}
        for receiver in self.receivers.values():
            receiver.problem = "killed"
        self.app.stop()
        for signal, receiver in self.receivers.items():
            receiver.problem = problems[signal]
        self.start()

    def close(self) -> None:
        """Stop the program and IMDS. No background work may have failed in an unexpected way."""
        self.app.stop()
        self.imds.__exit__(None, None, None)
        assert (self.loops.errors, [one.open for one in self.receivers.values()]) == ([], [0, 0, 0])

    # Azure and time

    def show(self, *events: dict[str, Any], wait: float = 1.0) -> None:
        """Make IMDS list these events (see `tests.builders.raw_event`), and advance the clock."""
        self.announce(*events)
        self.advance(wait)

    def announce(self, *events: dict[str, Any]) -> None:
        """Make IMDS list these events from the next poll on."""
        self._incarnation += 1
        self.simulator.set_document(body(*events, incarnation=self._incarnation))

    def outage(self, seconds: float) -> None:
        """Make IMDS answer with errors for some time, and then recover."""
        self.simulator.set_fault(Fault("error"))
        self.advance(seconds)
        self.simulator.set_fault(None)

    def advance(self, seconds: float) -> None:
        """Advance the clock, and do everything that becomes due."""
        self.loops.advance(seconds)

    @property
    def approved(self) -> list[str]:
        """The ids whose approvals IMDS got, each as often as that was."""
        return [approval.event_id for approval in self.simulator.approvals]

    @property
    def posts(self) -> list[tuple[float, str]]:
        """The approvals that were sent, whether or not IMDS accepted them."""
        return [(at, event_id) for at, event_id in self.asked if event_id]

    # What users see

    def request(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.app.url + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def reload(self, text: str | None = None, **headers: str) -> int:
        """Reload the configuration, another one if it is given, and return the status of the answer."""
        if text is not None:
            self.file.write_text(text)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.request, "/-/reload", "POST", **headers)
            while not answer.done():
                self.loops.settle()
        self.loops.settle()
        return answer.result()[0]

    def api(self, key: Literal["current", "past", "problems", "kubernetes", "targets"]) -> Any:
        path = "/api/v1/events" if key in ("current", "past") else "/api/v1/status"
        return json.loads(self.request(path)[1])[key]

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the sum of the samples that have these labels; None if there is none."""
        found = [
            sample.value
            for family in text_string_to_metric_families(self.request("/metrics")[1])
            for sample in family.samples
            if sample.name == f"azure_scheduled_events_{name}" and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None

    def sent(self, target: str = "oncall") -> list[Rendered]:
        return self.sender(target).sent

    def sender(self, target: str = "oncall") -> MemoryTarget:
        return self.senders.target(target)

    # The edges

    def _watch_requests(self, patch: pytest.MonkeyPatch) -> None:
        fetch, approve = ImdsClient.fetch, ImdsClient.approve

        def fetching(client: ImdsClient) -> bytes:
            self.asked.append((self.clock.monotonic(), ""))
            return fetch(client)

        def approving(client: ImdsClient, event_id: str, confirm: Callable[[], None] = lambda: None) -> None:
            self.asked.append((self.clock.monotonic(), event_id))
            self.before_answer(event_id)
            approve(client, event_id, confirm)

        patch.setattr(ImdsClient, "fetch", fetching)
        patch.setattr(ImdsClient, "approve", approving)

    def _receive(
        self, signal: Signal, attributes: Callable[[], Mapping[str, str]], *_: object, console: bool
    ) -> MemoryReceiver:
        del console
        receiver = self.receivers[signal]
        receiver.attributes = attributes()
        receiver.open += 1
        return receiver

    def _run(self, command: Command, *, output: Callable[[str], None], **_: Any) -> CommandResult:
        del output
        self.commands.append(command)
        return self.command_result(command)


def start_nameless(build: Callable[..., Bench], text: str) -> Bench:
    """Return a bench that has no state, and whose IMDS does not return the name of the VM."""
    bench = build("imds: {poll_interval: 1h}")
    bench.simulator.set_fault(NAMELESS)
    bench.forget(text)
    return bench
