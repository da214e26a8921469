"""Memory, processor time and writes of the idle exporter. Needs Linux' /proc."""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.running import cpu_seconds, polls, resident_mib, running, written_bytes
from tests.end_to_end.program import eventually

POLLS = 100
FAST = ("--poll.interval", "200ms")


def idle(*flags: str, title: str = "idle", memory_aim: float = 38) -> Iterator[Figure]:
    """Poll an idle IMDS a hundred times, five times a second to be done soon."""
    if sys.platform != "linux":
        print("idle: left out, it needs Linux' /proc")
        return
    with running(*FAST, *flags) as exporter:
        eventually(lambda: polls(exporter.url) >= 5)
        begun, cpu, written = polls(exporter.url), cpu_seconds(exporter.pid), written_bytes(exporter.pid)
        files = _files(exporter.state)
        eventually(lambda: polls(exporter.url) >= begun + POLLS, within=120, every=2.0)
        done = polls(exporter.url) - begun
        yield Figure(f"{title}: resident memory", resident_mib(exporter.pid), "MiB", memory_aim)
        yield Figure(f"{title}: CPU per poll", (cpu_seconds(exporter.pid) - cpu) / done * 1000, "ms", 1.5)
        yield Figure(f"{title}: written to disk", written_bytes(exporter.pid) - written, "bytes", 0)
        yield Figure(f"{title}: files changed", len(_files(exporter.state) - files), "files", 0)


def _files(folder: Path) -> set[tuple[str, int, int]]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in found}
