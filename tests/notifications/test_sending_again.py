"""Tests of `exporter.notifications.sending.AppriseSender`: what is tried again, and to whom."""

import threading
from collections.abc import Iterator

import pytest

from exporter.model.messages import Delivery, Failure, Rendered, Severity
from exporter.notifications.addresses import Address
from exporter.notifications.sending import AppriseSender, Service

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


def sender(*services: ScriptedService, timeout: float = 10.0) -> AppriseSender:
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
