"""An hour's worth of polls, at speed: what memory and CPU do in the long run. Needs Linux' /proc."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figure import Figure
from benchmarks.running import (
    Running,
    cpu_seconds,
    open_files,
    polls,
    resident_mib,
    running,
    threads,
    written_bytes,
)
from tests.builders import raw_event
from tests.end_to_end.program import eventually
from tests.receivers import http_receiver

POLLS = 3600
LIVES = 60
_WARM = 300
_AT_SPEED = ("--poll.interval", "5ms")


def hour() -> Iterator[Figure]:
    """Poll for an hour's worth with nothing configured and nothing happening, then with everything."""
    if sys.platform != "linux":
        print("hour: left out, it needs Linux' /proc")
        return
    with running(*_AT_SPEED, module="benchmarks.at_speed") as exporter:
        yield from _measured(exporter, "an idle hour", lives=0, memory_aim=38)
    with http_receiver() as chat, http_receiver() as traces, TemporaryDirectory() as folder:
        file = Path(folder) / "exporter.yml"
        file.write_text(json.dumps(_everything(chat.authority)))
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{traces.authority}"}
        flags = (*_AT_SPEED, "--config.file", str(file))
        with running(*flags, environ=environ, module="benchmarks.at_speed") as exporter:
            yield from _measured(
                exporter, f"an hour with everything on, {LIVES} events", lives=LIVES, memory_aim=58
            )


def _everything(authority: str) -> Mapping[str, object]:
    return {
        "metrics": {"events": "all", "resources": True},
        "notifications": {"targets": [{"name": "chat", "url": f"json://{authority}/"}]},
        "approval": {"mode": "on", "rules": [{"name": "all", "action": "approve"}]},
        "hooks": [{"name": "true", "command": ["true"]}],
    }


def _measured(exporter: Running, title: str, *, lives: int, memory_aim: float) -> Iterator[Figure]:
    _play(exporter, 0, lives // 10)
    eventually(lambda: polls(exporter.url) >= _WARM, within=120)
    memory, files, running_threads = (
        resident_mib(exporter.pid),
        open_files(exporter.pid),
        threads(exporter.pid),
    )
    begun, cpu, written = polls(exporter.url), cpu_seconds(exporter.pid), written_bytes(exporter.pid)
    # What is remembered of an event for 90 days, with its messages, hooks and approval, takes some 8 KiB.
    allowed = 1 + lives * 0.02
    _play(exporter, lives // 10, lives)
    eventually(lambda: polls(exporter.url) >= begun + POLLS, within=300, every=1.0)
    per_poll = (cpu_seconds(exporter.pid) - cpu) / (polls(exporter.url) - begun) * 1000
    yield Figure(f"{title}: memory at the end", resident_mib(exporter.pid), "MiB", memory_aim)
    yield Figure(f"{title}: memory grown by", resident_mib(exporter.pid) - memory, "MiB", allowed)
    yield Figure(f"{title}: CPU per poll", per_poll, "ms", 1.5)
    if not lives:
        yield Figure(f"{title}: written to disk", written_bytes(exporter.pid) - written, "bytes", 0)
    yield Figure(f"{title}: more open files", open_files(exporter.pid) - files, "files", 2)
    yield Figure(f"{title}: more threads", threads(exporter.pid) - running_threads, "threads", 0)


def _play(exporter: Running, first: int, last: int) -> None:
    """Schedule, start and complete events, one after another."""
    for number in range(first, last):
        event_id = f"{number + 1:032x}"
        for step, events in enumerate(
            ([raw_event(EventId=event_id)], [raw_event(EventId=event_id, EventStatus="Started")], [])
        ):
            exporter.simulator.set_document({"DocumentIncarnation": 3 * number + step + 1, "Events": events})
            _pass_polls(exporter)


def _pass_polls(exporter: Running) -> None:
    """Wait until what was set before has been seen for sure."""
    seen = polls(exporter.url) + 3
    eventually(lambda: polls(exporter.url) >= seen, every=0.01)
