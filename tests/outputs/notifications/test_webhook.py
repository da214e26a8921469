import platform
from datetime import timedelta

import pytest
from msgspec.structs import replace

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.model.lifecycle import Transition
from exporter.model.messages import Delivery, Failure, WatchChange, WatchMessage
from tests.builders import REBOOT_ID, WEB_VM, message
from tests.clocks import NOW
from tests.http_server import serving, then_hang_up
from tests.outputs.notifications.sending import send
from tests.receivers import Receiver

REDIRECT = "a redirect, which is not followed; correct the target's URL"
HEADER = "00-c7061bacafdc4513b24baa5f13a16123-00f067aa0ba902b7-01"


def hook(receiver: Receiver) -> Address:
    url = f"http://{receiver.authority}/events?x=1"
    return Address("automation", webhook=url, headers={"Authorization": "Bearer abc"})


@pytest.mark.parametrize("content_type", ["", "text/plain; charset=utf-8"])
def test_a_body_of_ones_own(receiver: Receiver, content_type: str) -> None:
    """A template writes it; quotes in Azure's text stay within the value."""
    own = Templates(body='{"text": {{ event.description | tojson }}}', format="text")
    to = replace(hook(receiver), content_type=content_type)
    assert send(message(description='the "host" is <old>'), to, templates=own).delivered
    (request,) = receiver.requests
    assert request.json == {"text": 'the "host" is <old>'}
    assert request.headers["content-type"] == (content_type or "application/json")


def test_an_event_is_a_cloud_event(receiver: Receiver) -> None:
    """All attributes of the contract are there, and the id is the same for every repetition."""
    sent = message(Transition.STARTED, vm=WEB_VM)
    for _ in range(2):
        assert send(sent, hook(receiver), NOW + timedelta(hours=1), traceparent=HEADER).delivered
    first, second = receiver.requests
    assert first.body == second.body
    assert first.path == "/events?x=1"
    assert first.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert (first.headers["authorization"], first.headers["traceparent"]) == ("Bearer abc", HEADER)
    event = first.json
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "type": "scheduled_event.started",
        "source": WEB_VM.resource_id,
        "subject": REBOOT_ID,
        "id": f"{REBOOT_ID.lower()}/1/started",
        "time": "2026-03-04T22:00:00Z",
        "datacontenttype": "application/json",
    }
    facts = ("id", "type", "status", "transition", "at", "instance")
    wanted = [REBOOT_ID, "Reboot", "Started", "started", "2026-03-04T22:00:00Z", "vm_0"]
    assert [data[fact] for fact in facts] == wanted


def test_the_watch_has_the_instance_as_subject(receiver: Receiver) -> None:
    """Blind and recovered are about the VM; while its name is unknown, they come from the host."""
    blind = WatchMessage("a", "watch x", 1, WatchChange.BLIND, NOW, "vm_0", NOW, "timed out")
    for sent in (blind, replace(blind, instance=None)):
        assert send(sent, hook(receiver)).delivered
    event, unnamed = (request.json for request in receiver.requests)
    assert (event["type"], event["source"], event["subject"]) == ("scheduled_event.blind", "vm_0", "vm_0")
    assert event["data"]["error"] == "timed out"
    assert unnamed["source"] == platform.node()
    assert "subject" not in unnamed


@pytest.mark.parametrize(
    ("mood", "failure", "reason"),
    [
        (299, None, ""),
        (302, Failure.TARGET, f"it answered 302 (Found), {REDIRECT}"),
        (400, Failure.REFUSED, "it answered 400 (Bad Request)"),
        (503, Failure.TARGET, "it answered 503 (Service Unavailable)"),
        ("reset", Failure.TARGET, "the connection failed"),
    ],
)
def test_answers_count_as_those_of_any_target(
    receiver: Receiver, mood: int | str, failure: Failure | None, reason: str
) -> None:
    """The status decides."""
    receiver.mood = mood
    assert send(message(), hook(receiver)) == Delivery(failure is None, reason, failure or Failure.TARGET)


def test_the_reason_of_the_receiver_is_told(receiver: Receiver) -> None:
    """Without the secrets of the URL and of the headers."""
    receiver.mood, receiver.answer = 400, b'{"message": "abc may not post to /events?x=1: no such scope"}'
    assert send(message(), hook(receiver)).reason == (
        "it answered 400 (Bad Request): ... may not post to /...?x=...: no such scope"
    )


def test_what_follows_the_status_is_not_read() -> None:
    """An answer that breaks off is one."""
    with serving(then_hang_up(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")) as server:
        assert send(message(), Address("a", webhook=server.url)).delivered


def test_how_long_to_wait_is_told(receiver: Receiver) -> None:
    """By the header of an answer that is no success."""
    receiver.mood, receiver.answer_headers = 429, {"retry-after": "0090"}
    assert send(message(), hook(receiver)).retry_after == 90.0
