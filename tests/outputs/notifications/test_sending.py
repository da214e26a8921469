"""Tests of `exporter.outputs.notifications.services`: through Apprise, to real receivers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.model.lifecycle import Transition
from exporter.model.messages import Delivery, Message
from exporter.outputs.notifications.child import Child
from tests.builders import message
from tests.end_to_end.program import free_port
from tests.outputs.notifications.sending import send
from tests.receivers import Receiver, http_receiver

CANARY = "canary0123456789abcdef"
HEADER = "00-c7061bacafdc4513b24baa5f13a16123-00f067aa0ba902b7-01"
MESSAGE = message()


@pytest.mark.parametrize(
    ("told", "word"),
    [
        (message(type="Freeze"), "info"),
        (message(Transition.COMPLETED), "success"),
        (message(), "warning"),
        (message(Transition.STARTED), "failure"),
    ],
)
def test_the_whole_message_arrives(receiver: Receiver, told: Message, word: str) -> None:
    """Title, body and severity come as they are."""
    templates = Templates(title="Größe", body="On {{ instance }}: \\n stays, :smile: too", format="text")
    found = send(told, f"json://{receiver.authority}/x", templates=templates)
    assert (found.delivered, len(found.services)) == (True, 1)
    (request,) = receiver.requests
    assert request.path == "/x"
    assert (request.json["title"], request.json["message"]) == ("Größe", "On vm_0: \\n stays, :smile: too")
    assert request.json["type"] == word


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    """A redirect is a failure: neither the message nor a header goes to another host."""
    moods = iter([302])
    with http_receiver(lambda _: next(moods)) as elsewhere:
        elsewhere.answer_headers = {"Location": f"http://{receiver.authority}/"}
        found = send(MESSAGE, f"json://user:{CANARY}@{elsewhere.authority}/")
    reason = "it answered 302 (Found), a redirect, which is not followed; correct the target's URL"
    assert found == Delivery(delivered=False, reason=reason)
    assert receiver.requests == []


def test_a_proxy_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong is the proxy, not the target, and its password is not shown."""

    def reason(authority: str, url: str) -> str:
        for name in ("https_proxy", "HTTPS_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://user:{CANARY}@{authority}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        return send(MESSAGE, url).reason

    hook = Address("a", webhook="https://receiver.test/")
    closed = f"127.0.0.1:{free_port()}"
    for target in (
        "jsons://receiver.test/",
        "ntfy://receiver.test/topic",
        "slack://T1JJ3T3L2/A1BRTD4JD/TIia",
    ):
        assert reason(closed, target) == f"the proxy http://{closed} refuses connections"
    monkeypatch.setenv("https_proxy", f"http://user:{CANARY}@{closed}")
    assert send(MESSAGE, hook).reason == f"the proxy http://{closed} refuses connections"
    with http_receiver(407) as proxy:
        words = f"the proxy http://{proxy.authority} answered 407 (Proxy Authentication Required)"
        assert reason(proxy.authority, "jsons://receiver.test/") == words


def test_included_files(tmp_path: Path, receiver: Receiver) -> None:
    """Services of included files get messages, whatever the format: relative files are next to the first."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "text.cfg").write_text(f"oncall=json://{receiver.authority}/text\n")
    (tmp_path / "two words.yaml").write_text(f"urls: [json://{receiver.authority}/yaml: {{tag: oncall}}]\n")
    absolute = tmp_path / "absolute"
    absolute.write_text(f"oncall,other=json://{receiver.authority}/absolute\n")
    yaml = f"include: [more/text.cfg, 'file://{tmp_path}/two%20words.yaml', {absolute}]\nurls: []\n"
    text = f"include more/text.cfg\ninclude two words.yaml\ninclude {absolute}\n"
    for name, content in (("main.yml", yaml), ("main.cfg", text)):
        file = tmp_path / name
        file.write_text(content)
        found = send(MESSAGE, Address("a", apprise_config=(str(file), "oncall")))
        assert (found.delivered, len(found.services)) == (True, 3)
    assert sorted(request.path for request in receiver.requests) == sorted(
        ["/text", "/yaml", "/absolute"] * 2
    )


def urls(authority: str) -> Sequence[str]:
    """Return URLs with a secret in every place where one can be."""
    return (
        f"json://{CANARY}:{CANARY}@{authority}/{CANARY}?-{CANARY}=1&+{CANARY}=2",
        f"ntfy://{CANARY}@{authority}/{CANARY}",
        f"gotify://{authority}/{CANARY}",
        f"mmost://{authority}/{CANARY}abcdef",
        f"xml://{CANARY}:{CANARY}@{authority}/{CANARY}",
        f"slack://T1JJ3T3L2/A1BRTD4JD/{CANARY}/",
        f"json://{CANARY}",
    )


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("mood", [500, "hang", 200])
def test_no_secret_shows(receiver: Receiver, number: int, mood: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong, neither reason nor representation has any of a URL's secrets."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    receiver.mood = mood
    url = urls(receiver.authority)[number]
    url += f"{'&' if '?' in url else '?'}rto=0.3"
    delivery = send(MESSAGE, url)
    assert CANARY not in repr(delivery) + repr(Address("a", url=url))


@pytest.mark.parametrize("is_webhook", [False, True])
def test_a_netrc_replaces_no_header(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_webhook: bool
) -> None:
    """The receiver gets the header that the target has."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    address = Address("a", url=f"json://{receiver.authority}/?+Authorization=Bearer%20x")
    if is_webhook:
        headers = {"Authorization": "Bearer x"}
        address = Address("a", webhook=f"http://{receiver.authority}/", headers=headers)
    assert send(MESSAGE, address).delivered
    assert receiver.requests[0].headers["authorization"] == "Bearer x"


@pytest.mark.parametrize(
    ("scheme", "header"), [*dict.fromkeys(("json", "form", "xml"), HEADER).items(), ("ntfy", None)]
)
def test_the_header_goes_with_services_that_take_headers(
    receiver: Receiver, scheme: str, header: str | None
) -> None:
    """It is that of the message, and none where the message has none; headers of the URL stay."""
    child = Child(lambda _: None)
    for traceparent in (HEADER, ""):
        target = f"{scheme}://{receiver.authority}/topic?+X-Own=1"
        assert send(MESSAGE, target, child=child, traceparent=traceparent).delivered
    assert [request.headers.get("traceparent") for request in receiver.requests] == [header, None]
    assert [request.headers.get("x-own") for request in receiver.requests] == [header and "1"] * 2
