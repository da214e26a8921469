"""Tests of workers whose duty changes while they try, and of errors where none is expected."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.health import Trouble
from exporter.model.messages import Delivery, Rendered, Sender
from exporter.notifications.worker import Duty
from exporter.state.outbox import Waiting
from tests.end_to_end.program import eventually
from tests.notifications.office import REFUSED, Office, PlainWriter, ScriptedSender
from tests.notifications.test_notifier import Bureau


@pytest.fixture
def bureau(tmp_path: Path) -> Iterator[Bureau]:
    """Set up the target "a", and end all threads."""
    found = Bureau(tmp_path)
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
        return REFUSED


def test_a_reload_during_a_try_is_tried_at_once(bureau: Bureau) -> None:
    """A target that is mended while it hangs need not wait out the delay of the try that failed."""
    hang = Hang(bureau.senders["a"])
    bureau.tell("x", target="a")
    assert hang.entered.wait(10)
    bureau.senders["a"] = mended = ScriptedSender()
    bureau.notifier.configure(bureau.plan("a"))
    hang.released.set()
    # The clock stands still: whoever waits for a delay to pass waits for ever.
    eventually(lambda: mended.bodies == ["x/1"])
    eventually(lambda: bureau.tally.delays == [0])
    assert bureau.tally.failures == 1
    assert bureau.health.problems() == ()


def test_a_target_that_is_removed_during_a_try_is_no_trouble(bureau: Bureau) -> None:
    """How the last try ended is no problem any more once the target is gone."""
    hang = Hang(bureau.senders["a"])
    bureau.tell("x", target="a")
    assert hang.entered.wait(10)
    bureau.notifier.configure(bureau.plan("b"))
    hang.released.set()
    eventually(lambda: bureau.tally.failures == 1)
    assert bureau.notifier.stop(10)
    assert bureau.health.problems() == ()
    assert bureau.notifier.pending() == {"b": 0, "a": 1}


def test_an_error_of_ours_ends_no_worker(bureau: Bureau, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong outside of a try is a trouble that is shown, and passes."""
    outbox = bureau.store.outbox
    really_waiting = outbox.waiting

    def waiting(*_: object) -> list[Waiting]:
        monkeypatch.setattr(outbox, "waiting", really_waiting)
        raise sqlite3.OperationalError("CANARY")

    monkeypatch.setattr(outbox, "waiting", waiting)
    bureau.tell("x", target="a")
    problem = (Trouble.NOTIFICATIONS_FAILING, "target a: OperationalError in this program")
    eventually(lambda: [(p.trouble, p.message) for p in bureau.health.problems()] == [problem])
    bureau.notifier.wake()
    eventually(lambda: bureau.senders["a"].bodies == ["x/1"])
    eventually(lambda: bureau.health.problems() == ())


def test_nothing_begins_after_the_stop(bureau: Bureau) -> None:
    """A reload that comes while the program ends starts no worker, which could not note what it sends."""
    assert bureau.notifier.stop(10)
    bureau.post("x", target="b")
    bureau.notifier.configure(bureau.plan("a", "b"))
    bureau.notifier.wake()
    assert bureau.notifier.stop(10)
    assert bureau.senders["b"].bodies == []
    assert bureau.notifier.pending() == {"a": 0, "b": 1}


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """Set up a target whose messages are given up after an hour."""
    found = Office(tmp_path, retry_for=3600)
    yield found
    found.store.close()


def test_all_that_is_too_old_is_given_up_at_once(office: Office) -> None:
    """However many messages are too old, one try that fails is enough to give them up."""
    office.sender.answer = lambda _: REFUSED
    office.post(*(f"{number:03}" for number in range(450)))
    office.clock.pass_seconds(3601)
    office.post("new")
    office.work()
    assert (office.tally.failures, office.tally.given_up) == (1, 450)
    assert office.store.outbox.counts() == {"oncall": 1}


def test_no_address_is_shown_but_that_of_now(office: Office) -> None:
    """Where the new way out cannot even be made, the old one's address is not blamed."""

    def fail() -> Sender:
        raise ValueError("CANARY")

    office.post("a")
    office.work()
    office.worker.assign(Duty(fail, PlainWriter, 3600))
    office.post("b")
    office.work()
    (problem,) = office.health.problems()
    assert problem.message == "target oncall: ValueError in this program"
