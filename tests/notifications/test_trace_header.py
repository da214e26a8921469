"""Tests of how a message belongs to its event's trace: the span of its delivery, and the header."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from exporter.model.messages import Outcome, Rendered, Severity
from exporter.notifications.addresses import Address
from exporter.notifications.sending import AppriseSender
from tests.notifications.receivers import Receiver, http_receiver
from tests.notifications.workbench import DOWN, OK, Workbench

HEADER = "00-c7061bacafdc4513b24baa5f13a16123-00f067aa0ba902b7-01"
MESSAGE = Rendered("title", "body", "text", Severity.INFO, HEADER)


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Workbench]:
    """Set up a target whose messages are given up after an hour."""
    found = Workbench(tmp_path, retry_for=3600)
    yield found
    found.store.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Run a receiver that takes everything."""
    with http_receiver() as found:
        yield found


def test_what_became_of_messages_is_traced(workbench: Workbench) -> None:
    """A message that arrived is told once, with when; so is one that was given up."""
    workbench.post("a")
    workbench.work()
    arrived = workbench.clock.now()
    workbench.sender.answer = lambda _: DOWN
    workbench.post("b")
    workbench.clock.pass_seconds(3601)
    workbench.work()
    assert workbench.traced.messages == [
        ("a/1", arrived, Outcome.DELIVERED),
        ("b/1", workbench.clock.now(), Outcome.EXPIRED),
    ]


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


@pytest.mark.parametrize("scheme", ["json", "form", "xml"])
def test_the_header_goes_with_services_that_take_headers(receiver: Receiver, scheme: str) -> None:
    """It is that of the message, and none where the message has none; headers of the URL stay."""
    target = AppriseSender(Address("oncall", url=f"{scheme}://{receiver.authority}/?+X-Own=1"))
    assert target.send(MESSAGE).delivered
    assert target.send(msgspec.structs.replace(MESSAGE, traceparent="")).delivered
    first, second = receiver.requests
    assert first.headers["traceparent"] == HEADER
    assert "traceparent" not in second.headers
    assert first.headers["x-own"] == second.headers["x-own"] == "1"


def test_other_services_are_sent_without_it(receiver: Receiver) -> None:
    """A service without headers of its own gets the message all the same."""
    target = AppriseSender(Address("oncall", url=f"ntfy://{receiver.authority}/topic"))
    assert target.send(MESSAGE).delivered
    assert "traceparent" not in receiver.requests[0].headers
