"""A simulated group of VMs, each with its own port of IMDS, so that approvals are attributable."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import msgspec

from exporter.serving.addresses import listen
from exporter.serving.http import Handler, Request, Response
from exporter.serving.server import Server
from exporter.simulator import EventPlan, Scenario, Simulator
from exporter.simulator.server import Application
from tests.end_to_end.program import exporter, free_port, get

HALL = ("web_0", "web_1", "web_2")


class Post(msgspec.Struct, frozen=True):
    """One id that a VM let proceed.

    ``at`` is wall-clock time in seconds since 1970.
    """

    vm: str
    event_id: str
    at: float


class Group(Simulator):
    """A simulator with a door for each VM."""

    def __init__(self) -> None:
        super().__init__(vm_name=HALL[0], requests_per_second=0)
        self.posts: list[Post] = []
        self._caller: ContextVar[str] = ContextVar("caller", default="")
        self._noting = threading.Lock()

    def approve(self, event_ids: Sequence[str]) -> None:
        """Take an approval in, and note whose it is and what it does."""
        vm = self._caller.get()
        with self._noting:
            now = self.picture().now.timestamp()
            self.posts += [Post(vm, event_id, now) for event_id in event_ids]
            super().approve(event_ids)

    def door(self, vm: str) -> Handler:
        app = Application(self, self.vm_name)

        async def through(request: Request) -> Response:
            self._caller.set(vm)
            return await app(request)

        return through


class Vm:
    def __init__(self, name: str, endpoint: str, folder: Path) -> None:
        self.name = name
        self.endpoint = endpoint
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(
        self, settings: Mapping[str, Any], environ: Mapping[str, str] | None = None
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Run its exporter with a configuration, until the end of the block; it is killed then."""
        file = self.folder / f"{self.name}.yml"
        file.write_text(json.dumps(settings))
        words = ["--config.file", str(file), "--poll.interval", "200ms", "--instance.name", self.name]
        state = self.folder / self.name
        with exporter(self.endpoint, state, self.port, *words, environ=environ) as process:
            yield process

    def settle(self) -> None:
        """Wait until IMDS has read what an exporter that was killed had sent."""
        for _ in range(3):
            get(f"{self.endpoint}/")

    def event(self, event_id: str) -> Any:
        """Return an event as its API has it; a LookupError becomes an AssertionError, to be waited for."""
        answer = json.loads(get(f"{self.url}/api/v1/events"))
        found = [event for event in (*answer["current"], *answer["past"]) if event_id in event["ids"]]
        assert found, f"{event_id} is not known"
        return found[0]

    def approval(self, event_id: str) -> Any:
        return self.event(event_id)["approval"]


@contextlib.contextmanager
def virtual_machines(group: Group, folder: Path, *names: str) -> Iterator[list[Vm]]:
    """Open a door to IMDS for each VM, until the end of the block."""
    with contextlib.ExitStack() as stack:
        vms = []
        for name in names:
            server = Server(group.door(name), listen("127.0.0.1:0"))
            server.start()
            stack.callback(server.stop, 1.0)
            vms.append(Vm(name, server.url, folder))
            # asyncio drops, unclosed, a connection that it accepts as it is stopped: let none be on its way.
            stack.callback(vms[-1].settle)
        yield vms


def plan(kind: Any = "Freeze", vms: Sequence[str] = HALL, **facts: Any) -> EventPlan:
    """Return an event of 15 minutes' notice that lasts for 10, by the names that the VMs have."""
    values = {"notice": 900, "impact": 600, "duration_in_seconds": 5} | facts
    return EventPlan(type=kind, vms=tuple(vms), **values)


def scenario(*plans: EventPlan) -> Scenario:
    return Scenario(name="story", title="", description="", vms=HALL, events=plans)


def approving(*rules: Mapping[str, Any], **approval: Any) -> dict[str, Any]:
    """Return a configuration with these rules; without any, it approves every event of this VM."""
    given = list(rules) or [{"name": "all", "action": "approve"}]
    return {"approval": {"mode": "on", "rules": given, "max_per_hour": 1000} | approval}
