"""Tests of `exporter.notifications.notifier`: all targets together, with their threads."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.config import Route
from exporter.model.messages import Delivery, Rendered
from exporter.notifications.notifier import Notifier, Plan
from tests.end_to_end.program import eventually
from tests.notifications.office import OK, Office, PlainWriter, ScriptedSender


class Bureau(Office):
    """An office with a notifier, which hires its own workers."""

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
def bureau(tmp_path: Path) -> Iterator[Bureau]:
    """Set up, and end all threads."""
    found = Bureau(tmp_path)
    yield found
    assert found.notifier.stop(10)
    found.store.close()


def threads() -> int:
    """Count the workers' threads."""
    return sum(thread.name.startswith("notify ") for thread in threading.enumerate())


def test_a_target_that_has_nothing_to_do_has_no_thread(bureau: Bureau) -> None:
    """Configured targets cost nothing until there is something to say."""
    bureau.notifier.configure(bureau.plan("a", "b"))
    bureau.notifier.wake()
    assert threads() == 0
    assert bureau.notifier.pending() == {"a": 0, "b": 0}
    bureau.tell("x", target="a")
    eventually(lambda: bureau.senders["a"].bodies == ["x/1"])
    assert threads() == 1


def test_a_hanging_target_holds_up_no_other_and_no_stop(bureau: Bureau) -> None:
    """Each target waits for itself alone, and the stop for none longer than it is told."""
    release, entered = threading.Event(), threading.Event()

    def hang(_: Rendered) -> Delivery:
        entered.set()
        release.wait(30)
        return OK

    bureau.notifier.configure(bureau.plan("a", "b"))
    bureau.senders["a"].answer = hang
    bureau.tell("x", target="a")
    assert entered.wait(10)
    bureau.tell("y", target="b")
    eventually(lambda: bureau.senders["b"].bodies == ["y/1"])
    eventually(lambda: bureau.notifier.pending() == {"a": 1, "b": 0})
    assert bureau.notifier.stop(0.05) is False
    release.set()
    assert bureau.notifier.stop(10) is True
    assert bureau.notifier.pending() == {"a": 0, "b": 0}


def test_what_a_former_process_left_is_sent(bureau: Bureau) -> None:
    """Messages that wait at the start go out without anything new happening."""
    bureau.post("x", target="a")
    bureau.notifier.configure(bureau.plan("a"))
    eventually(lambda: bureau.senders["a"].bodies == ["x/1"])


def test_a_target_that_goes_and_comes_back(bureau: Bureau, caplog: pytest.LogCaptureFixture) -> None:
    """Messages for a target that is configured no more are warned of, and go out should it come back."""
    bureau.notifier.configure(bureau.plan("a"))
    bureau.notifier.configure(bureau.plan("b"))
    bureau.tell("x", target="a")
    with caplog.at_level(logging.WARNING):
        bureau.notifier.configure(bureau.plan("b"))
    (record,) = caplog.records
    assert record.getMessage() == "messages wait for a target that is not configured"
    assert (record.__dict__["target"], record.__dict__["count"]) == ("a", 1)
    assert bureau.notifier.pending() == {"b": 0, "a": 1}
    bureau.notifier.configure(bureau.plan("a", "b"))
    eventually(lambda: bureau.senders["a"].bodies == ["x/1"])
