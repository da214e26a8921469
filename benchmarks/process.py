"""CPU per poll, memory and writes of the idle exporter, beside the floor. Needs Linux' /proc."""

import contextlib
import sys
import time
from collections.abc import Iterator

from benchmarks.figure import Figure, paired
from benchmarks.running import CONTESTANTS, cpu_seconds, resident_mib, running, written_bytes

WINDOWS = 5
SECONDS = 15.0
_WARM_SECONDS = 5.0


def idle(*flags: str, title: str = "idle", memory_aim: float = 1.8) -> Iterator[Figure]:
    """Poll an idle IMDS once a second, all contestants at the same time."""
    if sys.platform != "linux":
        print("idle: left out, it needs Linux' /proc")
        return
    with contextlib.ExitStack() as stack:
        pids = {name: stack.enter_context(running(*flags, **how)).pid for name, how in CONTESTANTS.items()}
        time.sleep(_WARM_SECONDS)
        written = written_bytes(pids["exporter"])
        cpu: dict[str, list[float]] = {name: [] for name in pids}
        for _ in range(WINDOWS):
            before = {name: cpu_seconds(pid) for name, pid in pids.items()}
            time.sleep(SECONDS)
            for name, pid in pids.items():
                cpu[name].append((cpu_seconds(pid) - before[name]) * 1000 / SECONDS)
        yield from paired(f"{title}: CPU per poll, once a second", cpu, "ms", 1.2)
        memory = {name: [resident_mib(pid)] for name, pid in pids.items()}
        yield from paired(f"{title}: resident memory", memory, "MiB", memory_aim)
        yield Figure(f"{title}: written to disk", written_bytes(pids["exporter"]) - written, "bytes", 0)
