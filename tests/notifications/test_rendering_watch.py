"""Tests of messages about the watch itself: blind, and recovered."""

from datetime import timedelta

import msgspec
import pytest

from exporter.config import Templates
from exporter.model.messages import AnyMessage, Severity, TextFormat, WatchChange, WatchMessage
from exporter.notifications.rendering import Renderer
from tests.clocks import NOW
from tests.notifications.messages import message

BLIND = WatchMessage(
    "oncall",
    "watch#1",
    1,
    WatchChange.BLIND,
    NOW,
    "vm_0",
    NOW - timedelta(minutes=5),
    "GET http://169.254.169.254: timed out",
)
RECOVERED = msgspec.structs.replace(
    BLIND, sequence=2, transition=WatchChange.RECOVERED, at=NOW + timedelta(minutes=7)
)
NO_DOCUMENT = (
    "The exporter has had no valid document of scheduled events for 5 min. "
    "Until it has one again, nothing is reported about events of this VM."
)
AGAIN = (
    "The exporter reads scheduled events again, after 12 min without a valid document. "
    "Events that began and ended meanwhile were not seen."
)


def test_blind_says_since_when_and_why() -> None:
    """Who reads it knows which VM, for how long, why, and what it means."""
    found = Renderer(Templates()).render(BLIND, NOW)
    assert found.title == "[WARNING] Watch blind: vm_0 for 5 min"
    assert found.severity is Severity.WARNING
    assert found.body.splitlines() == [
        NO_DOCUMENT,
        "",
        "- This VM: vm_0",
        "- Blind since: 2026-03-04 21:55:00 UTC, 5 min ago",
        "- Last error: GET http://169.254.169.254: timed out",
    ]


def test_recovered_says_how_long() -> None:
    """The end of an outage has its length, and says what may have been missed."""
    found = Renderer(Templates(format="text")).render(RECOVERED, NOW + timedelta(minutes=7))
    assert found.title == "[SUCCESS] Watch recovered: vm_0 after 12 min"
    assert found.severity is Severity.SUCCESS
    assert found.body.splitlines() == [
        AGAIN,
        "",
        "This VM: vm_0",
        "Blind since: 2026-03-04 21:55:00 UTC, 12 min ago",
        "Recovered: 2026-03-04 22:07:00 UTC, now",
        "Last error: GET http://169.254.169.254: timed out",
    ]


@pytest.mark.parametrize("text_format", ["markdown", "text", "html"])
def test_what_imds_said_is_data(text_format: TextFormat) -> None:
    """The text of an error is no markup; a VM without a name is worded."""
    odd = msgspec.structs.replace(BLIND, instance=None, error="<b>@all `x`")
    found = Renderer(Templates(format=text_format)).render(odd, NOW, late=True)
    assert found.title == "[WARNING] Watch blind: this VM (name unknown) for 5 min"
    assert "@" not in found.body
    assert text_format != "html" or "<b>" not in found.body


def test_templates_of_the_user_are_for_events() -> None:
    """They could name what a message about the watch does not have."""
    mine = Renderer(Templates(title="{{ event.id }}", body="{{ event.id }}"))
    assert mine.render(BLIND, NOW) == Renderer(Templates()).render(BLIND, NOW)


def test_a_digest_has_them_too() -> None:
    """Blind and recovered stand among the other messages that waited."""
    found, number = Renderer(Templates()).digest([message(), BLIND, RECOVERED], NOW)
    assert found.title == "[WARNING] 3 messages from vm_0: 1 scheduled, 1 blind, 1 recovered"
    assert found.body.splitlines()[-2:] == [
        "- 2026-03-04 22:00:00 UTC: Watch blind: vm_0 for 5 min",
        "- 2026-03-04 22:07:00 UTC: Watch recovered: vm_0 after 12 min",
    ]
    assert number == 3


def test_both_kinds_come_back_from_json() -> None:
    """What is stored says which kind it is."""
    for sent in (message(), BLIND, RECOVERED):
        assert msgspec.json.decode(msgspec.json.encode(sent), type=AnyMessage) == sent
