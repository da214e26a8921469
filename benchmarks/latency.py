"""From the start to the first answered scrape; from a change at IMDS to the metric."""

import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.running import Running, running
from exporter.simulator import Simulator, SimulatorServer
from tests.builders import raw_event
from tests.end_to_end.program import exporter, free_port, get

STARTS = 5
# So many exporters at once, each with so many changes: enough for a 99th percentile.
EXPORTERS = 8
CHANGES = 15
INTERVAL = 1.0
_PAUSE = 0.002


def start() -> Iterator[Figure]:
    """Start the process, and ask for metrics until they come."""
    times = []
    with SimulatorServer(Simulator(requests_per_second=0)) as imds:
        for _ in range(STARTS):
            with tempfile.TemporaryDirectory() as folder:
                port = free_port()
                begun = time.monotonic()
                with exporter(imds.url, Path(folder), port):
                    _until(f"http://127.0.0.1:{port}/metrics", "azure_scheduled_events_up")
                    times.append(time.monotonic() - begun)
    yield Figure("start to first answered scrape", statistics.median(times), "s", 0.7)


def change() -> Iterator[Figure]:
    """Change the document at moments spread over the poll interval; ask for metrics until they show it."""
    with ThreadPoolExecutor(EXPORTERS) as pool:
        times = sorted(time for found in pool.map(_changes, range(EXPORTERS)) for time in found)
    aim = INTERVAL + 0.05
    yield Figure("change at IMDS to metric, median", statistics.median(times), "s", aim)
    yield Figure("change at IMDS to metric, 99 of 100 within", times[int(len(times) * 0.99)], "s", aim)
    yield Figure(f"change at IMDS to metric, worst of {len(times)}", times[-1], "s", aim)


def _changes(_: int) -> list[float]:
    with running() as exporter_:
        return [_change(exporter_, number) for number in range(1, CHANGES + 1)]


def _change(target: Running, number: int) -> float:
    time.sleep(random.random() * INTERVAL)
    target.simulator.set_document(
        {"DocumentIncarnation": number, "Events": [raw_event(EventId=f"{number:032x}")]}
    )
    begun = time.monotonic()
    _until(f"{target.url}/metrics", f'event_id="{number:032x}"')
    return time.monotonic() - begun


def _until(url: str, text: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if text in get(url):
                return
        except OSError:
            pass
        time.sleep(_PAUSE)
    raise TimeoutError(f"{url} does not show {text!r}")
