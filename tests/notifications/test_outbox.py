"""Tests of `exporter.state.jobs.Outbox`: what is written down, with what, for how long."""

from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from exporter.health import DegradedReason
from exporter.model.lifecycle import HISTORY, Change, Known, Life, Step, Transition
from exporter.model.messages import Message, Outcome
from tests.builders import NOT_BEFORE, scheduled
from tests.notifications.messages import message
from tests.notifications.workbench import DOWN, Workbench, bodies
from tests.state_support import alter, no_room_for_files, on_disk

_WITHOUT_ZONE = b'{"work": %s}' % msgspec.json.encode(message()).replace(b'00Z"', b'00"')


def records(workbench: Workbench) -> dict[tuple[Any, ...], Any]:
    """Return what the disk has of the outbox."""
    return on_disk(workbench.directory, "message")


def keys(workbench: Workbench) -> list[str]:
    """Return the lives of all records that the disk has."""
    return [life for _, life, *_ in records(workbench)]


def test_messages_and_transitions_are_written_together(workbench: Workbench) -> None:
    """If the transitions cannot be stored, no messages are sent about them."""
    changed = (cast(Life, object()),)
    step = Step(Known(1, workbench.clock.now()), (), (), changed, (), new_incarnation=True)
    with pytest.raises(AttributeError):
        workbench.store.record(step, [message()])
    assert records(workbench) == {}
    assert workbench.store.outbox.counts() == {}


def test_messages_come_back_as_they_were(workbench: Workbench) -> None:
    """A restart changes nothing about a message, not even the types of what changed."""
    changes = (
        Change("not_before", NOT_BEFORE, None),
        Change("duration_seconds", None, 9),
        Change("resources", ("vm_0",), ("vm_0", "vm_1")),
        Change("description", "2026-03-04T22:00:00Z", ""),
    )
    written = message(Transition.UPDATED, changes=changes)
    step = Step(Known(1, workbench.clock.now()), (), (), (), (), new_incarnation=True)
    workbench.store.record(step, [written])
    workbench.restart()
    ((_, record),) = workbench.store.outbox.first("oncall", 10)
    assert record.work == written


def test_what_is_done_with_is_remembered_without_its_content(workbench: Workbench) -> None:
    """What was delivered or given up stays as a mark that it must not go out again."""
    workbench.post("a")
    workbench.work()
    done = workbench.clock.now().isoformat().replace("+00:00", "Z")
    assert records(workbench) == {("oncall", "a", 1, ""): {"done": done, "outcome": "delivered"}}


def test_marks_are_kept_as_long_as_the_history(workbench: Workbench) -> None:
    """After 90 days the next message that is written clears them away; what still waits stays."""
    workbench.post("a")
    workbench.work()
    workbench.oncall.answer = lambda _: DOWN
    workbench.post("b")
    workbench.clock.pass_seconds(HISTORY.total_seconds())
    workbench.post("c")
    assert keys(workbench) == ["a", "b", "c"]
    workbench.clock.pass_seconds(1)
    workbench.post("d")
    assert keys(workbench) == ["b", "c", "d"]


def test_order_is_that_of_writing(workbench: Workbench) -> None:
    """A clock that is set back does not put a later message first."""
    workbench.oncall.answer = lambda _: DOWN
    workbench.post("a")
    workbench.clock.set_wall(workbench.clock.now() - timedelta(hours=1))
    workbench.post("b")
    workbench.restart()
    assert [key.life for key, _ in workbench.store.outbox.first("oncall", 10)] == ["a", "b"]


def test_counts_survive_a_restart(workbench: Workbench) -> None:
    """What waits is counted by target; a target for which nothing waits is left out."""
    workbench.post("a", "b")
    workbench.post("c", target="chat")
    workbench.restart()
    assert workbench.store.outbox.counts() == {"oncall": 2, "chat": 1}
    workbench.work()
    assert workbench.store.outbox.counts() == {"chat": 1}


def test_a_full_disk_loses_and_repeats_nothing(workbench: Workbench) -> None:
    """Messages go out from memory, and what went out is on the disk once it has room again."""
    workbench.store.outbox.counts()
    with no_room_for_files():
        workbench.post("a", "b")
        workbench.work()
        assert [p.reason for p in workbench.health.problems()] == [DegradedReason.STATE_UNWRITABLE]
    workbench.clock.pass_seconds(10)
    workbench.store.retry()
    assert workbench.health.problems() == ()
    workbench.restart()
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1", "b/1"]


def test_marks_go_with_their_lives(workbench: Workbench) -> None:
    """Messages about a forgotten life do not suppress those about another with the same key."""
    workbench.post("a", "b")
    workbench.work()
    step = Step(Known(2, workbench.clock.now()), (), (), (), ("a",), new_incarnation=True)
    workbench.store.record(step)
    assert keys(workbench) == ["b"]
    workbench.post("a", "b")
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1", "b/1", "a/1"]


def test_what_waits_outlives_its_life(workbench: Workbench) -> None:
    """An undelivered message is still sent after its event is forgotten."""
    workbench.post("a")
    workbench.store.record(Step(Known(2, workbench.clock.now()), (), (), (), ("a",), new_incarnation=True))
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1"]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"{", b'{"work": {}}', b"[]", b"null", b'"at":', b"\xff", _WITHOUT_ZONE],
)
def test_what_cannot_be_read_is_given_up(workbench: Workbench, damaged: bytes) -> None:
    """A damaged row, or one whose time has no zone, holds up no other."""
    workbench.post("a", "b")
    workbench.store.close()
    alter(workbench.directory, "UPDATE entries SET value = ? WHERE key LIKE '%\"a\"%'", damaged)
    workbench.open()
    workbench.work()
    assert bodies(workbench.oncall) == ["b/1"]
    assert workbench.tally.lost[Outcome.EXPIRED] == 1
    assert workbench.store.outbox.counts() == {}


@pytest.mark.parametrize("outcome", [Transition.COMPLETED, Transition.CANCELLED])
def test_a_late_message_knows_that_its_event_is_over(workbench: Workbench, outcome: Transition) -> None:
    """What was recorded before the end is sent with the end; the facts of its time stay."""
    now = workbench.clock.now()
    sent = message()
    life = Life(
        scheduled(event_id=sent.event.id),
        (sent.event.id,),
        now,
        ended=now,
        outcome=outcome,
        impact_seconds=9.0,
    )
    step = Step(Known(1, now), (), (), (life,), (), new_incarnation=True)
    assert workbench.store.outbox.as_of_now(sent) == sent
    workbench.store.record(step, [sent])
    found = workbench.store.outbox.as_of_now(sent)
    assert isinstance(found, Message)
    assert (found.event.ended, found.event.outcome, found.event.impact_seconds) == (now, outcome, 9.0)
    assert found.event.not_before == sent.event.not_before
    assert found.severity is sent.severity
    workbench.work()
    assert workbench.oncall.sent[0].resolves
