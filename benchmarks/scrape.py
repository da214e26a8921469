"""CPU per scrape, as Prometheus asks for it: idle, with a hundred events and with a thousand."""

import contextlib
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure, paired
from benchmarks.running import CONTESTANTS, Running, cpu_seconds, running
from tests.builders import raw_event
from tests.end_to_end.program import eventually, get

SCRAPES = 11
# Series of an event in the exporter.
_SERIES = 6
_ACCEPT = {
    "text": {"Accept": "text/plain;version=0.0.4"},
    "OpenMetrics, gzip": {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"},
}


def scrape() -> Iterator[Figure]:
    """Scrape all contestants in turn; the aims in ms are for the exporter, whatever the machine."""
    yield from _with(0, 8.0, 4.0)
    yield from _with(100, 15.0, 2.0)
    yield from _with(1000, 100.0, 2.0)


def _with(events: int, most_ms: float, most_ratio: float) -> Iterator[Figure]:
    with contextlib.ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory()), "exporter.yml")
        file.write_text("metrics: {events: all}\n")
        flags = ("--config.file", str(file), "--series", str(events * _SERIES))
        found = {
            name: stack.enter_context(running(*(flags if name == "floor" else flags[:2]), **how))
            for name, how in CONTESTANTS.items()
        }
        for one in found.values():
            _fill(one, events)
        for kind, headers in _ACCEPT.items():
            cpu: dict[str, list[float]] = {name: [] for name in found}
            for _ in range(SCRAPES):
                for name, one in found.items():
                    cpu[name].append(_cost(one, headers))
            title = f"CPU of a scrape, {events} events, {kind}"
            for figure in paired(title, cpu, "ms", most_ratio):
                own = figure.name.endswith(", exporter")
                yield figure._replace(aim=most_ms) if own else figure


def _fill(one: Running, events: int) -> None:
    documents = [raw_event(EventId=f"{number:032x}") for number in range(events)]
    one.simulator.set_document({"DocumentIncarnation": 5, "Events": documents})
    if events:
        eventually(lambda: f"{events - 1:032x}" in get(f"{one.url}/metrics"))


def _cost(one: Running, headers: dict[str, str]) -> float:
    before = cpu_seconds(one.pid)
    with urllib.request.urlopen(
        urllib.request.Request(f"{one.url}/metrics", headers=headers), timeout=30
    ) as answer:
        answer.read()
    return (cpu_seconds(one.pid) - before) * 1000
