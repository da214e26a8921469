"""What a scrape costs, as Prometheus asks for it: idle, and with a thousand events."""

import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator

from benchmarks.figure import Figure
from benchmarks.running import running
from tests.builders import raw_event
from tests.end_to_end.program import eventually, get

SCRAPES = 31
EVENTS = 1000
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
TEXT = "text/plain;version=0.0.4"


def scrape() -> Iterator[Figure]:
    """Time whole requests over a new connection each, as text and as compressed OpenMetrics."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write("metrics: {events: all}\n")
        file.flush()
        with running("--config.file", file.name, "--poll.interval", "200ms") as exporter:
            url = f"{exporter.url}/metrics"
            yield from _both(url, "nothing pending", 3)
            events = [raw_event(EventId=f"{number:032x}") for number in range(EVENTS)]
            exporter.simulator.set_document({"DocumentIncarnation": 5, "Events": events})
            eventually(lambda: f"{EVENTS - 1:032x}" in get(url))
            yield from _both(url, f"{EVENTS} events", 60)


def _both(url: str, what: str, aim: float) -> Iterator[Figure]:
    for name, accept in {"text": TEXT, "OpenMetrics, gzip": OPENMETRICS}.items():
        compression = {"Accept-Encoding": "gzip"} if "gzip" in name else {}
        request = urllib.request.Request(url, headers={"Accept": accept} | compression)
        yield Figure(f"scrape, {what}, {name}", statistics.median(map(_time, [request] * SCRAPES)), "ms", aim)


def _time(request: urllib.request.Request) -> float:
    begun = time.perf_counter()
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()
    return (time.perf_counter() - begun) * 1000
