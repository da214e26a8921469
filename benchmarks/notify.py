"""From a change at IMDS to the message in a receiver; many messages; what having targets costs."""

import random
import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks import process
from benchmarks.figure import Figure
from benchmarks.running import Running, resident_mib, running
from tests.builders import raw_event
from tests.notifications.receivers import Receiver, http_receiver

CHANGES = 8
STARTS = 3
MANY = 1000
INTERVAL = 1.0
_PAUSE = 0.002


def idle() -> Iterator[Figure]:
    """Measure the idle exporter again, with a target configured."""
    yield from process.idle("--notify", "json://127.0.0.1:1/", title="idle with a target", memory_aim=56)


def message() -> Iterator[Figure]:
    """Change the document at moments spread over the poll interval, and wait for the messages."""
    first, later = [], []
    for _ in range(STARTS):
        with http_receiver() as receiver, running("--notify", f"json://{receiver.authority}/") as exporter:
            first.append(_message(exporter, receiver, 1))
            later += [_message(exporter, receiver, number) for number in range(2, CHANGES + 2)]
            memory = resident_mib(exporter.pid)
    aim = INTERVAL + 0.5
    yield Figure("change at IMDS to first message after start, worst", max(first), "s", aim)
    yield Figure("change at IMDS to message, median", statistics.median(later), "s", aim)
    yield Figure("change at IMDS to message, worst", max(later), "s", aim)
    yield Figure("resident memory after messages", memory, "MiB", 56)


def many() -> Iterator[Figure]:
    """Schedule a thousand events at once, and wait for a message about each."""
    with http_receiver() as receiver, running("--notify", f"json://{receiver.authority}/") as exporter:
        events = [raw_event(EventId=f"{number:032x}") for number in range(MANY)]
        exporter.simulator.set_document({"DocumentIncarnation": 1, "Events": events})
        _until(lambda: bool(receiver.requests))
        begun = time.monotonic()
        _until(lambda: len(receiver.requests) == MANY)
        yield Figure(f"{MANY} messages to a json:// target", time.monotonic() - begun, "s", 10)


def _message(exporter: Running, receiver: Receiver, number: int) -> float:
    time.sleep(random.random() * INTERVAL)
    exporter.simulator.set_document(
        {"DocumentIncarnation": number, "Events": [raw_event(EventId=f"{n:032x}") for n in range(number)]}
    )
    begun = time.monotonic()
    _until(lambda: len(receiver.requests) == number)
    return time.monotonic() - begun


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the messages do not arrive")
        time.sleep(_PAUSE)
