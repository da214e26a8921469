"""Tests of `Renderer.digest`: many messages in one."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from exporter.config import Templates
from exporter.model.events import Target
from exporter.model.lifecycle import Change, Transition
from exporter.model.messages import Severity, TextFormat
from exporter.notifications.rendering import Renderer
from tests.builders import NOT_BEFORE, REBOOT_ID
from tests.clocks import NOW
from tests.notifications.messages import message

LATER = NOW + timedelta(minutes=12)
HEAD = (
    "Seen by vm_0, the first at 2026-03-04 22:00:00 UTC, 12 min ago; "
    "these messages could not be delivered before."
)


def test_every_message_has_a_line() -> None:
    """The digest says of each, in order, when it was, what, to whom, and under which id."""
    other = message(target=Target.OTHER, resources=("vm_7",), type="Freeze", id="x")
    moved = message(Transition.UPDATED, changes=(Change("not_before", None, NOT_BEFORE),))
    unnamed = message(Transition.STARTED, resources=())
    found, number = Renderer(Templates()).digest([other, moved, unnamed], LATER)
    assert found.title == "[CRITICAL] 3 messages from vm_0: 1 scheduled, 1 updated, 1 started"
    starts = "not before 2026-03-04 22:15:00 UTC"
    moved_to = "start unknown -> 2026-03-04 22:15:00 UTC"
    assert found.body.splitlines() == [
        HEAD,
        "",
        f"- 2026-03-04 22:00:00 UTC scheduled: Freeze for vm_7 (other VMs), {starts} (x)",
        f"- 2026-03-04 22:00:00 UTC updated: Reboot for vm_0, vm_1, {starts}; {moved_to} ({REBOOT_ID})",
        f"- 2026-03-04 22:00:00 UTC started: Reboot for vm_0 ({REBOOT_ID})",
    ]
    assert (number, found.severity, found.format) == (3, Severity.CRITICAL, "markdown")


def test_html_is_a_list() -> None:
    """In HTML the lines are the items of a list, escaped."""
    found, _ = Renderer(Templates(format="html")).digest([message(description="<b>", type="<i>")], LATER)
    assert found.body == (
        f"<p>{HEAD}</p>\n<ul>\n<li>2026-03-04 22:00:00 UTC scheduled: &lt;i&gt; for vm_0, vm_1, "
        f"not before 2026-03-04 22:15:00 UTC ({REBOOT_ID})</li>\n</ul>"
    )


def test_an_unknown_instance_is_worded() -> None:
    """The digest of a VM that does not know its name says so."""
    found, _ = Renderer(Templates(format="text")).digest([message(instance=None, resources=())], NOW)
    assert found.title == "[WARNING] 1 message from a VM (name unknown): 1 scheduled"
    assert "Seen by a VM whose name is not known yet," in found.body
    assert "Reboot for this VM, " in found.body


@pytest.mark.parametrize("text_format", ["markdown", "text", "html"])
def test_as_many_go_in_as_fit(text_format: TextFormat) -> None:
    """The limit is kept, title and body name just those that are in, and the rest is for the next."""
    renderer = Renderer(Templates(format=text_format))
    messages = [replace(message(id=f"id-{number}"), sequence=number) for number in range(40)]
    found, number = renderer.digest(messages, NOW, limit=2000)
    assert 5 < number < 40
    assert 2000 - 200 < len(found.title) + len(found.body) <= 2000
    assert found.title == f"[WARNING] {number} messages from vm_0: {number} scheduled"
    assert f"id-{number - 1}" in found.body
    assert f"id-{number}" not in found.body
    rest, left = renderer.digest(messages[number:], NOW, limit=2000)
    assert f"id-{number}" in rest.body
    assert left >= 1


def test_one_goes_in_at_least() -> None:
    """A message too long for the service is cut rather than stuck for ever."""
    found, number = Renderer(Templates()).digest([message(), message()], NOW, limit=120)
    assert number == 1
    assert len(found.title) + len(found.body) <= 120


def test_the_severity_is_of_those_that_are_in() -> None:
    """What did not fit does not alarm yet."""
    messages = [message(), message(Transition.STARTED)]
    found, number = Renderer(Templates()).digest(messages, NOW, limit=300)
    assert (number, found.severity) == (1, Severity.WARNING)


def test_nothing_has_no_digest() -> None:
    """No message at all is a mistake of the caller."""
    with pytest.raises(ValueError, match="no messages"):
        Renderer(Templates()).digest([], NOW)
