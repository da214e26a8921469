"""A simulator that plays nothing until it is asked to, or not any more."""

from exporter.simulator import Simulator
from tests.simulator.support import HandClock, gist, plan, scenario


def test_idle() -> None:
    """Nothing happens by itself; what it was made with can be started."""
    clock = HandClock()
    simulator = Simulator([scenario(plan())], clock=clock, idle=True, loop=True)
    simulator.first_call_wait()
    clock.passed = 10_000
    assert gist(simulator) == (0, [])
    assert simulator.picture().next_start is None
    assert len(simulator.start_scenario("made-up")) == 1
    assert gist(simulator) == (1, [("Freeze", "Scheduled")])


def test_stop() -> None:
    """A stop ends the playlist for good; a scenario can still be started."""
    clock = HandClock()
    simulator = Simulator([scenario(plan())], clock=clock, loop=True, pause=100)
    simulator.first_call_wait()
    assert gist(simulator) == (1, [("Freeze", "Scheduled")])
    simulator.set_document({"DocumentIncarnation": 99, "Events": []})
    simulator.stop()
    clock.passed = 1000
    assert gist(simulator) == (2, [])
    simulator.start_scenario("live-migration")
    assert gist(simulator) == (3, [("Freeze", "Scheduled")])
