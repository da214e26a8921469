"""The service around the engine: switched on and off, idle, limited, with a document set by hand."""

from datetime import timedelta

import pytest

from exporter.errors import ConfigurationError
from exporter.simulator import Simulator
from tests.simulator.support import NEWEST, HandClock, gist, make, plan, scenario

SCHEDULED, STARTED = [("Freeze", "Scheduled")], [("Freeze", "Started")]


def poll(simulator: Simulator) -> tuple[int, list[tuple[str, str]]]:
    """Ask as a client does: the first request switches the service on."""
    simulator.first_call_wait()
    return gist(simulator)


def test_the_document_is_empty_for_a_while_after_the_first_request() -> None:
    """Pending events appear in one step; what happened to them before that is not counted."""
    clock = HandClock()
    plans = (plan(notice=20, impact=30), plan(), plan(after=70))
    simulator = Simulator([scenario(*plans)], clock=clock, empty_after_switch_on=60)
    seen = []
    for clock.passed in (5, 64.9, 65, 75, 105):
        seen.append(poll(simulator))
    assert seen == [(0, []), (0, []), (1, SCHEDULED), (2, SCHEDULED * 2), (3, STARTED + SCHEDULED)]
    for clock.passed, empty in ((105, 60), (110, 4)):
        simulator.switch_off(empty)
        seen.append(poll(simulator))
    for clock.passed in (114, 155, 165):
        seen.append(poll(simulator))
    assert seen[5:] == [(0, []), (0, []), (1, STARTED + SCHEDULED), (2, SCHEDULED), (2, SCHEDULED)]


def test_the_scenarios_begin_with_the_first_answer() -> None:
    """A client that starts late sees them whole; a switch-off repeats none, and a stop prevents them."""
    clock = HandClock()
    simulator = Simulator([scenario(), scenario(name="later")], clock=clock, first_call_delay=10)
    clock.passed = 1000
    assert simulator.picture().next_start is None
    assert simulator.first_call_wait() == 10
    for clock.passed, expected in ((1010, SCHEDULED), (1109, SCHEDULED)):
        assert poll(simulator)[1] == expected
    simulator.switch_off()
    simulator.first_call_wait()
    for clock.passed, expected in ((1120, STARTED), (1160, [])):
        assert poll(simulator)[1] == expected
    simulator.switch_off()
    assert poll(simulator) == (0, [])
    clock.passed = 1010 + 600
    assert poll(simulator) == (1, SCHEDULED)
    stopped = Simulator([scenario()], clock=clock)
    stopped.stop()
    assert poll(stopped) == (0, [])


@pytest.mark.parametrize("seconds", [-1, 86_401, float("nan")])
def test_an_impossible_time_is_refused(seconds: float) -> None:
    """Both as an option and in a call."""
    with pytest.raises(ConfigurationError, match="can be empty for 0 to 86400 seconds"):
        Simulator(empty_after_switch_on=seconds)
    with pytest.raises(ConfigurationError, match="can be empty for 0 to 86400 seconds"):
        Simulator().switch_off(seconds)
    Simulator(empty_after_switch_on=86_400)


def test_a_silent_day_switches_the_service_off() -> None:
    """After 24 simulated hours without a request the incarnation starts again; the events continue."""
    clock = HandClock()
    simulator = make(scenario(), scenario(plan(type="Redeploy", notice=1e6), name="long"), clock=clock)
    simulator.first_call_wait()
    clock.passed = 700
    simulator.first_call_wait()
    assert gist(simulator) == (4, [("Redeploy", "Scheduled")])
    clock.passed += 86_399
    simulator.first_call_wait()
    assert gist(simulator)[0] == 4
    clock.passed += 86_400
    simulator.first_call_wait()
    assert gist(simulator) == (1, [("Redeploy", "Scheduled")])


def test_the_first_call_waits_and_so_does_the_first_after_a_switch_off() -> None:
    """The wait starts with the first request, in real seconds regardless of the speed."""
    clock = HandClock()
    simulator = make(scenario(), clock=clock, first_call_delay=120, speed=60)
    assert simulator.picture().next_start == (clock.now() + timedelta(seconds=120), scenario())
    assert simulator.first_call_wait() == 120
    clock.passed = 100
    assert simulator.first_call_wait() == 20
    clock.passed = 120
    assert simulator.first_call_wait() == 0
    simulator.document(NEWEST)
    clock.passed += 86_400 / 60
    assert simulator.first_call_wait() == 120


def test_five_requests_a_second() -> None:
    """The sixth within a second is refused, and a refused one does not count; 0 lifts the limit."""
    clock = HandClock()
    simulator = make(clock=clock)
    assert simulator.admit()
    clock.passed = 0.5
    assert [simulator.admit() for _ in range(6)] == [True] * 4 + [False] * 2
    clock.passed = 0.8
    assert not simulator.admit()
    clock.passed = 1.0
    assert simulator.admit()
    unlimited = make(clock=clock, requests_per_second=0)
    assert all(unlimited.admit() for _ in range(100))


def test_a_document_can_be_set_by_hand() -> None:
    """Bytes are served verbatim, a mapping as JSON, and None resumes the scenarios."""
    simulator = make(scenario(), clock=HandClock())
    simulator.set_document(b"<html>")
    assert simulator.document(NEWEST) == b"<html>"
    simulator.set_document({"DocumentIncarnation": 7, "Events": []})
    assert gist(simulator) == (7, [])
    simulator.set_document(None)
    assert gist(simulator) == (1, [("Freeze", "Scheduled")])


@pytest.mark.parametrize("options", [{"speed": 0}, {"pause": 0}, {"vm_name": ""}])
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    """Speed and pause are positive, and the VM has a name."""
    Simulator(speed=0.5, pause=0.5)
    with pytest.raises(ConfigurationError):
        Simulator(**options)  # type: ignore[arg-type]  # each is of its option's type
