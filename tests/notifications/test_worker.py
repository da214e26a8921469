"""Tests of `exporter.notifications.worker`: in order, none lost, none twice, whatever the receiver does."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.health import Trouble
from exporter.model.messages import Delivery, Rendered
from exporter.notifications.worker import Duty
from tests.notifications.office import OK, REFUSED, Office, PlainWriter
from tests.state_support import alter


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """Set up a target that takes everything."""
    found = Office(tmp_path)
    yield found
    found.store.close()


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Office]:
    """Set up a target whose messages are given up after an hour."""
    found = Office(tmp_path, retry_for=3600)
    yield found
    found.store.close()


def test_messages_go_out_in_order(office: Office) -> None:
    """What was written down first is sent first, each for itself."""
    office.post("a", "b")
    office.post("c")
    office.work()
    assert office.sender.bodies == ["a/1", "b/1", "c/1"]
    assert office.store.outbox.counts() == {}


def test_the_same_transition_is_told_once(office: Office) -> None:
    """A message that has been delivered is never written down again, not even after a restart."""
    office.post("a")
    office.work()
    office.post("a")
    office.restart()
    office.post("a")
    office.work()
    assert office.sender.bodies == ["a/1"]
    office.post("a", sequence=2)
    office.work()
    assert office.sender.bodies == ["a/1", "a/2"]


def test_a_failed_message_is_tried_again_before_those_after_it(office: Office) -> None:
    """A target that fails gets its messages in order once it works."""
    office.sender.answer = lambda _: REFUSED
    office.post("a", "b")
    office.work()
    assert office.sender.bodies == []
    office.sender.answer = lambda _: OK
    office.work()
    assert office.sender.bodies == []
    office.clock.pass_seconds(1)
    office.work()
    assert office.sender.bodies == ["a/1", "b/1"]
    assert office.tally.failures == 1
    assert office.tally.delays == [1, 1]


def test_what_waited_for_a_target_that_was_down_is_one_digest(office: Office) -> None:
    """More than ten that piled up go out as one, and what comes after goes out by itself again."""
    office.sender.answer = lambda _: REFUSED
    office.post(*"abcdefghijk")
    office.work()
    office.sender.answer = lambda _: OK
    office.clock.pass_seconds(60)
    office.work()
    assert office.sender.bodies == [",".join(f"{key}/1" for key in "abcdefghijk")]
    office.post(*"lmnopqrstuvw")
    office.work()
    assert office.sender.bodies[1:] == [f"{key}/1" for key in "lmnopqrstuvw"]
    assert len(office.tally.delays) == 23


def test_ten_that_waited_go_out_one_by_one(office: Office) -> None:
    """Up to ten are still messages of their own."""
    office.sender.answer = lambda _: REFUSED
    office.post(*"abcdefghij")
    office.work()
    office.sender.answer = lambda _: OK
    office.clock.pass_seconds(60)
    office.work()
    assert len(office.sender.bodies) == 10


def test_what_waited_while_the_exporter_was_down_is_a_digest(office: Office) -> None:
    """Messages that a dead process left behind waited too."""
    office.post(*"abcdefghijkl")
    office.restart()
    office.work()
    assert len(office.sender.bodies) == 1


def test_a_digest_holds_what_the_service_takes(office: Office) -> None:
    """Where not all fit into one, the next ones follow, and nothing is left out."""
    office.sender.body_limit = 12
    office.post(*(f"{number:02}" for number in range(30)))
    office.restart()
    office.work()
    assert ",".join(office.sender.bodies) == ",".join(f"{number:02}/1" for number in range(30))
    assert [body.count("/") for body in office.sender.bodies] == [12, 12, *[1] * 6]


def test_a_late_message_says_so(office: Office) -> None:
    """What is older than five seconds says when it happened."""
    office.post("a")
    office.clock.pass_seconds(5)
    office.post("b")
    office.clock.pass_seconds(1)
    office.work()
    assert [rendered.title for rendered in office.sender.sent] == ["late", ""]


def test_what_is_too_old_is_given_up(impatient: Office, caplog: pytest.LogCaptureFixture) -> None:
    """After retry_for, and a last try, a message is counted as expired, and logged with what was in it."""
    office = impatient
    office.sender.answer = lambda _: REFUSED
    office.post("a")
    office.clock.pass_seconds(1800)
    office.post("b")
    office.clock.pass_seconds(1801)
    office.work()
    assert office.tally.given_up == 1
    assert office.store.outbox.counts() == {"oncall": 1}
    (record,) = [record for record in caplog.records if record.getMessage() == "message given up"]
    facts = ("target", "transition", "event_type", "instance")
    assert [record.__dict__[fact] for fact in facts] == ["oncall", "scheduled", "Reboot", "vm_0"]


def test_a_clock_that_jumps_loses_nothing(impatient: Office) -> None:
    """What the clock makes old is tried before it would be given up."""
    office = impatient
    office.post("a")
    office.clock.pass_seconds(7200)
    office.work()
    assert office.sender.bodies == ["a/1"]
    office.post("b")
    office.clock.pass_seconds(-7200)
    office.work()
    assert office.sender.bodies == ["a/1", "b/1"]
    assert office.tally.delays[-1] == 0


def test_a_failing_target_is_said_once(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    """A trouble that lasts is one line and one problem, and is over with the first delivery."""
    caplog.set_level(logging.INFO, "exporter.health")
    office.sender.answer = lambda _: REFUSED
    office.post("a")
    for _ in range(5):
        office.clock.pass_seconds(20)
        office.work()
    message = "target oncall (json://receiver.test): it refuses connections"
    assert [(p.trouble, p.message) for p in office.health.problems()] == [
        (Trouble.NOTIFICATIONS_FAILING, message)
    ]
    office.sender.answer = lambda _: OK
    office.clock.pass_seconds(20)
    office.work()
    assert office.health.problems() == ()
    assert [r.getMessage() for r in caplog.records if r.name == "exporter.health"] == [
        "degraded",
        "recovered",
    ]


def test_an_error_in_a_sender_is_a_failed_try(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    """No exception ends the worker, and its text, which may be a secret, is not shown."""

    def explode(_: Rendered) -> Delivery:
        raise ValueError("CANARY")

    office.sender.answer = explode
    office.post("a")
    office.work()
    assert office.tally.failures == 1
    assert "CANARY" not in caplog.text + str(office.health.problems())
    office.sender.answer = lambda _: OK
    office.clock.pass_seconds(1)
    office.work()
    assert office.sender.bodies == ["a/1"]


def test_a_new_assignment_is_tried_at_once(office: Office) -> None:
    """A reload that mends the target does not have to wait out the delay."""
    office.sender.answer = lambda _: REFUSED
    office.post("a")
    office.work()
    office.sender.answer = lambda _: OK
    office.worker.stop()
    office.worker.assign(office.duty())
    office.work()
    assert office.sender.bodies == ["a/1"]


def test_a_message_that_cannot_be_read_holds_up_no_other(office: Office) -> None:
    """A damaged row is given up, and what comes after it goes out."""
    office.post("a", "b")
    office.store.close()
    alter(office.directory, "UPDATE entries SET value = '{' WHERE key LIKE '%\"a\"%'")
    office.open()
    office.work()
    assert office.sender.bodies == ["b/1"]
    assert office.tally.given_up == 1


def test_a_target_that_is_configured_no_more_keeps_its_messages(office: Office) -> None:
    """They wait in case it comes back, and are given up when they are too old."""
    office.post("a")
    office.worker.stop()
    office.worker.assign(Duty(None, PlainWriter, 3600))
    office.work()
    assert office.store.outbox.counts() == {"oncall": 1}
    office.clock.pass_seconds(3601)
    office.work()
    assert office.tally.given_up == 1


ACTIONS = st.lists(
    st.sampled_from(["post", "post many", "work", "fail", "recover", "wait", "restart", "kill"]), max_size=30
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(actions=ACTIONS)
def test_whatever_happens(actions: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every message arrives, in order, with at most one repeated send for each kill."""
    office = Office(tmp_path_factory.mktemp("state"))
    posted: list[str] = []
    arrived: list[str] = []
    kills = 0
    failing = False

    def answer(rendered: Rendered) -> Delivery:
        if not failing:
            arrived.append(rendered.body)
        return REFUSED if failing else OK

    office.sender.answer = answer
    for action in [*actions, "recover", "wait", "work"]:
        if action.startswith("post"):
            keys = [f"{len(posted) + n:03}" for n in range(13 if "many" in action else 1)]
            posted += keys
            office.post(*keys)
        elif action in ("fail", "recover"):
            failing = action == "fail"
        elif action == "work":
            office.work()
        elif action == "wait":
            office.clock.pass_seconds(301)
        elif action == "restart":
            office.restart()
        else:
            kills += kill_after_sending(office)
    office.store.close()
    assert repeats(arrived) <= kills
    first_seen = list(dict.fromkeys(key for body in arrived for key in body.split(",")))
    assert first_seen == [f"{key}/1" for key in posted]


class KilledError(BaseException):
    """The end of the process."""


def kill_after_sending(office: Office) -> int:
    """End the process between the sending of a message and its noting; return 1 if it got there."""
    with mock.patch.object(office.store.outbox, "finish", side_effect=KilledError) as finish:
        with contextlib.suppress(KilledError):
            office.worker.step()
        reached = finish.call_count
    office.restart()
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
