"""Tests of `exporter.watch`: what happens once this VM knows its name, if that is not at once."""

import pytest

from exporter.config import Instance
from exporter.model.lifecycle import Known
from exporter.model.vm import VirtualMachine
from tests.builders import REBOOT_ID, body, raw_event, started
from tests.lives import Life
from tests.watch_fixture import TIMEOUT, WatchFixture

STARTED = {"EventStatus": "Started", "NotBefore": ""}


def nameless(known: Known | None = None) -> WatchFixture:
    """Return a watch whose IMDS does not tell the name."""
    fixture = WatchFixture(known)
    fixture.imds.facts = TIMEOUT
    fixture.poll()
    return fixture


def learn(fixture: WatchFixture) -> list[tuple[str, str, int]]:
    """Make the name known; return event, transition and number of each hook's run that is then due."""
    assert fixture.memory.jobs == []
    fixture.imds.facts = VirtualMachine(name="WestNO_0")
    fixture.poll(after=60)
    assert fixture.watch.snapshot.instance == "WestNO_0"
    return [(job.event.id, job.transition, job.sequence) for job in fixture.memory.jobs]


def test_hooks_of_what_was_missed() -> None:
    """Hooks run for what happened last to each event of this VM that is still there."""
    fixture = nameless()
    a, b, gone, other = (raw_event(EventId=name) for name in ("a", "b", "gone", "other"))
    other["Resources"] = ["WestNO_7"]
    fixture.poll(body(a, b, gone, other, incarnation=1))
    fixture.poll(body(a | STARTED, b, other, incarnation=2))
    assert learn(fixture) == [("a", "started", 2), ("b", "scheduled", 1)]
    assert fixture.hooks.woken == 1


def test_an_update_hides_nothing() -> None:
    """Hooks for an announcement run although it was updated since; of several updates the last counts."""
    fixture = nameless()
    for incarnation, seconds in enumerate((5, 6, 7), start=1):
        fixture.poll(body(raw_event(EventId="a", DurationInSeconds=seconds), incarnation=incarnation))
    assert learn(fixture) == [("a", "scheduled", 1), ("a", "updated", 3)]


def test_the_end_of_what_was_known_before() -> None:
    """A VM that restarts in the midst of an event recovers from it, even if its name is known only later."""
    life = Life()
    life.feed(started(event_id=REBOOT_ID))
    fixture = nameless(life.known)
    assert learn(fixture) == [(REBOOT_ID, "completed", 2)]


def test_last_success_is_noted_now_and_then() -> None:
    """An idle hour writes a few times when IMDS last answered, not at every poll."""
    fixture = WatchFixture()
    for _ in range(3600):
        fixture.poll()
    assert len(fixture.memory.successes) == 4


@pytest.mark.parametrize("configured", [True, False])
def test_pauses_are_watched_for_from_then_on(configured: bool) -> None:
    """An event that is Started has pauses watched for as soon as it is known to hit this VM."""
    fixture = nameless()
    fixture.poll(body(raw_event(**STARTED)))
    assert not fixture.pauses.active
    if configured:
        fixture.configure(instance=Instance(name="WestNO_0"))
    else:
        learn(fixture)
    assert fixture.pauses.active


def test_pauses_of_another_vm_are_not_watched_for() -> None:
    """A reload that changes the name ends the watch for pauses where the event hits somebody else."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(**STARTED)))
    assert fixture.pauses.active
    fixture.configure(instance=Instance(name="WestNO_7"))
    fixture.poll()
    assert not fixture.pauses.active
