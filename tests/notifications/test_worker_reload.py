"""Tests of workers whose duty changes while they try, and of errors where none is expected."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.health import DegradedReason
from exporter.model.messages import Delivery, Outcome, Rendered, Sender
from exporter.notifications.planning import DeliveryConfig
from exporter.state.jobs import Waiting
from tests.end_to_end.program import eventually
from tests.notifications.test_notifier import NotifierBench
from tests.notifications.workbench import DOWN, PlainWriter, ScriptedSender, Workbench


@pytest.fixture
def notifying(tmp_path: Path) -> Iterator[NotifierBench]:
    """Set up the target "a", and end all threads."""
    found = NotifierBench(tmp_path)
    found.notifier.configure(found.plan("a"))
    yield found
    assert found.notifier.stop(10)
    found.store.close()


class Hang:
    """A try that lasts until it is released, and then fails."""

    def __init__(self, sender: ScriptedSender) -> None:
        self.entered, self.released = threading.Event(), threading.Event()
        sender.answer = self._answer

    def _answer(self, _: Rendered) -> Delivery:
        self.entered.set()
        assert self.released.wait(30)
        return DOWN


def test_a_reload_during_a_try_is_tried_at_once(notifying: NotifierBench) -> None:
    """A target that is mended while it hangs need not wait out the delay of the try that failed."""
    hang = Hang(notifying.senders["a"])
    notifying.tell("x", target="a")
    assert hang.entered.wait(30)
    notifying.senders["a"] = mended = ScriptedSender()
    notifying.notifier.configure(notifying.plan("a"))
    hang.released.set()
    # The clock stands still: whoever waits for a delay to pass waits for ever.
    eventually(lambda: mended.bodies == ["x/1"])
    eventually(lambda: notifying.tally.delays == [0])
    assert notifying.tally.failures == 1
    assert notifying.health.problems() == ()


def test_a_target_that_is_removed_during_a_try_is_no_trouble(notifying: NotifierBench) -> None:
    """How the last try ended is no problem any more once the target is gone."""
    hang = Hang(notifying.senders["a"])
    notifying.tell("x", target="a")
    assert hang.entered.wait(30)
    notifying.notifier.configure(notifying.plan("b"))
    hang.released.set()
    eventually(lambda: notifying.tally.failures == 1)
    assert notifying.notifier.stop(10)
    assert notifying.health.problems() == ()
    assert notifying.notifier.pending() == {"b": 0, "a": 1}


def test_an_error_of_ours_ends_no_worker(notifying: NotifierBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong outside of a try is a trouble that is shown, and passes."""
    outbox = notifying.store.outbox
    really_waiting = outbox.waiting

    def waiting(*_: object) -> list[Waiting]:
        monkeypatch.setattr(outbox, "waiting", really_waiting)
        raise sqlite3.OperationalError("CANARY")

    monkeypatch.setattr(outbox, "waiting", waiting)
    notifying.tell("x", target="a")
    problem = (DegradedReason.NOTIFICATIONS_FAILING, "target a: OperationalError in this program")
    eventually(lambda: [(p.reason, p.message) for p in notifying.health.problems()] == [problem])
    notifying.notifier.wake()
    eventually(lambda: notifying.senders["a"].bodies == ["x/1"])
    eventually(lambda: notifying.health.problems() == ())


def test_nothing_begins_after_the_stop(notifying: NotifierBench) -> None:
    """A reload that comes while the program ends starts no worker, which could not note what it sends."""
    assert notifying.notifier.stop(10)
    notifying.post("x", target="b")
    notifying.notifier.configure(notifying.plan("a", "b"))
    notifying.notifier.wake()
    assert notifying.notifier.stop(10)
    assert notifying.senders["b"].bodies == []
    assert notifying.notifier.pending() == {"a": 0, "b": 1}


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Workbench]:
    """Set up a target whose messages are given up after an hour."""
    found = Workbench(tmp_path, retry_for=3600)
    yield found
    found.store.close()


def test_all_that_is_too_old_is_given_up_at_once(workbench: Workbench) -> None:
    """However many messages are too old, one attempt that fails is enough to give them up."""
    workbench.sender.answer = lambda _: DOWN
    workbench.post(*(f"{number:03}" for number in range(450)))
    workbench.clock.pass_seconds(3601)
    workbench.post("new")
    workbench.work()
    assert (workbench.tally.failures, workbench.tally.lost[Outcome.EXPIRED]) == (2, 450)
    assert workbench.store.outbox.counts() == {"oncall": 1}


def test_no_address_is_shown_but_that_of_now(workbench: Workbench) -> None:
    """Where the new way out cannot even be made, the old one's address is not blamed."""

    def fail() -> Sender:
        raise ValueError("CANARY")

    workbench.post("a")
    workbench.work()
    workbench.worker.assign(DeliveryConfig(fail, PlainWriter, 3600))
    workbench.post("b")
    workbench.work()
    (problem,) = workbench.health.problems()
    assert problem.message == "target oncall: ValueError in this program"
