"""Tests of targets of several services: no message is lost, or sent twice, at one of them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.model.messages import Delivery, Failure, Outcome, Rendered, Severity
from exporter.notifications.addresses import Address
from exporter.notifications.sending import AppriseSender, Service
from tests.notifications.workbench import Workbench

DOWN = Delivery(delivered=False, reason="it refuses connections")


def told(body: str) -> Rendered:
    """Return a message of a few letters."""
    return Rendered("title", body, "text", Severity.INFO)


class ScriptedService(Service):
    """Keeps what it gets while nothing is wrong with it; may be held up."""

    body_limit = 1000
    has_incidents = False
    is_reusable = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem: Delivery | None = None
        self.got: list[str] = []
        self.free = threading.Event()
        self.free.set()

    def send(self, rendered: Rendered) -> Delivery:
        """Try once."""
        problem = self.problem
        self.free.wait(30)
        if problem is None:
            self.got.append(rendered.body)
        return problem or Delivery(delivered=True)


@pytest.fixture
def pair() -> Iterator[tuple[ScriptedService, ScriptedService]]:
    """Return two services, and let go of whoever hangs at the end."""
    one, other = ScriptedService("one"), ScriptedService("other")
    yield one, other
    one.free.set()
    other.free.set()


def sender(*services: ScriptedService, timeout: float = 60.0) -> AppriseSender:
    """Make a target of services."""
    return AppriseSender(
        Address("oncall", url="json://h.test/"), timeout=timeout, open_services=lambda *_: services
    )


def test_the_same_goes_only_to_those_that_lack_it(pair: tuple[ScriptedService, ScriptedService]) -> None:
    """However it reads by then, a service has a message once."""
    one, other = pair
    target = sender(one, other)
    other.problem = DOWN
    had: set[str] = set()
    assert target.send(told("in 5 minutes"), had).reason == f"other: {DOWN.reason}"
    other.problem = None
    assert target.send(told("in 4 minutes"), had).delivered
    assert (one.got, other.got) == (["in 5 minutes"], ["in 4 minutes"])


def test_another_message_goes_to_all(pair: tuple[ScriptedService, ScriptedService]) -> None:
    """Where the last was given up, or goes out with others now, no service is left out."""
    one, other = pair
    target = sender(one, other)
    other.problem = DOWN
    assert not target.send(told("a"), set()).delivered
    other.problem = None
    assert target.send(told("a, b, c"), set()).delivered
    assert (one.got, other.got) == (["a", "a, b, c"], ["a, b, c"])


def late(target: AppriseSender, service: ScriptedService, had: set[str]) -> None:
    """Send something that the service takes only after the try has ended, and wait until it has."""
    service.free.clear()
    assert target.send(told("late"), had) == Delivery(
        delivered=False, reason="it did not answer within 0.05 s", failure=Failure.UNANSWERED
    )
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "send to oncall")
    service.free.set()
    thread.join(30)
    assert service.got == ["late"]
    target._timeout = 60.0


def test_what_came_late_is_not_sent_again(pair: tuple[ScriptedService, ScriptedService]) -> None:
    """A try that was given up, and that delivered all the same, counts when the message is due again."""
    one, _ = pair
    target = sender(one, timeout=0.05)
    had: set[str] = set()
    late(target, one, had)
    assert target.send(told("again"), had).delivered
    assert one.got == ["late"]


def test_what_came_late_counts_for_itself_alone(pair: tuple[ScriptedService, ScriptedService]) -> None:
    """A message that is another one is sent."""
    one, _ = pair
    target = sender(one, timeout=0.05)
    late(target, one, set())
    assert target.send(told("next"), set()).delivered
    assert one.got == ["late", "next"]


class SharedOffice(Workbench):
    """A target of two services."""

    def __init__(self, directory: Path, *, retry_for: float = 86400) -> None:
        self.one, self.other = ScriptedService("one"), ScriptedService("other")
        self.way: AppriseSender = sender(self.one, self.other)
        super().__init__(directory, retry_for=retry_for)
        self.sender.answer = lambda rendered: self.way.send(rendered, self.sender.delivered_to)


def test_a_digest_goes_to_all(tmp_path: Path) -> None:
    """What piled up while one service was down is new to the other, which was not."""
    workbench = SharedOffice(tmp_path)
    workbench.other.problem = DOWN
    workbench.post("a")
    workbench.work()
    workbench.post(*(f"{number:02}" for number in range(11)))
    workbench.work()
    workbench.other.problem = None
    workbench.clock.pass_seconds(400)
    workbench.work()
    digest = "a/1," + ",".join(f"{number:02}/1" for number in range(11))
    assert (workbench.one.got, workbench.other.got) == (["a/1", "00/1", digest], [digest])
    workbench.store.close()


def test_what_follows_a_message_given_up_goes_to_all(tmp_path: Path) -> None:
    """A service that never accepts a message does not block the next one for others."""
    workbench = SharedOffice(tmp_path, retry_for=60)
    workbench.other.problem = DOWN
    workbench.post("a")
    workbench.work()
    workbench.clock.pass_seconds(400)
    workbench.work()
    assert workbench.tally.lost[Outcome.EXPIRED] == 1
    workbench.other.problem = None
    workbench.post("b")
    workbench.clock.pass_seconds(400)
    workbench.work()
    assert (workbench.one.got, workbench.other.got) == (["a/1", "b/1"], ["b/1"])
    workbench.store.close()


def test_a_single_message_tried_again_goes_where_it_is_missing(tmp_path: Path) -> None:
    """A service that has a message does not get it again."""
    workbench = SharedOffice(tmp_path)
    workbench.other.problem = DOWN
    workbench.post("a")
    workbench.work()
    workbench.other.problem = None
    workbench.clock.pass_seconds(400)
    workbench.work()
    assert (workbench.one.got, workbench.other.got) == (["a/1"], ["a/1"])
    workbench.store.close()


def test_a_digest_tried_again_is_the_same(tmp_path: Path) -> None:
    """What came meanwhile waits for its turn, so that nobody gets the older part twice."""
    workbench = SharedOffice(tmp_path)
    workbench.post(*(f"{number:02}" for number in range(12)))
    workbench.restart()
    workbench.other.problem = DOWN
    workbench.work()
    workbench.post("z")
    workbench.other.problem = None
    workbench.clock.pass_seconds(400)
    workbench.work()
    digest = ",".join(f"{number:02}/1" for number in range(12))
    assert (workbench.one.got, workbench.other.got) == ([digest, "z/1"], [digest, "z/1"])
    workbench.store.close()


def test_the_first_attempt_waits_for_the_check(pair: tuple[ScriptedService, ScriptedService]) -> None:
    """Only the check knows the one plugin that a target needs; without it, Apprise loads all."""
    checked, opened = threading.Event(), threading.Event()

    def open_services(*_: object) -> tuple[ScriptedService, ...]:
        assert checked.is_set()
        opened.set()
        return pair

    target = AppriseSender(
        Address("oncall", url="json://h.test/"), checked=checked, open_services=open_services
    )
    sending = threading.Thread(target=target.send, args=(told("one"),))
    sending.start()
    assert not opened.wait(0.05)
    checked.set()
    sending.join()
    assert [service.got for service in pair] == [["one"], ["one"]]
