"""The exporter as a process: started, stopped, killed, with a full disk, with an unread log."""

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from tests.end_to_end.program import get

ROOT = Path(__file__).parents[2]
# The exporter ends within 10 s where the machine is not busy.
MOST_STOP_SECONDS = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


class Measure(msgspec.Struct, frozen=True):
    """A process's resources: resident memory in MiB, threads, open files, CPU seconds so far."""

    memory: float
    threads: int
    files: int
    cpu: float


class Spell(msgspec.Struct):
    """A stretch of time on the monotonic clock; ``until`` is infinite while it lasts."""

    since: float
    until: float = float("inf")

    def touches(self, since: float, until: float) -> bool:
        """Return whether it has a moment in common with another stretch."""
        return self.since <= until and since <= self.until


class Process:
    """One life of the exporter, numbered; ``ended`` is when and how it was ended: "kill" or "term"."""

    def __init__(self, number: int, arguments: list[str], environ: dict[str, str]) -> None:
        self.number = number
        self.begun = time.monotonic()
        self.ended: tuple[float, str] | None = None
        self.told_to_end = float("inf")
        self.status: int | None = None
        self.lines: list[str] = []
        self.stops: list[Spell] = []
        self.measures: list[Measure] = []
        self._deaf = threading.Event()
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "tests.faults.launch", "run", *arguments]
        self._popen = subprocess.Popen(
            command, stderr=writing, cwd=ROOT, env=os.environ | environ | {"SOAK_LIFE": str(number)}
        )
        os.close(writing)
        self._reader = threading.Thread(target=self._read, args=(reading,))
        self._reader.start()

    @property
    def stopped(self) -> bool:
        """Return whether it is stopped by a signal."""
        return bool(self.stops) and self.stops[-1].until == float("inf")

    @property
    def deaf(self) -> bool:
        """Return whether its log is unread."""
        return self._deaf.is_set()

    def stop(self) -> None:
        """Suspend it."""
        self.stops.append(Spell(time.monotonic()))
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume it."""
        if self.stopped:
            self.signal(signal.SIGCONT)
            self.stops[-1].until = time.monotonic() + 0.2

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, also where it has just ended by itself."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(number)

    def limit_files(self, size: int) -> None:
        """Make writes beyond that many bytes of a file fail; -1 removes the limit."""
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(self._popen.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self._popen.pid, resource.RLIMIT_FSIZE, (size if size >= 0 else hard, hard))

    def close_log(self) -> None:
        """Stop reading its log."""
        self._deaf.set()
        self._reader.join()

    def end(self, how: str) -> None:
        """End it; a stop by SIGTERM may take 10 s."""
        if self.ended is not None:
            return
        self.told_to_end = time.monotonic()
        self.signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        self.go_on()
        try:
            self.status = self._popen.wait(MOST_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self.ended = time.monotonic(), how
        self.close_log()

    def died(self) -> int | None:
        """Return its exit status if it ended by itself."""
        return self._popen.poll() if self.ended is None else None

    def measure(self) -> Measure:
        """Ask the kernel."""
        folder = Path(f"/proc/{self._popen.pid}")
        numbers = folder.joinpath("stat").read_text().rpartition(")")[2].split()
        return Measure(
            memory=int(numbers[21]) * _PAGE_MIB,
            threads=int(numbers[17]),
            files=len(list(folder.joinpath("fd").iterdir())),
            cpu=(int(numbers[11]) + int(numbers[12])) / _TICKS,
        )

    def _read(self, reading: int) -> None:
        rest = b""
        while not self._deaf.is_set():
            if not select.select([reading], [], [], 0.05)[0]:
                continue
            data = os.read(reading, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            self.lines += [line.decode(errors="replace") for line in lines]
        os.close(reading)


class Api:
    """The exporter's own report of its state."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def events(self) -> dict[str, list[dict[str, Any]]]:
        """Return all events, current and past."""
        found: dict[str, list[dict[str, Any]]] = json.loads(get(f"{self.url}/api/v1/events"))
        return found

    def status(self) -> dict[str, object]:
        """Return the state of the watch and the active problems."""
        found: dict[str, object] = json.loads(get(f"{self.url}/api/v1/status"))
        return found

    def samples(self) -> dict[str, float]:
        """Return all samples of /metrics, by name and labels as written, without the prefix."""
        lines = [line for line in get(f"{self.url}/metrics").split("\n") if line and line[0] != "#"]
        pairs = (line.rpartition(" ") for line in lines)
        return {name.removeprefix("azure_scheduled_events_"): float(value) for name, _, value in pairs}
