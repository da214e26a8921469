"""A document of a thousand events through decoding, life cycle and state; a start that finds them there."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure
from exporter.clock import SystemClock
from exporter.config import Route
from exporter.health import Health
from exporter.model.advance import advance
from exporter.model.documents import decode_document
from exporter.model.lifecycle import WatchState
from exporter.outputs.notifications.outbox import Outbox, job_of
from exporter.outputs.notifications.planning import Plan
from exporter.state.store import Store
from tests.builders import body, raw_event

EVENTS = MESSAGES = 1000
ROUNDS = 5


def thousand() -> Iterator[Figure]:
    """Take the document in, into a new state each time, on the disk that holds temporary files."""
    document = body(*(raw_event(EventId=f"{number:032x}") for number in range(EVENTS)))
    times = [take(document) for _ in range(ROUNDS)]
    yield Figure(f"{EVENTS} events decoded, understood, remembered", statistics.median(times), "s", 0.05)
    times = [start(document) for _ in range(ROUNDS)]
    yield Figure(
        f"{EVENTS} events, {MESSAGES} messages: the state opened", statistics.median(times), "s", 0.1
    )


def take(document: bytes) -> float:
    """Take a document in, into a new state; return the seconds."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder), health=Health(clock), clock=clock)
        try:
            begun = time.perf_counter()
            known = decode_document(document)
            store.record(advance(WatchState(), known, clock.now(), instance="vm_0", watching=True))
            return time.perf_counter() - begun
        finally:
            store.close()


def start(document: bytes) -> float:
    """Return the seconds of a start that finds all events of a document, and messages to send."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder), health=Health(clock), clock=clock)
        step = advance(
            WatchState(), decode_document(document), clock.now(), instance="WestNO_0", watching=True
        )
        store.jobs("notifications", Outbox)
        messages = Plan([Route(("oncall",))]).compose(
            step.occurrences[:MESSAGES], instance="WestNO_0", now=clock.now()
        )
        store.record(step, map(job_of, messages))
        store.close()
        begun = time.perf_counter()
        store = Store.open(Path(folder), health=Health(clock), clock=clock)
        assert len(store.load().current) == EVENTS
        assert store.jobs("notifications", Outbox).counts() == {"oncall": MESSAGES}
        seconds = time.perf_counter() - begun
        store.close()
        return seconds
