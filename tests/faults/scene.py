"""The soak's stage: the exporter amid all that it talks to, and what can be done to them."""

import json
import os
import signal
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tests.end_to_end.program import free_port
from tests.faults.azure import Azure
from tests.faults.plan import SPOILT
from tests.faults.process import Api, Process, Spell
from tests.faults.reports import Reports
from tests.faults.rules import APPROVAL, RULES, hooks
from tests.faults.truth import VM
from tests.notifications.receivers import Receiver

TARGETS = ("notify-1", "notify-2")
# Within so many seconds an answer is taken in, and what follows from it written down.
HASTE = 0.5


class Offset(msgspec.Struct, frozen=True):
    """By how many seconds the exporter's wall clock is wrong, from a moment of the monotonic clock on."""

    since: float
    seconds: float


class Reloading(msgspec.Struct):
    """A reload that was asked for, and is not known to have been done, with what was said before it."""

    since: float
    rules: str
    before: float = 0.0
    problem: str = ""
    bad: bool = False


class Scene:
    """Everything around the exporter, and the journal of what was done to it."""

    def __init__(  # they are made in one place
        self, folder: Path, azure: Azure, chats: tuple[Receiver, Receiver], traces: Receiver, hooks: Reports
    ) -> None:
        self.folder = folder
        self.azure = azure
        self.chats = chats
        self.traces = traces
        self.hooks = hooks
        self.counts: Counter[str] = Counter()
        self.journal: list[str] = []
        self.processes: list[Process] = []
        self.offsets = [Offset(time.monotonic(), 0.0)]
        # When the disk is out of order, and after that not known to have caught up.
        self.disk: list[Spell] = []
        self.disk_limited = False
        # Which rules may be in force when.
        self.rules: list[tuple[str, Spell]] = []
        self.reloading: Reloading | None = None
        self._file = folder / "exporter.yml"
        self._clock = folder / "clock"
        self._clock.write_text("0".ljust(32))
        self._port = free_port()
        self.api = Api(self._port)
        self._force = "all"

    @property
    def process(self) -> Process:
        """The present life, or the last one."""
        return self.processes[-1]

    @property
    def alive(self) -> bool:
        """Return whether the exporter runs."""
        return bool(self.processes) and self.process.ended is None

    @property
    def disk_in_doubt(self) -> bool:
        """Return whether the disk is out of order, or not known to have caught up since."""
        return bool(self.disk) and self.disk[-1].until == float("inf")

    def note(self, line: str) -> None:
        """Write a line to the journal, which is for debugging."""
        self.journal.append(f"{datetime.now(UTC):%H:%M:%S.%f} {line}")

    def start(self) -> None:
        """Begin a life."""
        if self.alive:
            return
        now = time.monotonic()
        self._configure(self._force)
        for _, spell in self.rules:
            spell.until = min(spell.until, now)
        self.rules.append((self._force, Spell(now)))
        arguments = ["--config.file", str(self._file)]
        arguments += ["--imds.endpoint", self.azure.url, "--instance.name", VM]
        arguments += ["--web.listen-address", f"127.0.0.1:{self._port}"]
        for chat in self.chats:
            arguments += ["--notify", f"json://{chat.authority}/"]
        environ = {
            "SOAK_CLOCK": str(self._clock),
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.traces.authority}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        }
        self.note(f"life {len(self.processes) + 1} begins")
        self.processes.append(Process(len(self.processes) + 1, arguments, environ))
        if self.disk_limited:
            self.process.limit_files(4096)

    def end(self, how: str) -> None:
        """End the present life."""
        if self.alive:
            self.reloading = None
            self.process.end(how)
            self.note(f"life {self.process.number} ended: {how}, {self.process.status}")
            if self.disk_in_doubt and not self.disk_limited:
                self.disk[-1].until = time.monotonic()

    def set_clock(self, seconds: float) -> None:
        """Set the exporter's wall clock."""
        self.offsets.append(Offset(time.monotonic(), seconds))
        descriptor = os.open(self._clock, os.O_WRONLY)
        os.pwrite(descriptor, f"{seconds:.3f}".ljust(32).encode(), 0)
        os.close(descriptor)

    def fill_disk(self, size: int) -> None:
        """Limit the size of the exporter's files."""
        if not self.disk_in_doubt:
            # What it is about to write now will fail already.
            since = self.process.stops[-1].since if self.process.stopped else time.monotonic()
            self.disk.append(Spell(since - HASTE))
        self.disk_limited = True
        self.process.limit_files(size)

    def free_disk(self) -> None:
        """Remove the limit; `look_at_disk` checks that everything is written then."""
        self.disk_limited = False
        if self.alive:
            self.process.limit_files(-1)
        elif self.disk:
            self.disk[-1].until = min(self.disk[-1].until, time.monotonic())

    def look_at_disk(self) -> bool:
        """Return whether all is written, as the exporter has it."""
        if not self.disk_in_doubt:
            return True
        asked = time.monotonic()
        if self.disk_limited or self.api.samples()['degraded{reason="state_unwritable"}'] != 0:
            return False
        self.disk[-1].until = asked
        return True

    def reload(self, rules: str) -> None:
        """Reload the configuration with other rules."""
        before = self.api.samples()["config_last_reload_success_timestamp_seconds"]
        self._configure(rules)
        self._ask_for(Reloading(time.monotonic(), rules, before))

    def reload_badly(self, number: int) -> None:
        """Reload an invalid configuration, which must change nothing."""
        problem = self.reload_problem()
        self._file.write_text(SPOILT[number])
        self._ask_for(Reloading(time.monotonic(), self._force, problem=problem, bad=True))

    def reload_problem(self) -> str:
        """Return the exporter's error of the last reload, if that failed."""
        problems: Any = self.api.status()["problems"]
        return next((line for line in problems if line.startswith("reload_failed")), "")

    def look_at_reload(self) -> bool:
        """Return whether a reload that was asked for is done; the old file is put back after a bad one."""
        asked = self.reloading
        if asked is None:
            return True
        if asked.bad:
            problem = self.reload_problem()
            if not problem or (problem == asked.problem and time.monotonic() < asked.since + 2):
                return False
            self._configure(self._force)
        else:
            if self.api.samples()["config_last_reload_success_timestamp_seconds"] == asked.before:
                return False
            self.rules[-2][1].until = time.monotonic() + 0.5
            self._force = asked.rules
        self.reloading = None
        return True

    def offsets_between(self, since: float, until: float) -> list[float]:
        """Return all that the exporter's clock was wrong by in a stretch of time."""
        found = []
        for number, offset in enumerate(self.offsets):
            end = self.offsets[number + 1].since if number + 1 < len(self.offsets) else float("inf")
            if offset.since <= until + 0.2 and since <= end + 0.2:
                found.append(offset.seconds)
        return found

    def in_doubt(self, since: float, until: float) -> bool:
        """Return whether the disk was in doubt in a stretch of time."""
        return any(spell.touches(since, until) for spell in self.disk)

    def close(self) -> None:
        """End all that runs; the folder has the logs and the journal then."""
        self.azure.misbehave("")
        for receiver in (*self.chats, self.traces):
            receiver.mood = 200
            receiver.released.set()
        self.end("kill")
        self.note("the end")
        self.folder.joinpath("journal").write_text("\n".join(self.journal))
        for process in self.processes:
            log = "".join(f"{line}\n" for line in process.lines)
            self.folder.joinpath(f"life-{process.number}.log").write_text(log)

    def _ask_for(self, reloading: Reloading) -> None:
        self.reloading = reloading
        if not reloading.bad:
            self.rules.append((reloading.rules, Spell(reloading.since)))
        self.process.signal(signal.SIGHUP)

    def _configure(self, rules: str) -> None:
        settings = {
            "state": {"directory": str(self.folder / "state")},
            "imds": {"poll_interval": "200ms", "timeout": "2s"},
            "approval": APPROVAL | {"rules": RULES[rules]},
            "hooks": hooks(self.hooks.port),
        }
        self._file.write_text(json.dumps(settings))
