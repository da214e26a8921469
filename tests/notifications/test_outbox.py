"""Tests of `exporter.state.outbox`: what is written down, with what, for how long."""

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from exporter.health import Trouble
from exporter.lifecycle import HISTORY, Change, Known, Step, TrackedEvent, Transition
from exporter.state import Store
from exporter.state.schema import MIGRATIONS
from tests.builders import NOT_BEFORE
from tests.notifications.messages import message
from tests.notifications.office import REFUSED, Office
from tests.state_support import House, no_room_for_files, nth_step, replay


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """Set up a target that takes everything."""
    found = Office(tmp_path)
    yield found
    found.store.close()


def rows(office: Office) -> list[tuple[Any, ...]]:
    """Read the whole table: key, when it was done with, message."""
    return office.store._database.read("SELECT key, done, message FROM outbox ORDER BY position")


def test_messages_and_transitions_are_written_together(office: Office) -> None:
    """Where the transitions cannot be written, nobody is told of them."""
    changed = (cast(TrackedEvent, object()),)
    step = Step(Known(1, office.clock.now()), (), (), changed, (), new_incarnation=True)
    with pytest.raises(AttributeError):
        office.store.record(step, [message()])
    assert rows(office) == []
    assert office.store.outbox.counts() == {}


def test_messages_come_back_as_they_were(office: Office) -> None:
    """A restart changes nothing about a message, not even the types of what changed."""
    changes = (
        Change("not_before", NOT_BEFORE, None),
        Change("duration_seconds", None, 9),
        Change("resources", ("vm_0",), ("vm_0", "vm_1")),
        Change("description", "2026-03-04T22:00:00Z", ""),
    )
    written = message(Transition.UPDATED, changes=changes)
    step = Step(Known(1, office.clock.now()), (), (), (), (), new_incarnation=True)
    office.store.record(step, [written])
    office.restart()
    (waiting,) = office.store.outbox.waiting("oncall", 10)
    assert waiting.message == written


def test_what_is_done_with_is_remembered_without_its_content(office: Office) -> None:
    """What was delivered or given up stays as a mark that it must not go out again."""
    office.post("a")
    office.work()
    ((key, done, text),) = rows(office)
    assert (key, done, text) == ("a", office.clock.now().timestamp(), "")


def test_marks_are_kept_as_long_as_the_history(office: Office) -> None:
    """After 90 days the next message that is written clears them away; what still waits stays."""
    office.post("a")
    office.work()
    office.sender.answer = lambda _: REFUSED
    office.post("b")
    office.clock.pass_seconds(HISTORY.total_seconds())
    office.post("c")
    assert [key for key, _, _ in rows(office)] == ["a", "b", "c"]
    office.clock.pass_seconds(1)
    office.post("d")
    assert [key for key, _, _ in rows(office)] == ["b", "c", "d"]


def test_order_is_that_of_writing(office: Office) -> None:
    """A clock that is set back does not put a later message first."""
    office.sender.answer = lambda _: REFUSED
    office.post("a")
    office.clock.set_wall(office.clock.now() - timedelta(hours=1))
    office.post("b")
    office.restart()
    assert [waiting.key for waiting in office.store.outbox.waiting("oncall", 10)] == ["a", "b"]


def test_counts_survive_a_restart(office: Office) -> None:
    """What waits is counted by target; a target for which nothing waits is left out."""
    office.post("a", "b")
    office.post("c", target="chat")
    office.restart()
    assert office.store.outbox.counts() == {"oncall": 2, "chat": 1}
    office.work()
    assert office.store.outbox.counts() == {"chat": 1}


def test_a_full_disk_loses_and_repeats_nothing(office: Office) -> None:
    """Messages go out from memory, and what went out is on the disk once it has room again."""
    office.store.outbox.counts()
    with no_room_for_files():
        office.post("a", "b")
        office.worker.step()
        assert [p.trouble for p in office.health.problems()] == [Trouble.STATE_UNWRITABLE]
    office.clock.pass_seconds(10)
    office.store.retry()
    assert office.health.problems() == ()
    office.restart()
    office.work()
    assert office.sender.bodies == ["a/1", "b/1"]


def test_a_message_is_counted_once_when_a_disk_comes_back(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting anew, as after a disk came back, does not meet a message that is about to be counted."""
    outbox, database = office.store.outbox, office.store._database
    outbox.counts()
    database.generation += 1
    reader = threading.Thread(target=outbox.counts)
    really_added = outbox.added

    def added(targets: Sequence[str]) -> None:
        reader.start()
        # It is to wait for the end of the transaction; this is how long a wrong one gets to show itself.
        reader.join(0.2)
        really_added(targets)

    monkeypatch.setattr(outbox, "added", added)
    office.post("a")
    reader.join()
    assert outbox.counts() == {"oncall": 1}


@pytest.mark.parametrize(
    "damaged",
    ["", "{", "{}", "[]", "null", '"at":', msgspec.json.encode(message()).decode().replace('00Z"', '00"')],
)
def test_what_cannot_be_read_is_given_up(office: Office, damaged: str) -> None:
    """A damaged row, or one whose time has no zone, holds up no other."""
    office.post("a", "b")
    with office.store._database.transaction() as transaction:
        transaction.write("UPDATE outbox SET message = ? WHERE key = 'a'", [(damaged,)])
    office.work()
    assert office.sender.bodies == ["b/1"]
    assert office.tally.given_up == 1
    assert office.store.outbox.counts() == {}


def test_a_state_without_outbox_gets_one(tmp_path: Path) -> None:
    """A file of the first schema keeps what it knows, and takes messages from then on."""
    house = House(tmp_path)
    first = Store.open(tmp_path, health=house.health, clock=house.clock, migrations=MIGRATIONS[:1])
    first.record(nth_step(Known(), 1))
    first.close()
    office = Office(tmp_path)
    assert office.store.load() == replay(1)
    office.post("a")
    office.work()
    assert office.sender.bodies == ["a/1"]
    assert office.health.problems() == ()
    office.store.close()
