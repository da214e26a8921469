"""A scene for dashboards: exporters on several VMs, a simulated Azure, a receiver, and a real Prometheus."""

import contextlib
import json
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from exporter.simulator import EventPlan, Scenario, Simulator, SimulatorServer
from tests.dashboards.reading import Asked, interpolate, spans
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.notifications.receivers import Receiver, http_receiver

JOB = "azure-scheduled-events-exporter"
# How much further apart the points of a coarse panel are; it asks for minutes, and a scene has seconds.
_COARSE = 5
VMS = ("demo_0", "demo_1", "demo_2", "demo_3")


@dataclass
class Machine:
    """A VM with its exporter, which `start` and `stop` as the VM boots and goes down."""

    port: int
    state: Path
    imds: str
    flags: Sequence[str]
    running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self) -> None:
        """Start the exporter."""
        self.running.enter_context(exporter(self.imds, self.state, self.port, *self.flags))

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
        """Let Azure announce events to all VMs, by the names that the plans have."""
        scenario = Scenario(name="scene", title="Scene", description="", vms=VMS, events=events)
        self.simulator.start_scenario(scenario)

    def now(self, expression: str, **variables: str) -> list[dict[str, Any]]:
        """Ask for an expression's present value."""
        return _ask(f"{self.server}/api/v1/query", {"query": interpolate(expression, variables)})

    def until(self, expression: str, *, within: float = 30.0) -> list[dict[str, Any]]:
        """Wait until an expression has a value."""
        return eventually(lambda: self.now(expression), within=within)

    def ask(self, asked: Asked, *, instance: str = ".*", points: int = 120) -> list[dict[str, Any]]:
        """Ask a query of a dashboard for the time since the beginning, as Grafana would.

        Every series has ``values``, pairs of timestamp and text; that of an instant query has a single one.
        """
        end = time.time()
        seconds = max(int(end - self.began), 1)
        interval = max(seconds / points, self.scrape) * (_COARSE if asked.coarse else 1)
        values = spans(seconds, interval=interval, scrape=self.scrape, instance=instance)
        query = interpolate(asked.expression, values)
        if asked.instant:
            found = _ask(f"{self.server}/api/v1/query", {"query": query, "time": f"{end:.3f}"})
            return [{**series, "values": [series["value"]]} for series in found]
        period = {"start": f"{end - seconds:.3f}", "end": f"{end:.3f}", "step": f"{interval:.3f}"}
        return _ask(f"{self.server}/api/v1/query_range", {"query": query, **period})


def _ask(url: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
    answer = json.loads(get(f"{url}?{urllib.parse.urlencode(parameters)}"))
    result: list[dict[str, Any]] = answer["data"]["result"]
    return result


@contextlib.contextmanager
def scene(folder: Path, *, speed: float = 1.0, scrape: float = 0.2) -> Iterator[Scene]:
    """Run everything until the end of the block; ``speed`` is that of the simulated time."""
    simulator = Simulator(speed=speed, vm_name=VMS[0], requests_per_second=0)
    with contextlib.ExitStack() as stack:
        imds = stack.enter_context(SimulatorServer(simulator))
        receiver = stack.enter_context(http_receiver())
        flags = ["--poll.interval", f"{scrape * 1000:.0f}ms", "--notify", f"json://{receiver.authority}/"]
        machines = {
            vm: Machine(free_port(), folder / vm, imds.url, ["--instance.name", vm, *flags]) for vm in VMS
        }
        for machine in machines.values():
            stack.callback(machine.stop)
            machine.start()
        ports = {vm: machine.port for vm, machine in machines.items()}
        server = stack.enter_context(_prometheus(ports, folder, scrape))
        found = Scene(simulator, receiver, server, machines, time.time(), scrape)
        found.until(f"count(azure_scheduled_events_up == 1) == {len(VMS)}")
        yield found


@contextlib.contextmanager
def _prometheus(ports: Mapping[str, int], folder: Path, scrape: float) -> Iterator[str]:
    program = shutil.which("prometheus")
    assert program, "prometheus is not installed; make test installs it"
    targets = [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": vm}} for vm, port in ports.items()]
    file = folder / "prometheus.yml"
    jobs = [{"job_name": JOB, "static_configs": targets}]
    every = f"{scrape * 1000:.0f}ms"
    timing = {"scrape_interval": every, "scrape_timeout": every}
    file.write_text(yaml.safe_dump({"global": timing, "scrape_configs": jobs}))
    port = free_port()
    command = [program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: get(f"{url}/-/ready"))
        yield url
    finally:
        process.terminate()
        process.wait()
