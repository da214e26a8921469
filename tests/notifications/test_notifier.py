"""Tests of `exporter.notifications.notifier`: all targets together, with their threads."""

import logging
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.config import Route
from exporter.health import DegradedReason
from exporter.model.messages import Delivery, Rendered
from exporter.notifications.notifier import Notifier
from exporter.notifications.planning import Plan
from exporter.state.jobs import Waiting
from tests.end_to_end.program import eventually
from tests.notifications.workbench import DOWN, OK, PlainWriter, ScriptedSender, Workbench


class NotifierBench(Workbench):
    """A workbench with a notifier, which makes its own workers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.notifier = Notifier(self.store.outbox, self.tally, self.traced, self.health, self.clock)
        self.senders: dict[str, ScriptedSender] = {}

    def plan(self, *targets: str) -> Plan:
        """Plan for these targets, whose senders stay the same."""
        for target in targets:
            self.senders.setdefault(target, ScriptedSender())
        ways = {target: lambda target=target: self.senders[target] for target in targets}
        return Plan((Route(targets),), ways, PlainWriter)

    def tell(self, *keys: str, target: str) -> None:
        """Write messages down, and wake the workers, as the poller does."""
        self.post(*keys, target=target)
        self.notifier.wake()


@pytest.fixture
def notifying(tmp_path: Path) -> Iterator[NotifierBench]:
    """Set up, and end all threads."""
    found = NotifierBench(tmp_path)
    yield found
    assert found.notifier.stop(10)
    found.store.close()


def threads() -> int:
    """Count the workers' threads."""
    return sum(thread.name.startswith("notify ") for thread in threading.enumerate())


def test_a_target_that_has_nothing_to_do_has_no_thread(notifying: NotifierBench) -> None:
    """Configured targets have no threads before the first message."""
    notifying.notifier.configure(notifying.plan("a", "b"))
    notifying.notifier.wake()
    assert threads() == 0
    assert notifying.notifier.pending() == {"a": 0, "b": 0}
    notifying.tell("x", target="a")
    eventually(lambda: notifying.senders["a"].bodies == ["x/1"])
    assert threads() == 1


def test_a_hanging_target_holds_up_no_other_and_no_stop(notifying: NotifierBench) -> None:
    """Each target waits for itself alone, and the stop for none longer than it is told."""
    release, entered = threading.Event(), threading.Event()

    def hang(_: Rendered) -> Delivery:
        entered.set()
        release.wait(30)
        return OK

    notifying.notifier.configure(notifying.plan("a", "b"))
    notifying.senders["a"].answer = hang
    notifying.tell("x", target="a")
    assert entered.wait(30)
    notifying.tell("y", target="b")
    eventually(lambda: notifying.senders["b"].bodies == ["y/1"])
    eventually(lambda: notifying.notifier.pending() == {"a": 1, "b": 0})
    assert notifying.notifier.stop(0.05) is False
    release.set()
    assert notifying.notifier.stop(10) is True
    assert notifying.notifier.pending() == {"a": 0, "b": 0}


def test_what_a_former_process_left_is_sent(notifying: NotifierBench) -> None:
    """Messages that wait at the start go out without anything new happening."""
    notifying.post("x", target="a")
    notifying.notifier.configure(notifying.plan("a"))
    eventually(lambda: notifying.senders["a"].bodies == ["x/1"])


def test_a_target_that_goes_and_comes_back(
    notifying: NotifierBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages for a target that is configured no more are warned of, and go out should it come back."""
    notifying.notifier.configure(notifying.plan("a"))
    notifying.notifier.configure(notifying.plan("b"))
    notifying.tell("x", target="a")
    with caplog.at_level(logging.WARNING):
        notifying.notifier.configure(notifying.plan("b"))
    (record,) = caplog.records
    assert record.getMessage() == "messages are waiting for a target that is not configured"
    assert (record.__dict__["target"], record.__dict__["count"]) == ("a", 1)
    assert notifying.notifier.pending() == {"b": 0, "a": 1}
    notifying.notifier.configure(notifying.plan("a", "b"))
    eventually(lambda: notifying.senders["a"].bodies == ["x/1"])


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
    """If a target is fixed while an attempt hangs, there is no delay after that attempt fails."""
    notifying.notifier.configure(notifying.plan("a"))
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
    notifying.notifier.configure(notifying.plan("a"))
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
    notifying.notifier.configure(notifying.plan("a"))
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
    notifying.notifier.configure(notifying.plan("a"))
    assert notifying.notifier.stop(10)
    notifying.post("x", target="b")
    notifying.notifier.configure(notifying.plan("a", "b"))
    notifying.notifier.wake()
    assert notifying.notifier.stop(10)
    assert notifying.senders["b"].bodies == []
    assert notifying.notifier.pending() == {"a": 0, "b": 1}
