"""Tests of `exporter.notifications.sending` and `services`: through Apprise, to real receivers."""

import io
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from msgspec.structs import replace

from exporter.model.messages import Delivery, Rendered, Severity, TextFormat
from exporter.notifications import sending, services
from exporter.notifications.addresses import Address
from exporter.notifications.sending import MOST_STUCK, AppriseSender
from tests.notifications.receivers import Receiver, http_receiver

CANARY = "canary0123456789abcdef"
HEADER = "00-c7061bacafdc4513b24baa5f13a16123-00f067aa0ba902b7-01"
MESSAGE = Rendered("[WARNING] Reboot scheduled: vm_0", "On `vm_0` & *soon*.", "markdown", Severity.WARNING)


def target_of(url: str, timeout: float = 60.0) -> AppriseSender:
    """Make a target of a URL."""
    return AppriseSender(Address("oncall", url=url), timeout=timeout)


@pytest.mark.parametrize(
    ("severity", "word"),
    [
        (Severity.INFO, "info"),
        (Severity.SUCCESS, "success"),
        (Severity.WARNING, "warning"),
        (Severity.CRITICAL, "failure"),
    ],
)
def test_the_whole_message_arrives(receiver: Receiver, severity: Severity, word: str) -> None:
    """Title, body and severity come as they are."""
    rendered = Rendered("Größe", "On `vm_0`: \\n stays, :smile: too", "text", severity)
    assert target_of(f"json://{receiver.authority}/x").send(rendered) == Delivery(delivered=True)
    (request,) = receiver.requests
    assert request.path == "/x"
    assert (request.json["title"], request.json["message"]) == (rendered.title, rendered.body)
    assert request.json["type"] == word


@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        (500, "it answered 500 (Internal Server Error)"),
        (429, "it answered 429 (Too Many Requests)"),
        (401, "it answered 401 (Unauthorized)"),
    ],
)
def test_a_refusal_says_why(receiver: Receiver, mood: int, reason: str) -> None:
    """What the service answered is the reason."""
    receiver.mood = mood
    found = target_of(f"json://user:{CANARY}@{receiver.authority}/{CANARY}?+x={CANARY}").send(MESSAGE)
    assert found == Delivery(delivered=False, reason=reason)


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    """A redirect is a failure: neither the message nor a header goes to another host."""
    with http_receiver(302) as elsewhere:
        elsewhere.answer_headers = {"Location": f"http://{receiver.authority}/"}
        found = target_of(f"json://user:{CANARY}@{elsewhere.authority}/").send(MESSAGE)
    where = f"http://{receiver.authority}"
    reason = f"it answered 302 (Found), a redirect to {where}; correct the target's URL"
    assert found == Delivery(delivered=False, reason=reason)
    assert receiver.requests == []


def test_nobody_there() -> None:
    """A refused connection is reported as such."""
    assert target_of("json://127.0.0.1:1/").send(MESSAGE).reason == "it refuses connections"


@pytest.mark.parametrize("mood", ["hang", "drip"])
def test_a_receiver_that_never_answers_ends_the_try(receiver: Receiver, mood: str) -> None:
    """A send that hangs or drips is over in bounded time, and so many are left behind, not more."""
    receiver.mood = mood
    target = target_of(f"json://{receiver.authority}/?rto=30", timeout=0.1)
    reasons = [target.send(MESSAGE).reason for _ in range(MOST_STUCK + 1)]
    assert reasons == ["it did not answer within 0.1 s"] * 3 + ["the last 3 attempts still hang"]
    stuck = [thread for thread in threading.enumerate() if thread.name == "send to oncall"]
    assert len(stuck) == MOST_STUCK
    assert all(thread.daemon for thread in stuck)
    target._timeout = 60.0
    receiver.mood = 200
    receiver.released.set()
    for thread in stuck:
        thread.join(30)
    assert target.send(MESSAGE).delivered


def test_urgent_messages_are_not_held_back(receiver: Receiver) -> None:
    """Apprise's own pauses between messages, 5.5 s for ntfy, are off."""
    target = target_of(f"ntfy://{receiver.authority}/topic")
    for _ in range(3):
        assert target.send(MESSAGE).delivered
    first, second, third = (request.at for request in receiver.requests)
    assert min(second - first, third - second) < 5


def test_severity_and_names_reach_services_of_plain_text(receiver: Receiver) -> None:
    """Where neither colour nor markup is shown, the words still say it."""
    assert target_of(f"ntfy://{receiver.authority}/topic").send(MESSAGE).delivered
    assert target_of(f"gotify://{receiver.authority}/token").send(MESSAGE).delivered
    assert target_of(f"mmost://{receiver.authority}/abcdefghijklmnopqrstuvwxyz").send(MESSAGE).delivered
    for request in receiver.requests:
        text = request.body.decode()
        assert "[WARNING] Reboot scheduled: vm_0" in text
        assert "On `vm_0` & *soon*." in text


