import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import requests

from exporter.simulator import EventPlan, Scenario, Simulator, SimulatorServer

NEWEST = "2024-07-09"
BEGAN = datetime(2026, 3, 4, 22, 0, 0, 400_000, tzinfo=UTC)


class HandClock:
    boot = "boot"
    speed = 1.0

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds


def plan(**fields: Any) -> EventPlan:
    """Make an event's plan: a Freeze of vm_0, Scheduled for 100 s, Started for 50 s."""
    values: dict[str, Any] = {"type": "Freeze", "vms": ("vm_0",), "notice": 100, "impact": 50}
    return EventPlan(**(values | fields))


def scenario(*plans: EventPlan, name: str = "made-up") -> Scenario:
    """Make a scenario of four VMs, vm_0 to vm_3; without plans, of `plan`'s one event."""
    group = ("vm_0", "vm_1", "vm_2", "vm_3")
    return Scenario(name=name, title=name, description="", vms=group, events=plans or (plan(),))


def make(*scenarios: Scenario, clock: HandClock, **options: Any) -> Simulator:
    """Make a simulator of vm_0 under a clock moved by hand, whose scenarios a first request has begun."""
    options.setdefault("vm_name", "vm_0")
    simulator = Simulator(scenarios, clock=clock, **options)
    simulator.first_call_wait()
    return simulator


def document(simulator: Simulator) -> Any:
    return json.loads(simulator.document(NEWEST))


def gist(simulator: Simulator) -> tuple[int, list[tuple[str, str]]]:
    found = document(simulator)
    events = [(event["EventType"], event["EventStatus"]) for event in found["Events"]]
    return found["DocumentIncarnation"], events


class Client:
    def __init__(self, url: str) -> None:
        self.url = url
        self._session = requests.Session()
        self._session.trust_env = False

    def ask(
        self, path: str = "/metadata/scheduledevents", method: str = "GET", **options: Any
    ) -> requests.Response:
        options.setdefault("headers", {"Metadata": "true"})
        options.setdefault("params", {"api-version": NEWEST})
        return self._session.request(method, self.url + path, timeout=10, **options)

    def close(self) -> None:
        self._session.close()


@contextmanager
def served_each(simulator: Simulator) -> Iterator[dict[str, Client]]:
    """Serve a simulator on loopback until the block ends, and return a client of each VM by its name."""
    with SimulatorServer(simulator) as server, ExitStack() as stack:
        yield {vm: stack.enter_context(closing(Client(url))) for vm, url in server.urls.items()}


@contextmanager
def served(simulator: Simulator) -> Iterator[Client]:
    with served_each(simulator) as clients:
        (client,) = clients.values()
        yield client
