"""Tests of `exporter.notifications.worker`: in order, none lost, none twice, whatever the receiver does."""

import contextlib
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from exporter.model.messages import Delivery, Rendered
from tests.notifications.messages import message
from tests.notifications.workbench import DOWN, OK, Workbench, bodies


def test_messages_go_out_in_order(workbench: Workbench) -> None:
    """What was written down first is sent first, each for itself."""
    workbench.post("a", "b")
    workbench.post("c")
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1", "b/1", "c/1"]
    assert workbench.store.outbox.counts() == {}


def test_the_same_transition_is_told_once(workbench: Workbench) -> None:
    """A message that has been delivered is never written down again, not even after a restart."""
    workbench.post("a")
    workbench.work()
    workbench.post("a")
    workbench.restart()
    workbench.post("a")
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1"]
    workbench.post("a", sequence=2)
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1", "a/2"]


def test_a_target_that_fails_gets_its_messages_in_order(workbench: Workbench) -> None:
    """Once two messages have failed, the others wait with them, and go out in their order."""
    workbench.oncall.answer = lambda _: DOWN
    workbench.post("a", "b", "c")
    workbench.work()
    assert [one.body for one in workbench.oncall.tried] == ["a/1", "b/1"]
    workbench.oncall.answer = lambda _: OK
    workbench.work()
    assert bodies(workbench.oncall) == []
    workbench.clock.pass_seconds(2)
    workbench.work()
    assert sorted(bodies(workbench.oncall)) == ["a/1", "b/1", "c/1"]
    assert workbench.tally.failures == 2
    assert workbench.tally.delays == [2, 2, 2]


def test_what_waited_for_a_target_that_was_down_is_one_digest(workbench: Workbench) -> None:
    """More than ten that piled up go out as one, and what comes after goes out by itself again."""
    workbench.oncall.answer = lambda _: DOWN
    workbench.post(*"abcdefghijk")
    workbench.work()
    workbench.oncall.answer = lambda _: OK
    workbench.clock.pass_seconds(60)
    workbench.work()
    assert bodies(workbench.oncall) == [",".join(f"{key}/1" for key in "abcdefghijk")]
    workbench.post(*"lmnopqrstuvw")
    workbench.work()
    assert bodies(workbench.oncall)[1:] == [f"{key}/1" for key in "lmnopqrstuvw"]
    assert len(workbench.tally.delays) == 23


def test_ten_that_waited_go_out_one_by_one(workbench: Workbench) -> None:
    """Up to ten are sent as separate messages."""
    workbench.oncall.answer = lambda _: DOWN
    workbench.post(*"abcdefghij")
    workbench.work()
    workbench.oncall.answer = lambda _: OK
    workbench.clock.pass_seconds(60)
    workbench.work()
    assert len(bodies(workbench.oncall)) == 10


def test_what_waited_while_the_exporter_was_down_is_a_digest(workbench: Workbench) -> None:
    """Messages that a dead process left behind waited too."""
    workbench.post(*"abcdefghijkl")
    workbench.restart()
    workbench.work()
    assert len(bodies(workbench.oncall)) == 1


def test_a_digest_holds_what_the_service_takes(workbench: Workbench) -> None:
    """Where not all fit into one, the next ones follow, and nothing is left out."""
    workbench.oncall.body_limit = 12
    workbench.post(*(f"{number:02}" for number in range(30)))
    workbench.restart()
    workbench.work()
    assert ",".join(bodies(workbench.oncall)) == ",".join(f"{number:02}/1" for number in range(30))
    assert [body.count("/") for body in bodies(workbench.oncall)] == [12, 12, *[1] * 6]


def test_a_message_says_that_it_failed_only_if_it_did(workbench: Workbench) -> None:
    """One that waited for the exporter was not tried; one of a target that was down was."""
    workbench.post("a")
    workbench.clock.pass_seconds(60)
    workbench.restart()
    workbench.work()
    workbench.oncall.answer = lambda _: DOWN
    workbench.post("b")
    workbench.work()
    workbench.oncall.answer = lambda _: OK
    workbench.clock.pass_seconds(2)
    workbench.work()
    assert [rendered.title for rendered in workbench.oncall.sent] == ["", "failed"]


def test_a_storm_goes_out_gravest_first(workbench: Workbench) -> None:
    """What lasts longer than two seconds does not hold up what is critical."""
    freeze = replace(message(type="Freeze"), target="oncall")
    workbench.post(*(f"{number}" for number in range(5)), like=freeze)

    def answer(_: Rendered) -> Delivery:
        workbench.clock.pass_seconds(1)
        return OK

    workbench.oncall.answer = answer
    workbench.worker.step()
    workbench.post("grave", like=message(type="Preempt"))
    workbench.work()
    assert bodies(workbench.oncall) == ["0/1", "1/1", "grave/1", "2/1", "3/1", "4/1"]


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

    workbench.oncall.answer = answer
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
    workbench.oncall.answer = lambda _: DOWN
    workbench.post(*(f"{number:02}" for number in range(12)))
    workbench.work()
    workbench.oncall.answer = lambda _: OK
    workbench.clock.pass_seconds(20)
    workbench.work()
    assert [rendered.traceparent for rendered in workbench.oncall.sent] == ["to a/1", ""]
    assert len(workbench.traced.messages) == 13
