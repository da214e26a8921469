from collections.abc import Iterator

import pytest

from exporter.simulator import Simulator
from tests.simulator.support import Client, HandClock, plan, scenario, served


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def simulator(clock: HandClock) -> Simulator:
    """Make a simulator with one event of every type, and without a limit on requests."""
    kinds = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "SpotRebalanceRecommendation")
    playlist = [scenario(*(plan(type=kind) for kind in kinds))]
    return Simulator(playlist, vm_name="vm_0", clock=clock, requests_per_second=0)


@pytest.fixture
def client(simulator: Simulator) -> Iterator[Client]:
    with served(simulator) as found:
        yield found
