"""Tests of a simulator that plays many VMs: each with its own port, name and limit, all in one group."""

import json
import urllib.error
import urllib.request

import msgspec
import pytest

from exporter.errors import ConfigurationError
from exporter.simulator import Simulator, SimulatorServer
from tests.clocks import HandClock
from tests.simulator.support import plan, scenario

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"


def ask(url: str) -> str:
    """Ask as a client of IMDS does."""
    request = urllib.request.Request(url, headers={"Metadata": "true"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return str(answer.read().decode())


def test_each_vm_has_its_name_and_all_see_the_same_events() -> None:
    """The ports differ in who they are, and not in what they list."""
    simulator = Simulator([scenario(plan())], vm_name="vm_0", instances=3, clock=HandClock())
    with SimulatorServer(simulator) as server:
        assert {vm: ask(url + NAME) for vm, url in server.urls.items()} == {
            f"vm_{n}": f"vm_{n}" for n in range(3)
        }
        documents = {ask(url + EVENTS) for url in server.urls.values()}
        assert len(documents) == 1
        assert server.url == server.urls["vm_0"]


def test_each_vm_has_its_own_limit() -> None:
    """What one VM asks too much takes nothing from another."""
    simulator = Simulator(vm_name="vm_0", instances=2, clock=HandClock(), requests_per_second=1)
    with SimulatorServer(simulator) as server:
        first, second = server.urls.values()
        ask(first + EVENTS)
        with pytest.raises(urllib.error.HTTPError, match="429"):
            ask(first + EVENTS)
        assert json.loads(ask(second + EVENTS))["Events"] == []


def test_scenarios_affect_one_vm_after_the_other() -> None:
    """Each takes the next VMs of the group, and begins again with the first; a larger one takes the first."""
    simulator = Simulator(vm_name="vm_0", instances=3, clock=HandClock())
    pair = ("vm_0", "vm_1")
    two = msgspec.structs.replace(scenario(plan(vms=pair)), vms=pair)
    for _ in range(3):
        simulator.start_scenario(two)
    found = [event.resources for event in simulator.picture().events]
    assert found == [("vm_0", "vm_1"), ("vm_2", "vm_0"), ("vm_1", "vm_2")]


def test_ports_that_do_not_exist_are_refused() -> None:
    """The last port is 65535."""
    with pytest.raises(ConfigurationError):
        SimulatorServer(Simulator(instances=2), "127.0.0.1:65535")
