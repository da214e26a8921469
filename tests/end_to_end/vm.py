"""The exporter of a VM as a process, against a simulator whose document the test writes."""

import contextlib
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.simulator import Simulator, SimulatorServer
from tests.builders import body, raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get, metric
from tests.outputs.hooks.support import MARK, kill, marked

NAME = "demo_0"
EVENT = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"


def event(event_id: str = EVENT, status: str = "Scheduled", **fields: object) -> dict[str, Any]:
    usual = {"EventId": event_id, "EventType": "Reboot", "EventStatus": status, "Resources": [NAME]}
    return raw_event(**(usual | fields))


def hook(name: str, code: str, *transitions: str, **more: object) -> dict[str, Any]:
    """Return a hook's configuration; ``code`` is for the shell, and finds the hook's name as ``$1``."""
    match = {"transitions": transitions} if transitions else {}
    return {"name": name, "match": match, "command": ["/bin/sh", "-c", code, "sh", name], **more}


class Vm:
    """A folder, a VM of a simulator, and an exporter that is started and ended as often as a test wants.

    All that hooks start has a mark in its environment, by which it is found and, at the end, killed. Hooks
    find the folder as ``$HERE``.
    """

    def __init__(self, folder: Path, imds: SimulatorServer, mark: str = "", name: str = NAME) -> None:
        self.folder = folder
        self.imds = imds
        self.mark = mark
        self.name = name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir(exist_ok=True)
        self.log_file = folder / "log"
        self.log_file.touch()
        self._incarnation = 0

    def configure(self, *hooks: Mapping[str, Any], **more: object) -> None:
        (self.folder / "exporter.yml").write_text(json.dumps({"hooks": hooks, **more}))

    @contextlib.contextmanager
    def running(
        self, *flags: str, prefix: Sequence[str] = (), **environ: str
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the exporter until the end of the block, where it is killed if it still runs."""
        flags = ("--poll.interval", "200ms", "--log.format", "json", *flags)
        flags = ("--config.file", str(self.folder / "exporter.yml"), *flags)
        environ = {MARK: self.mark, "HERE": str(self.folder)} | environ
        imds, state = self.imds.urls[self.name], self.folder / "state"
        log = self.log_file
        with exporter(imds, state, self.port, *flags, environ=environ, log=log, prefix=prefix) as process:
            eventually(lambda: get(f"{self.url}/-/ready"))
            yield process

    def say(self, *events: Mapping[str, Any]) -> int:
        """Set the events that IMDS lists, and return the incarnation."""
        self._incarnation += 1
        self.imds.simulator.set_document(body(*events, incarnation=self._incarnation))
        return self._incarnation

    def tell(self, *events: Mapping[str, Any]) -> None:
        """Set the events that IMDS lists, and wait until the exporter has seen them."""
        incarnation = self.say(*events)
        eventually(lambda: metric(self.url, "document_incarnation") == incarnation)

    def notes(self) -> list[str]:
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def log(self, message: str) -> list[dict[str, Any]]:
        *whole, _ = self.log_file.read_text().split("\n")
        return [facts for facts in map(json.loads, whole) if facts["msg"] == message]

    def count(self, name: str, outcome: str) -> float:
        return metric(self.url, "hooks_total", hook=name, outcome=outcome)

    def left(self) -> list[int]:
        """Return the pids of what hooks started and what still runs, without the exporter itself."""
        return [pid for pid in marked(self.mark) if _is_of_a_hook(pid)]


def _is_of_a_hook(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"exporter" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


@contextlib.contextmanager
def one_vm(folder: Path) -> Iterator[Vm]:
    mark = f"{os.getpid()}-{uuid.uuid4().hex}"
    try:
        with SimulatorServer(Simulator(vm_name=NAME, requests_per_second=0)) as imds:
            yield Vm(folder, imds, mark)
    finally:
        kill(marked(mark))


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop the exporter as a service manager does; it must exit with status 0 within 10 s."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
