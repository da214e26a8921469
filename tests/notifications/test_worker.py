"""Tests of `exporter.notifications.worker`: in order, none lost, none twice, whatever the receiver does."""

import contextlib
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.model.messages import Delivery, Rendered
from tests.notifications.workbench import DOWN, OK, Workbench


def test_messages_go_out_in_order(workbench: Workbench) -> None:
    """What was written down first is sent first, each for itself."""
    workbench.post("a", "b")
    workbench.post("c")
    workbench.work()
    assert workbench.sender.bodies == ["a/1", "b/1", "c/1"]
    assert workbench.store.outbox.counts() == {}


def test_the_same_transition_is_told_once(workbench: Workbench) -> None:
    """A message that has been delivered is never written down again, not even after a restart."""
    workbench.post("a")
    workbench.work()
    workbench.post("a")
    workbench.restart()
    workbench.post("a")
    workbench.work()
    assert workbench.sender.bodies == ["a/1"]
    workbench.post("a", sequence=2)
    workbench.work()
    assert workbench.sender.bodies == ["a/1", "a/2"]


def test_a_target_that_fails_gets_its_messages_in_order(workbench: Workbench) -> None:
    """Once two messages have failed, the others wait with them, and go out in their order."""
    workbench.sender.answer = lambda _: DOWN
    workbench.post("a", "b", "c")
    workbench.work()
    assert workbench.sender.tried == ["a/1", "b/1"]
    workbench.sender.answer = lambda _: OK
    workbench.work()
    assert workbench.sender.bodies == []
    workbench.clock.pass_seconds(2)
    workbench.work()
    assert sorted(workbench.sender.bodies) == ["a/1", "b/1", "c/1"]
    assert workbench.tally.failures == 2
    assert workbench.tally.delays == [2, 2, 2]


def test_what_waited_for_a_target_that_was_down_is_one_digest(workbench: Workbench) -> None:
    """More than ten that piled up go out as one, and what comes after goes out by itself again."""
    workbench.sender.answer = lambda _: DOWN
    workbench.post(*"abcdefghijk")
    workbench.work()
    workbench.sender.answer = lambda _: OK
    workbench.clock.pass_seconds(60)
    workbench.work()
    assert workbench.sender.bodies == [",".join(f"{key}/1" for key in "abcdefghijk")]
    workbench.post(*"lmnopqrstuvw")
    workbench.work()
    assert workbench.sender.bodies[1:] == [f"{key}/1" for key in "lmnopqrstuvw"]
    assert len(workbench.tally.delays) == 23


def test_ten_that_waited_go_out_one_by_one(workbench: Workbench) -> None:
    """Up to ten are sent as separate messages."""
    workbench.sender.answer = lambda _: DOWN
    workbench.post(*"abcdefghij")
    workbench.work()
    workbench.sender.answer = lambda _: OK
    workbench.clock.pass_seconds(60)
    workbench.work()
    assert len(workbench.sender.bodies) == 10


def test_what_waited_while_the_exporter_was_down_is_a_digest(workbench: Workbench) -> None:
    """Messages that a dead process left behind waited too."""
    workbench.post(*"abcdefghijkl")
    workbench.restart()
    workbench.work()
    assert len(workbench.sender.bodies) == 1


def test_a_digest_holds_what_the_service_takes(workbench: Workbench) -> None:
    """Where not all fit into one, the next ones follow, and nothing is left out."""
    workbench.sender.body_limit = 12
    workbench.post(*(f"{number:02}" for number in range(30)))
    workbench.restart()
    workbench.work()
    assert ",".join(workbench.sender.bodies) == ",".join(f"{number:02}/1" for number in range(30))
    assert [body.count("/") for body in workbench.sender.bodies] == [12, 12, *[1] * 6]


def test_a_late_message_says_so(workbench: Workbench) -> None:
    """A message older than five seconds has the time of its transition."""
    workbench.post("a")
    workbench.clock.pass_seconds(5)
    workbench.post("b")
    workbench.clock.pass_seconds(1)
    workbench.work()
    assert [rendered.title for rendered in workbench.sender.sent] == ["late", ""]


ACTIONS = st.lists(
    st.sampled_from(["post", "post many", "work", "fail", "recover", "wait", "restart", "kill"]), max_size=30
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(actions=ACTIONS)
def test_whatever_happens(actions: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every message arrives, each event's in order, with at most one repeated send for each kill."""
    workbench = Workbench(tmp_path_factory.mktemp("state"))
    posted: list[str] = []
    arrived: list[str] = []
    kills = 0
    failing = False

    def answer(rendered: Rendered) -> Delivery:
        if not failing:
            arrived.append(rendered.body)
        return DOWN if failing else OK

    workbench.sender.answer = answer
    for action in [*actions, "recover", "wait", "work"]:
        if action.startswith("post"):
            post_in_turn(workbench, posted, 13 if "many" in action else 1)
        elif action in ("fail", "recover"):
            failing = action == "fail"
        elif action == "work":
            workbench.work()
        elif action == "wait":
            workbench.clock.pass_seconds(301)
        elif action == "restart":
            workbench.restart()
        else:
            kills += kill_after_sending(workbench)
    workbench.store.close()
    assert repeats(arrived) <= kills
    first_seen = list(dict.fromkeys(key for body in arrived for key in body.split(",")))
    assert sorted(first_seen) == sorted(posted)
    for event in "01234":
        assert [one for one in first_seen if one[0] == event] == [one for one in posted if one[0] == event]


def post_in_turn(workbench: Workbench, posted: list[str], count: int) -> None:
    """Write messages down about five events in turn."""
    for _ in range(count):
        event, sequence = str(len(posted) % 5), len(posted) // 5
        posted.append(f"{event}/{sequence}")
        workbench.post(event, sequence=sequence)


class KilledError(BaseException):
    """The end of the process."""


def kill_after_sending(workbench: Workbench) -> int:
    """End the process between the sending of a message and its noting; return 1 if it got there."""
    with mock.patch.object(workbench.store.outbox, "finish", side_effect=KilledError) as finish:
        with contextlib.suppress(KilledError):
            workbench.work()
        reached = finish.call_count
    workbench.restart()
    return reached


def repeats(bodies: list[str]) -> int:
    """Count the sends that had in them what had arrived before."""
    seen: set[str] = set()
    count = 0
    for body in bodies:
        keys = set(body.split(","))
        count += bool(keys & seen)
        seen |= keys
    return count


def test_a_stop_notes_what_arrives_meanwhile(workbench: Workbench) -> None:
    """An attempt under way when the exporter stops is not repeated after the restart."""
    workbench.post("a")
    workbench.worker.step()
    workbench.worker.stop()
    assert workbench.worker.join(1)
    assert workbench.store.outbox.counts() == {}


def test_a_message_carries_its_trace(workbench: Workbench) -> None:
    """A single message does; a digest, which is about several events, does not."""
    workbench.post("a")
    workbench.work()
    workbench.sender.answer = lambda _: DOWN
    workbench.post(*(f"{number:02}" for number in range(12)))
    workbench.work()
    workbench.sender.answer = lambda _: OK
    workbench.clock.pass_seconds(20)
    workbench.work()
    assert [rendered.traceparent for rendered in workbench.sender.sent] == ["to a/1", ""]
    assert len(workbench.traced.messages) == 13
