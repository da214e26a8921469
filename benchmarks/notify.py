"""From a change at IMDS to the message in a receiver; many messages; what having targets costs."""

import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

from benchmarks import process
from benchmarks.figure import Figure
from benchmarks.running import Running, cpu_seconds, resident_mib, running
from tests.builders import raw_event
from tests.end_to_end.program import children, proportional
from tests.receivers import Receiver, http_receiver

CHANGES = 8
STARTS = 3
MANY = 1000
TARGETS = 3
_TEMPLATES = (
    ", templates: {title: '{{ severity | upper }}: {{ event.type }} {{ transition }} on {{ instance }}', "
    "body: '{{ event.description }} (`{{ event.id }}`) {{ vm.portal_url }}'}"
)
INTERVAL = 1.0
_PAUSE = 0.002


def idle() -> Iterator[Figure]:
    """Measure the idle exporter again, with a target configured."""
    yield from process.idle("--notify", "json://127.0.0.1:1/", title="idle with a target", memory_aim=2.4)


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
    """Schedule a thousand events at once, and wait for a message about each at three targets."""
    plain = yield from _storm("", "")
    yield from _storm(_TEMPLATES, ", with templates", 1.3 * plain)


def _storm(templates: str, what: str, most: float = 20) -> Generator[Figure, None, float]:
    """Measure a storm; return the CPU seconds."""
    with http_receiver() as receiver, tempfile.TemporaryDirectory() as folder:
        targets = [f"{{name: t{number}, url: 'json://{receiver.authority}/'}}" for number in range(TARGETS)]
        file = Path(folder) / "exporter.yml"
        file.write_text(f"notifications: {{targets: [{', '.join(targets)}]{templates}}}")
        with running("--config.file", str(file)) as exporter:
            before = _cpu_seconds(exporter.pid)
            events = [raw_event(EventId=f"{number:032x}") for number in range(MANY)]
            begun = time.monotonic()
            exporter.simulator.set_document({"DocumentIncarnation": 1, "Events": events})
            _until_there_are(receiver, MANY * TARGETS)
            seconds = time.monotonic() - begun
            memory = sum(map(_memory, _family(exporter.pid)))
            used = [now - then for now, then in zip(_cpu_seconds(exporter.pid), before, strict=True)]
    title = f"{MANY} messages to each of {TARGETS} json:// targets{what}"
    yield Figure(title, seconds, "s", 15)
    yield Figure("- CPU time of the exporter", used[0], "s")
    yield Figure("- CPU time of the sender process", used[1], "s")
    yield Figure("- CPU time of both", sum(used), "s", most)
    yield Figure("- proportional memory of both", memory, "MiB", 160)
    return sum(used)


def _cpu_seconds(pid: int) -> tuple[float, float]:
    """Return the CPU time of an exporter and of its sender process."""
    exporter, *others = _family(pid)
    return cpu_seconds(exporter), sum(map(_with_ended, others))


def _with_ended(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    """Return the proportional memory of a process, which may have ended just now."""
    with contextlib.suppress(FileNotFoundError):
        return proportional(pid)
    return 0.0


def _family(pid: int) -> list[int]:
    """Return a process with all its descendants."""
    return [pid, *(one for child in children(pid) for one in _family(child))]


def _message(exporter: Running, receiver: Receiver, number: int) -> float:
    time.sleep(random.random() * INTERVAL)
    exporter.simulator.set_document(
        {"DocumentIncarnation": number, "Events": [raw_event(EventId=f"{n:032x}") for n in range(number)]}
    )
    begun = time.monotonic()
    _until_there_are(receiver, number)
    return time.monotonic() - begun


def _until_there_are(receiver: Receiver, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(receiver.requests) != count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(receiver.requests)} of {count} messages have arrived")
        time.sleep(_PAUSE)
