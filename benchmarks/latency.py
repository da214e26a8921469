"""What a start costs; how long it takes from a change at IMDS to the metric."""

import random
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.figure import Figure, paired
from benchmarks.running import CONTESTANTS, Running, cpu_seconds, running
from tests.builders import raw_event
from tests.end_to_end.program import eventually, get

STARTS = 7
# So many exporters at once, each with so many changes: enough for a 99th percentile.
EXPORTERS = 8
CHANGES = 15
INTERVAL = 1.0
_PAUSE = 0.005


def start() -> Iterator[Figure]:
    """Start the contestants in turn, and ask for metrics until they come."""
    cpu: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for _ in range(STARTS):
        for name, how in CONTESTANTS.items():
            with running(**how, path="/metrics") as one:
                cpu[name].append(cpu_seconds(one.pid) * 1000)
    yield from paired("CPU from the start to the first scrape", cpu, "ms", 3.5)


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
    before = target.simulator.picture().polls
    target.simulator.set_document(
        {"DocumentIncarnation": number, "Events": [raw_event(EventId=f"{number:032x}")]}
    )
    begun = time.monotonic()
    # Scrapes all the time, of many exporters at once, would take the processor that the polls need.
    eventually(lambda: target.simulator.picture().polls > before, every=_PAUSE)
    eventually(lambda: f'event_id="{number:032x}"' in get(f"{target.url}/metrics"), every=_PAUSE)
    return time.monotonic() - begun
