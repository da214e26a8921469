"""Tests of `exporter.state.outbox`: what is written down, with what, for how long."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from exporter.health import Trouble
from exporter.model.lifecycle import HISTORY, Change, Known, Step, TrackedEvent, Transition
from tests.builders import NOT_BEFORE
from tests.notifications.messages import message
from tests.notifications.office import REFUSED, Office
from tests.state_support import alter, no_room_for_files, on_disk

_WITHOUT_ZONE = b'{"work": %s}' % msgspec.json.encode(message()).replace(b'00Z"', b'00"')


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """Set up a target that takes everything."""
    found = Office(tmp_path)
    yield found
    found.store.close()


def records(office: Office) -> dict[tuple[Any, ...], Any]:
    """Return what the disk has of the outbox."""
    return on_disk(office.directory, "message")


def keys(office: Office) -> list[str]:
    """Return the lives of all records that the disk has."""
    return [life for _, life, *_ in records(office)]


def test_messages_and_transitions_are_written_together(office: Office) -> None:
    """Where the transitions cannot be written, nobody is told of them."""
    changed = (cast(TrackedEvent, object()),)
    step = Step(Known(1, office.clock.now()), (), (), changed, (), new_incarnation=True)
    with pytest.raises(AttributeError):
        office.store.record(step, [message()])
    assert records(office) == {}
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
    done = office.clock.now().isoformat().replace("+00:00", "Z")
    assert records(office) == {("oncall", "a", 1, ""): {"done": done}}


def test_marks_are_kept_as_long_as_the_history(office: Office) -> None:
    """After 90 days the next message that is written clears them away; what still waits stays."""
    office.post("a")
    office.work()
    office.sender.answer = lambda _: REFUSED
    office.post("b")
    office.clock.pass_seconds(HISTORY.total_seconds())
    office.post("c")
    assert keys(office) == ["a", "b", "c"]
    office.clock.pass_seconds(1)
    office.post("d")
    assert keys(office) == ["b", "c", "d"]


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


def test_marks_go_with_their_lives(office: Office) -> None:
    """What was told of a life that is forgotten is no reason not to tell of another with the same key."""
    office.post("a", "b")
    office.work()
    step = Step(Known(2, office.clock.now()), (), (), (), ("a",), new_incarnation=True)
    office.store.record(step)
    assert keys(office) == ["b"]
    office.post("a", "b")
    office.work()
    assert office.sender.bodies == ["a/1", "b/1", "a/1"]


def test_what_waits_outlives_its_life(office: Office) -> None:
    """A message that could not be delivered yet is told, though its event is forgotten."""
    office.post("a")
    office.store.record(Step(Known(2, office.clock.now()), (), (), (), ("a",), new_incarnation=True))
    office.work()
    assert office.sender.bodies == ["a/1"]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"{", b'{"work": {}}', b"[]", b"null", b'"at":', b"\xff", _WITHOUT_ZONE],
)
def test_what_cannot_be_read_is_given_up(office: Office, damaged: bytes) -> None:
    """A damaged row, or one whose time has no zone, holds up no other."""
    office.post("a", "b")
    office.store.close()
    alter(office.directory, "UPDATE entries SET value = ? WHERE key LIKE '%\"a\"%'", damaged)
    office.open()
    office.work()
    assert office.sender.bodies == ["b/1"]
    assert office.tally.given_up == 1
    assert office.store.outbox.counts() == {}