def test_each_try_has_time_and_is_one() -> None:
    """No service gets less time than Apprise gives it, and none tries again by itself: a worker does that."""

    def limits(url: str) -> tuple[float, float, int]:
        (plugin,) = services.plugins(Address("a", url=url))
        sending.Service(plugin)
        return plugin.socket_connect_timeout, plugin.socket_read_timeout, plugin.retry

    assert limits("json://h.test/?retry=3&wait=20") == (5.0, 60.0, 0)
    assert limits("json://h.test/?cto=2&rto=3") == (2.0, 3.0, 0)
    assert limits("mailto://h.test/?from=a@example.com&to=b@example.com") == (60.0, 60.0, 0)


def test_forms_and_xml_have_it_all(receiver: Receiver) -> None:
    """Title, text and severity are in what other programs read."""
    for scheme in ("form", "xml"):
        assert target_of(f"{scheme}://{receiver.authority}/").send(MESSAGE).delivered
    form, xml = (request.body.decode() for request in receiver.requests)
    fields = parse_qs(form)
    assert (fields["title"], fields["message"], fields["type"]) == (
        [MESSAGE.title],
        [MESSAGE.body],
        ["warning"],
    )
    for part in ("<Subject>[WARNING] Reboot scheduled: vm_0<", "On `vm_0` &amp; *soon*.<", ">warning<"):
        assert part in xml


def test_a_tag_is_all_its_services(tmp_path: Path, receiver: Receiver) -> None:
    """Of several services those that had the message do not get it again."""
    with http_receiver(500) as other:
        file = tmp_path / "apprise.yml"
        file.write_text(
            "urls:\n"
            f"  - json://{receiver.authority}/one: [{{tag: oncall}}]\n"
            f"  - json://{other.authority}/two: [{{tag: oncall}}]\n"
            f"  - json://{receiver.authority}/three: [{{tag: other}}]\n"
        )
        target = AppriseSender(Address("a", apprise_config=(str(file), "oncall")))
        had: set[str] = set()
        assert target.address == "tag oncall"
        assert target.send(MESSAGE, had).reason == "JSON: it answered 500 (Internal Server Error)"
        other.mood = 200
        assert target.send(MESSAGE, had).delivered
        assert [request.path for request in receiver.requests] == ["/one"]
        assert [request.path for request in other.requests] == ["/two"]
        assert target.send(MESSAGE).delivered
        assert [request.path for request in receiver.requests] == ["/one", "/one"]


def test_the_limit_is_the_smallest_of_all_services() -> None:
    """What is written for a target fits every service behind it."""
    assert target_of("tgram://123456789:ABCdefghijklmnopqrstuvwxyz123456789/12345").body_limit == 3996
    assert target_of("json://127.0.0.1/").body_limit == 32668


@pytest.fixture
def root_log() -> Iterator[io.StringIO]:
    """Catch what arrives at the root logger, as the program's own handler does.

    pytest's caplog listens at loggers that do not propagate, too.
    """
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(1)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


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
def test_no_secret_shows(
    receiver: Receiver,
    number: int,
    mood: Any,
    root_log: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever goes wrong, no log at any level, reason or representation has any of a URL's secrets."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    receiver.mood = mood
    url = urls(receiver.authority)[number]
    target = target_of(url, timeout=0.3)
    delivery = target.send(MESSAGE)
    shown = [repr(delivery), repr(target._address), str(vars(target)), root_log.getvalue()]
    assert CANARY not in "".join(shown)
    assert CANARY not in target.address


@pytest.mark.parametrize("text_format", ["markdown", "text", "html"])
def test_each_format_is_taken(receiver: Receiver, text_format: TextFormat) -> None:
    """What is rendered goes out, whatever it is rendered as."""
    rendered = Rendered("t", "<p>vm_0</p>" if text_format == "html" else "vm_0", text_format, Severity.INFO)
    assert target_of(f"json://{receiver.authority}/").send(rendered).delivered
    assert "vm_0" in receiver.requests[0].json["message"]


def test_a_netrc_replaces_no_header(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver gets the header that the URL has."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    url = f"json://{receiver.authority}/?+Authorization=Bearer%20x"
    assert target_of(url).send(MESSAGE) == Delivery(delivered=True)
    assert receiver.requests[0].headers["authorization"] == "Bearer x"


@pytest.mark.parametrize("scheme", ["json", "form", "xml"])
def test_the_header_goes_with_services_that_take_headers(receiver: Receiver, scheme: str) -> None:
    """It is that of the message, and none where the message has none; headers of the URL stay."""
    target = target_of(f"{scheme}://{receiver.authority}/?+X-Own=1")
    assert target.send(replace(MESSAGE, traceparent=HEADER)).delivered
    assert target.send(MESSAGE).delivered
    first, second = receiver.requests
    assert first.headers["traceparent"] == HEADER
    assert "traceparent" not in second.headers
    assert first.headers["x-own"] == second.headers["x-own"] == "1"


def test_other_services_are_sent_without_it(receiver: Receiver) -> None:
    """A service without headers gets the message, too."""
    target = target_of(f"ntfy://{receiver.authority}/topic")
    assert target.send(replace(MESSAGE, traceparent=HEADER)).delivered
    assert "traceparent" not in receiver.requests[0].headers
