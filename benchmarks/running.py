"""The exporter as a process of its own beside a simulator, and what the kernel says of it."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, exporter, free_port, get

# Another checkout to compare with, such as the commit before a change.
_BASE = os.environ.get("BENCH_BASE", "")
CONTESTANTS: dict[str, dict[str, Any]] = {
    "exporter": {},
    "floor": {"module": "benchmarks.floor"},
    **({_BASE: {"environ": {"PYTHONSAFEPATH": "1", "PYTHONPATH": _BASE}}} if _BASE else {}),
}


class Running(NamedTuple):
    """A running exporter: its process id, its URL, its state directory, and what it watches."""

    pid: int
    url: str
    state: Path
    simulator: Simulator


@contextlib.contextmanager
def running(
    *flags: str, environ: Mapping[str, str] | None = None, module: str = "exporter", path: str = "/-/ready"
) -> Iterator[Running]:
    """Run the exporter against an idle simulator, and wait until it answers at a path."""
    simulator = Simulator(requests_per_second=0, vm_name="WestNO_0")
    with SimulatorServer(simulator) as imds, tempfile.TemporaryDirectory() as folder:
        port, state = free_port(), Path(folder) / "state"
        with exporter(imds.url, state, port, *flags, environ=environ, module=module) as process:
            url = f"http://127.0.0.1:{port}"
            eventually(lambda: get(f"{url}{path}"))
            yield Running(process.pid, url, state, simulator)


def resident_mib(pid: int) -> float:
    """Return the memory that a process has resident, as proc_pid_statm(5) has it."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, as clock_getcpuclockid(3) of Linux does."""
    return time.clock_gettime((~pid << 3) | 2)


def written_bytes(pid: int) -> int:
    """Return what a process has caused to be written to disk (proc_pid_io(5))."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def open_files(pid: int) -> int:
    """Count the open files of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid: int) -> int:
    """Count the threads of a process."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def polls(url: str) -> float:
    """Return how many polls have succeeded, from the metrics."""
    name = 'azure_scheduled_events_polls_total{outcome="success"} '
    return next(
        float(line[len(name) :]) for line in get(f"{url}/metrics").splitlines() if line.startswith(name)
    )
