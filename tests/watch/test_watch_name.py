"""Tests of `exporter.watch`: what happens once this VM knows its name, if that is not at once."""

import pytest

from exporter.config import Instance
from exporter.imds import InstanceFacts
from exporter.model.lifecycle import Known
from tests.builders import REBOOT_ID, body, raw_event, started
from tests.house import TIMEOUT, House
from tests.lives import Life

STARTED = {"EventStatus": "Started", "NotBefore": ""}


def nameless(known: Known | None = None) -> House:
    """Return a watch whose IMDS does not tell the name."""
    house = House(known)
    house.imds.facts = TIMEOUT
    house.poll()
    return house


def learn(house: House) -> list[tuple[str, str, int]]:
    """Let IMDS tell the name; return event, transition and number of each hook's run that is then due."""
    assert house.memory.jobs == []
    house.imds.facts = InstanceFacts(name="WestNO_0")
    house.poll(after=60)
    assert house.watch.snapshot.instance == "WestNO_0"
    return [(job.event.id, job.transition, job.sequence) for job in house.memory.jobs]


def test_hooks_of_what_was_missed() -> None:
    """Hooks run for what happened last to each event of this VM that is still there."""
    house = nameless()
    a, b, gone, other = (raw_event(EventId=name) for name in ("a", "b", "gone", "other"))
    other["Resources"] = ["WestNO_7"]
    house.poll(body(a, b, gone, other, incarnation=1))
    house.poll(body(a | STARTED, b, other, incarnation=2))
    assert learn(house) == [("a", "started", 2), ("b", "scheduled", 1)]
    assert house.hooks.woken == 1


def test_an_update_hides_nothing() -> None:
    """Hooks for an announcement run although it was updated since; of several updates the last counts."""
    house = nameless()
    for incarnation, seconds in enumerate((5, 6, 7), start=1):
        house.poll(body(raw_event(EventId="a", DurationInSeconds=seconds), incarnation=incarnation))
    assert learn(house) == [("a", "scheduled", 1), ("a", "updated", 3)]


def test_the_end_of_what_was_known_before() -> None:
    """A VM that restarts in the midst of an event recovers from it, even if its name is known only later."""
    life = Life()
    life.feed(started(event_id=REBOOT_ID))
    house = nameless(life.known)
    assert learn(house) == [(REBOOT_ID, "completed", 2)]


def test_last_success_is_noted_now_and_then() -> None:
    """An idle hour writes a few times when IMDS last answered, not at every poll."""
    house = House()
    for _ in range(3600):
        house.poll()
    assert len(house.memory.successes) == 4


@pytest.mark.parametrize("configured", [True, False])
def test_pauses_are_watched_for_from_then_on(configured: bool) -> None:
    """An event that is Started has pauses watched for as soon as it is known to hit this VM."""
    house = nameless()
    house.poll(body(raw_event(**STARTED)))
    assert not house.pauses.active
    if configured:
        house.configure(instance=Instance(name="WestNO_0"))
    else:
        learn(house)
    assert house.pauses.active


def test_pauses_of_another_vm_are_not_watched_for() -> None:
    """A reload that changes the name ends the watch for pauses where the event hits somebody else."""
    house = House()
    house.poll(body(raw_event(**STARTED)))
    assert house.pauses.active
    house.configure(instance=Instance(name="WestNO_7"))
    house.poll()
    assert not house.pauses.active
