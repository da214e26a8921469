"""A scene for dashboards: exporters on several VMs, a simulated Azure, a receiver, and a real Prometheus."""

import contextlib
import json
import signal
import subprocess
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from exporter.simulator import EventPlan, Scenario, Simulator, SimulatorServer
from tests.alerts.support import prometheus
from tests.dashboards.reading import Asked, interpolate, spans
from tests.end_to_end.program import eventually, exporter, free_port, get, query
from tests.receivers import Receiver, http_receiver

# How much further apart the points of a coarse panel are; it asks for minutes, and a scene has seconds.
_COARSE = 5
VMS = ("demo_0", "demo_1", "demo_2", "demo_3")
_RULES = (
    {"name": "asked-for", "match": {"event_sources": ["User"]}, "require_hooks": ["drain"]},
    {"name": "short-freeze", "match": {"event_types": ["Freeze"], "max_duration": "8s"}},
)
_TAKEN_DOWN = ["Reboot", "Redeploy"]
# The second fails where an event was cancelled, so that there is something to see.
_HOOKS = [
    {
        "name": "drain",
        "match": {"event_types": _TAKEN_DOWN, "transitions": ["scheduled"]},
        "command": ["sleep", "0.3"],
    },
    {
        "name": "uncordon",
        "match": {"event_types": _TAKEN_DOWN, "transitions": ["completed", "cancelled"]},
        "command": ["sh", "-c", 'test "$EVENT_TRANSITION" = completed'],
    },
]


@dataclass
class Machine:
    """A VM with its exporter, which `start` and `stop` as the VM boots and goes down."""

    port: int
    state: Path
    imds: str
    flags: Sequence[str]
    environ: Mapping[str, str]
    running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start the exporter."""
        self.process = self.running.enter_context(
            exporter(self.imds, self.state, self.port, *self.flags, environ=self.environ)
        )

    def stop(self) -> None:
        """Kill it."""
        self.running.close()


@dataclass
class Scene:
    """What is on the stage; it ``began`` at a timestamp, and is scraped every ``scrape`` seconds."""

    simulator: Simulator
    receiver: Receiver
    server: str
    exporters: Mapping[str, "Machine"]
    began: float
    scrape: float

    def play(self, *events: EventPlan) -> None:
        """Announce events to all VMs, by the names in the plans."""
        scenario = Scenario(name="scene", title="Scene", description="", vms=VMS, events=events)
        self.simulator.start_scenario(scenario)

    def until(self, expression: str, *, within: float = 120.0) -> list[dict[str, Any]]:
        """Wait until an expression has a value."""
        return eventually(lambda: query(self.server, expression), within=within)

    def stand_still(self, vm: str, seconds: float, counter: str = "observed_pause_seconds_count") -> None:
        """Suspend a VM, as a Freeze does, until that is counted: a pause within a request is not noticed."""
        total = f'sum(azure_scheduled_events_{counter}{{instance="{vm}"}})'
        before = query(self.server, total)[0]["value"][1]
        process = self.exporters[vm].process
        assert process, "only what runs can stand still"

        def counted() -> bool:
            process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            process.send_signal(signal.SIGCONT)
            with contextlib.suppress(AssertionError):
                return bool(self.until(f"{total} > {before}", within=5))
            return False

        eventually(counted)

    def ask(self, asked: Asked, *, instance: str = ".*", points: int = 120) -> list[dict[str, Any]]:
        """Ask a query of a dashboard for the time since the beginning, as Grafana would.

        Every series has ``values``, pairs of timestamp and text; that of an instant query has a single one.
        """
        end = time.time()
        seconds = max(int(end - self.began), 1)
        interval = max(seconds / points, self.scrape) * (_COARSE if asked.coarse else 1)
        values = spans(seconds, interval=interval, scrape=self.scrape, instance=instance)
        expression = interpolate(asked.expression, values)
        if asked.instant:
            found = self.api("query", query=expression, time=f"{end:.3f}")["result"]
            return [{**series, "values": [series["value"]]} for series in found]
        period = {"start": f"{end - seconds:.3f}", "end": f"{end:.3f}", "step": f"{interval:.3f}"}
        result: list[dict[str, Any]] = self.api("query_range", query=expression, **period)["result"]
        return result

    def api(self, path: str, **parameters: str) -> Any:
        """Ask the API of Prometheus, and return the data of its answer."""
        return json.loads(get(f"{self.server}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]


@contextlib.contextmanager
def scene(folder: Path, *, speed: float = 1.0, scrape: float = 0.5, delay: str = "0s") -> Iterator[Scene]:
    """Run everything until the end of the block; ``speed`` is that of the simulated time.

    ``delay`` is how long approvals wait.
    """
    simulator = Simulator(speed=speed, vm_name=VMS[0], requests_per_second=0)
    with contextlib.ExitStack() as stack:
        imds = stack.enter_context(SimulatorServer(simulator))
        receiver, traces = (stack.enter_context(http_receiver()) for _ in range(2))
        flags = ["--poll.interval", f"{scrape * 1000:.0f}ms", "--notify", f"json://{receiver.authority}/"]
        flags += ["--config.file", str(_configuration(folder, delay))]
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{traces.authority}"}
        machines = {
            vm: Machine(free_port(), folder / vm, imds.url, ["--instance.name", vm, *flags], environ)
            for vm in VMS
        }
        ports = {vm: machine.port for vm, machine in machines.items()}
        # First, as it takes five seconds to its first scrape.
        exemplars, every = "--enable-feature=exemplar-storage", f"{scrape * 1000:.0f}ms"
        server = stack.enter_context(prometheus(folder, ports, exemplars, every=every))
        for machine in machines.values():
            stack.callback(machine.stop)
            machine.start()
        found = Scene(simulator, receiver, server, machines, time.time(), scrape)
        found.until(f"count(azure_scheduled_events_up == 1) == {len(VMS)}")
        found.began = time.time()
        yield found


def _configuration(folder: Path, delay: str) -> Path:
    file = folder / "exporter.yml"
    rules = [{"action": "approve", "delay": delay, **rule} for rule in _RULES]
    approval = {"mode": "on", "rules": rules}
    file.write_text(yaml.safe_dump({"approval": approval, "hooks": _HOOKS}))
    return file
