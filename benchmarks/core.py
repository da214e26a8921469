"""A document of ten thousand events through decoding, life cycle and state."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure
from exporter.advance import advance
from exporter.clock import SystemClock
from exporter.events import decode_document
from exporter.health import Health
from exporter.lifecycle import Known
from exporter.state import Store
from tests.builders import body, raw_event

EVENTS = 10_000
ROUNDS = 5


def ten_thousand() -> Iterator[Figure]:
    """Take the document in, into a new state each time, on the disk that holds temporary files."""
    document = body(*(raw_event(EventId=f"{number:032x}") for number in range(EVENTS)))
    times = [take(document) for _ in range(ROUNDS)]
    yield Figure(f"{EVENTS} events decoded, understood, remembered", statistics.median(times), "s", 0.5)


def take(document: bytes) -> float:
    """Take a document in, into a new state; give the seconds."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder), health=Health(clock), clock=clock)
        try:
            begun = time.perf_counter()
            known = decode_document(document)
            store.record(advance(Known(), known, clock.now(), instance="vm_0", watching=True))
            return time.perf_counter() - begun
        finally:
            store.close()
