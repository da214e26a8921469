"""Tests of `exporter.notifications.worker`: what fails, what is given up, and what is reported of it."""

import logging

import pytest
from msgspec.structs import replace

from exporter.config.addresses import Address
from exporter.health import DegradedReason
from exporter.model.messages import Delivery, Failure, Outcome
from exporter.model.views import TargetView
from tests.notifications.workbench import DOWN, OK, REFUSED, UNANSWERED, Workbench, bodies, plan_to
from tests.state_support import alter


def test_what_is_too_old_is_given_up(impatient: Workbench, caplog: pytest.LogCaptureFixture) -> None:
    """After retry_for, and a last try, a message is counted as expired, and logged with what was in it."""
    workbench = impatient
    workbench.oncall.answer = lambda _: DOWN
    workbench.post("a")
    workbench.clock.pass_seconds(1800)
    workbench.post("b")
    workbench.clock.pass_seconds(1801)
    workbench.work()
    assert workbench.tally.lost[Outcome.EXPIRED] == 1
    assert workbench.store.outbox.counts() == {"oncall": 1}
    (record,) = [record for record in caplog.records if record.getMessage() == "message given up"]
    facts = ("target", "transition", "event_type", "instance")
    assert [record.__dict__[fact] for fact in facts] == ["oncall", "scheduled", "Reboot", "vm_0"]


def test_a_clock_that_jumps_loses_nothing(impatient: Workbench) -> None:
    """What the clock makes old is tried before it would be given up."""
    workbench = impatient
    workbench.post("a")
    workbench.clock.pass_seconds(7200)
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1"]
    workbench.post("b")
    workbench.clock.pass_seconds(-7200)
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1", "b/1"]
    assert workbench.tally.delays[-1] == 0


def test_a_failing_target_is_said_once(workbench: Workbench, caplog: pytest.LogCaptureFixture) -> None:
    """A trouble that lasts is one line and one problem, and is over with the first delivery."""
    caplog.set_level(logging.INFO, "exporter.health")
    workbench.oncall.answer = lambda _: DOWN
    workbench.post("a")
    for _ in range(5):
        workbench.clock.pass_seconds(20)
        workbench.work()
    message = "target oncall (json://receiver.test): it refuses connections"
    assert [(p.reason, p.message) for p in workbench.health.problems()] == [
        (DegradedReason.NOTIFICATIONS_FAILING, message)
    ]
    workbench.oncall.answer = lambda _: OK
    workbench.clock.pass_seconds(20)
    workbench.work()
    assert workbench.health.problems() == ()
    assert [r.getMessage() for r in caplog.records if r.name == "exporter.health"] == [
        "degraded",
        "recovered",
    ]


def test_a_new_assignment_is_tried_at_once(workbench: Workbench) -> None:
    """A reload that fixes the target ends the delay."""
    workbench.oncall.answer = lambda _: DOWN
    workbench.post("a")
    workbench.work()
    workbench.oncall.answer = lambda _: OK
    workbench.worker.stop()
    workbench.worker.follow(workbench.own_plan())
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1"]


def test_a_corrected_address_has_no_results_yet(workbench: Workbench) -> None:
    """A failure is one of the old address; a reload that does not concern the target keeps it."""
    workbench.oncall.answer = lambda _: Delivery(False, "it is gone", Failure.ENDED, attempts=3)
    workbench.post("a")
    workbench.work()
    workbench.worker.follow(workbench.own_plan())
    workbench.work()
    assert workbench.worker.view.delivers is False
    assert workbench.health.problems()
    plan = workbench.own_plan()
    corrected = {"oncall": Address("oncall", url="json://elsewhere.test/")}
    workbench.worker.follow(replace(plan, addresses=corrected))
    workbench.work()
    assert workbench.worker.view == TargetView("oncall")
    assert workbench.health.problems() == ()


def test_a_message_that_cannot_be_read_holds_up_no_other(workbench: Workbench) -> None:
    """A damaged row is given up, and what comes after it goes out."""
    workbench.post("a", "b")
    workbench.store.close()
    alter(workbench.directory, "UPDATE entries SET value = '{' WHERE key LIKE '%\"a\"%'")
    workbench.open()
    workbench.work()
    assert bodies(workbench.oncall) == ["b/1"]
    assert workbench.tally.lost[Outcome.EXPIRED] == 1


def test_a_target_that_is_configured_no_more_keeps_its_messages(workbench: Workbench) -> None:
    """They wait in case it comes back, and are given up when they are too old."""
    workbench.post("a")
    workbench.worker.stop()
    workbench.worker.follow(plan_to(retry_for=3600))
    workbench.work()
    assert workbench.store.outbox.counts() == {"oncall": 1}
    workbench.clock.pass_seconds(3601)
    workbench.work()
    assert workbench.tally.lost[Outcome.EXPIRED] == 1


