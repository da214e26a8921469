"""Tests of how a message belongs to its event's trace: spans of what became of it, and the header."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import requests

from exporter.messages import Outcome, Rendered, Severity
from exporter.notifications.addresses import Address
from exporter.notifications.sending import AppriseSender
from exporter.notifications.trace_header import traced
from tests.notifications.office import OK, REFUSED, Office
from tests.notifications.receivers import Receiver, http_receiver

HEADER = "00-c7061bacafdc4513b24baa5f13a16123-00f067aa0ba902b7-01"
MESSAGE = Rendered("title", "body", "text", Severity.INFO, HEADER)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """Set up a target whose messages are given up after an hour."""
    found = Office(tmp_path, retry_for=3600)
    yield found
    found.store.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Run a receiver that takes everything."""
    with http_receiver() as found:
        yield found


def test_what_became_of_messages_is_traced(office: Office) -> None:
    """A message that arrived is told once, with when; so is one that was given up."""
    office.post("a")
    office.work()
    arrived = office.clock.now()
    office.sender.answer = lambda _: REFUSED
    office.post("b")
    office.clock.pass_seconds(3601)
    office.work()
    assert office.traced.messages == [
        ("a/1", arrived, Outcome.DELIVERED),
        ("b/1", office.clock.now(), Outcome.EXPIRED),
    ]


def test_a_message_carries_its_trace(office: Office) -> None:
    """A single message does; a digest, which is about several events, does not."""
    office.post("a")
    office.work()
    office.sender.answer = lambda _: REFUSED
    office.post(*(f"{number:02}" for number in range(12)))
    office.work()
    office.sender.answer = lambda _: OK
    office.clock.pass_seconds(20)
    office.work()
    assert [rendered.traceparent for rendered in office.sender.sent] == ["to a/1", ""]
    assert len(office.traced.messages) == 13


@pytest.mark.parametrize("scheme", ["json", "ntfy", "gotify", "mmost"])
def test_the_header_goes_with_any_service(receiver: Receiver, scheme: str) -> None:
    """Services that let no header be given carry it too."""
    path = {"json": "", "ntfy": "topic", "gotify": "token", "mmost": "abcdefghijklmnopqrstuvwxyz"}[scheme]
    target = AppriseSender(Address("oncall", url=f"{scheme}://{receiver.authority}/{path}"))
    assert target.send(MESSAGE).delivered
    assert receiver.requests[0].headers["traceparent"] == HEADER
    assert target.send(msgspec.structs.replace(MESSAGE, traceparent="")).delivered
    assert "traceparent" not in receiver.requests[1].headers


def test_no_other_request_has_it(receiver: Receiver) -> None:
    """Only what is sent on the thread of a message, while it is sent, carries the header."""
    with traced(HEADER):
        pass
    requests.post(f"http://{receiver.authority}/", timeout=5)
    assert "traceparent" not in receiver.requests[0].headers