def test_a_refused_message_is_given_up(workbench: Workbench, caplog: pytest.LogCaptureFixture) -> None:
    """After three attempts, across restarts too, it is counted, logged, and a problem for a while."""
    workbench.oncall.answer = lambda rendered: REFUSED if rendered.body == "bad/1" else OK
    workbench.post("bad", "a")
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1"]
    (problem,) = workbench.health.problems()
    assert problem.message == "target oncall (json://receiver.test): it answered 400 (Bad Request)"
    workbench.restart()
    workbench.work()
    workbench.clock.pass_seconds(600)
    workbench.work()
    assert [one.body for one in workbench.oncall.tried].count("bad/1") == 3
    assert workbench.tally.lost == {Outcome.REFUSED: 1, Outcome.EXPIRED: 0}
    assert workbench.store.outbox.counts() == {}
    (problem,) = workbench.health.problems()
    assert problem.message.endswith("it answered 400 (Bad Request); 1 given up after 3 attempts")
    (record,) = [record for record in caplog.records if record.getMessage() == "message given up"]
    assert (record.__dict__["outcome"], record.__dict__["reason"]) == ("refused", REFUSED.reason)
    workbench.post("b")
    workbench.work()
    assert workbench.health.problems() == ()


def test_a_message_that_is_not_answered_is_repeated_twice(workbench: Workbench) -> None:
    """It may have arrived each time; then it is given up, and its event's next message is sent."""
    workbench.oncall.answer = lambda rendered: UNANSWERED if rendered.body == "a/1" else OK
    workbench.post("a")
    workbench.post("a", sequence=2)
    for _ in range(10):
        workbench.work()
        workbench.clock.pass_seconds(300)
    assert [one.body for one in workbench.oncall.tried] == ["a/1", "a/1", "a/1", "a/2"]
    assert workbench.tally.lost[Outcome.EXPIRED] == 1
    assert workbench.health.problems() == ()


def test_a_problem_lasts_while_a_message_fails(workbench: Workbench) -> None:
    """That others are delivered does not hide it."""
    workbench.oncall.answer = lambda rendered: DOWN if rendered.body == "bad/1" else OK
    workbench.post("bad", "a")
    workbench.work()
    assert bodies(workbench.oncall) == ["a/1"]
    assert len(workbench.health.problems()) == 1
    workbench.oncall.answer = lambda _: OK
    workbench.clock.pass_seconds(300)
    workbench.work()
    assert workbench.health.problems() == ()


def test_all_that_is_too_old_is_given_up_at_once(impatient: Workbench) -> None:
    """However many messages are too old, one attempt that fails is enough to give them up."""
    workbench = impatient
    workbench.oncall.answer = lambda _: DOWN
    workbench.post(*(f"{number:03}" for number in range(450)))
    workbench.clock.pass_seconds(3601)
    workbench.post("new")
    workbench.work()
    assert (workbench.tally.failures, workbench.tally.lost[Outcome.EXPIRED]) == (2, 450)
    assert workbench.store.outbox.counts() == {"oncall": 1}


def test_what_became_of_messages_is_traced(impatient: Workbench) -> None:
    """A delivered message is logged once, with its time; so is one that was given up."""
    workbench = impatient
    workbench.post("a")
    workbench.work()
    arrived = workbench.clock.now()
    workbench.oncall.answer = lambda _: DOWN
    workbench.post("b")
    workbench.clock.pass_seconds(3601)
    workbench.work()
    assert workbench.traced.messages == [
        ("a/1", arrived, Outcome.DELIVERED),
        ("b/1", workbench.clock.now(), Outcome.EXPIRED),
    ]


def test_a_message_that_ends_the_sender_process_is_refused(workbench: Workbench) -> None:
    """It is tried as often as one that is refused, alone; other messages are sent meanwhile."""
    ended = Delivery(False, "the sender process ended", Failure.ENDED)
    workbench.oncall.answer = lambda rendered: ended if "bad" in rendered.body else OK
    workbench.post("bad", "a")
    for _ in range(4):
        workbench.work()
        workbench.clock.pass_seconds(300)
    assert bodies(workbench.oncall) == ["a/1"]
    assert [one.attempts for one in workbench.oncall.requests] == [0, 0, 1, 2]
    assert workbench.tally.lost == {Outcome.REFUSED: 1, Outcome.EXPIRED: 0}
