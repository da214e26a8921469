"""Tests of `exporter.notifications.rendering`: rules behind the words; the golden files have the words."""

from datetime import timedelta
from typing import Any

import pytest

from exporter.config import Templates
from exporter.model.events import Target
from exporter.model.lifecycle import Change, Transition, TransitionRecord
from exporter.model.messages import Message, TextFormat
from exporter.notifications.rendering import Renderer
from tests.builders import NOT_BEFORE
from tests.clocks import NOW
from tests.notifications.messages import message

REBOOTS = "The VM reboots. Non-persistent memory is lost."


def body(sent: Message, **templates: Any) -> str:
    """Return the body that goes out."""
    return Renderer(Templates(**templates)).render(sent, NOW).body


def title(sent: Message) -> str:
    """Return the title that goes out."""
    return Renderer(Templates()).render(sent, NOW).title


@pytest.mark.parametrize("transition", Transition)
def test_all_formats_say_the_same(transition: Transition) -> None:
    """Markdown and HTML are the text with a list around its facts; the title is the same in all."""
    sent = message(transition, changes=(Change("not_before", None, NOT_BEFORE),))
    text, markdown, html = (
        Renderer(Templates(format=form)).render(sent, NOW) for form in ("text", "markdown", "html")
    )
    head, _, *facts = text.body.split("\n")
    assert markdown.body == "\n".join([head, "", *(f"- {fact}" for fact in facts)])
    items = "".join(f"<li>{fact}</li>\n" for fact in facts)
    assert (
        html.body.replace("-&gt;", "->").replace("&#39;", "'").replace("&#34;", '"')
        == f"<p>{head}</p>\n<ul>\n{items}</ul>"
    )
    assert text.title == markdown.title == html.title
    assert [found.format for found in (text, markdown, html)] == ["text", "markdown", "html"]


def test_what_was_not_watched_is_not_claimed() -> None:
    """Where a start or an end was missed, the message says when it was noticed, and not how long it took."""
    noticed = (TransitionRecord(Transition.STARTED, NOW),)
    sent = message(Transition.STARTED, started=None, transitions=noticed)
    assert "- Started: already under way at 2026-03-04 22:00:00 UTC" in body(sent).splitlines()
    for started in (None, NOW):
        over = message(Transition.COMPLETED, started=started, transitions=noticed, impact_seconds=None)
        assert "- Closed: noticed 2026-03-04 22:00:00 UTC, now" in body(over).splitlines()


def test_a_freeze_is_not_as_long_as_its_event() -> None:
    """The end of a Freeze says how long the VM paused where that was seen, and else that it was not."""
    unseen = message(Transition.COMPLETED, type="Freeze")
    assert "How long the VM paused was not observed." in body(unseen)
    assert "10 min" not in title(unseen)
    reboot = message(Transition.COMPLETED)
    assert "paused" not in body(reboot)


def test_a_not_before_that_cannot_be_read_is_unknown() -> None:
    """What Azure wrote and nobody can read is not taken for "at any moment"."""
    sent = message(not_before=None, doubts=("NotBefore: 'soon' is not an RFC 1123 or ISO 8601 time",))
    assert title(sent) == "[WARNING] Reboot scheduled: vm_0, start unknown"
    assert "- Starts: unknown; Azure's time could not be read" in body(sent).splitlines()


def test_what_azure_leaves_out_is_worded() -> None:
    """Without NotBefore, duration, source and description the message still reads well."""
    sent = message(not_before=None, duration_seconds=None, source="", description="")
    assert title(sent) == "[WARNING] Reboot scheduled: vm_0 at any moment"
    lines = body(sent).splitlines()
    assert "- Starts: at any moment; Azure gives no time" in lines
    assert "- Expected impact: unknown duration" in lines
    assert "- Requested by: unknown" in lines
    assert not any(line.startswith("- Description") for line in lines)


def test_what_takes_the_vm_away_has_no_duration() -> None:
    """A Terminate of unknown duration is not said to interrupt the VM for an unknown duration."""
    assert "impact" not in body(message(type="Terminate", duration_seconds=None))
    assert "Expected impact: about 9 s" in body(message(type="Terminate"))


def test_a_not_before_that_has_passed_is_said_to() -> None:
    """A message that comes after NotBefore does not speak of the future."""
    sent = message(not_before=NOW - timedelta(minutes=5))
    assert title(sent) == "[WARNING] Reboot scheduled: vm_0, due 5 min ago"
    assert "at any moment; was due 2026-03-04 21:55:00 UTC, 5 min ago" in body(sent)


def test_an_event_of_another_day_has_its_date() -> None:
    """A time of day alone would be taken for that of today."""
    found = Renderer(Templates()).render(message(Transition.COMPLETED), NOW + timedelta(days=2))
    assert found.title == "[SUCCESS] Reboot completed: vm_0 at 4 Mar 22:00 UTC"


def test_every_change_is_told() -> None:
    """An updated event says of each field what it was and what it is."""
    changes = (
        Change("not_before", NOT_BEFORE - timedelta(minutes=5), NOT_BEFORE),
        Change("not_before", None, "soon"),
        Change("duration_seconds", None, 9),
        Change("resources", (), ("vm_0", "vm_1")),
        Change("description", "", "a"),
    )
    lines = body(message(Transition.UPDATED, changes=changes)).splitlines()
    assert [line.removeprefix("- Changed: ") for line in lines if "Changed" in line] == [
        "start 2026-03-04 22:10:00 UTC -> 2026-03-04 22:15:00 UTC",
        'start unknown -> "soon"',
        "impact unknown duration -> about 9 s",
        "VMs none -> vm_0, vm_1",
        'description none -> "a"',
    ]


def test_many_vms_are_counted() -> None:
    """After ten names the rest is a number."""
    sent = message(resources=tuple(f"vm_{number}" for number in range(14)))
    names = ", ".join(f"vm_{number}" for number in range(1, 11))
    assert f"- Other VMs: {names} and 3 more" in body(sent).splitlines()


def test_an_event_of_others_says_so() -> None:
    """The message names those that are hit, and says that this VM is not."""
    sent = message(instance="vm_9", target=Target.OTHER, resources=("vm_1", "vm_2", "vm_3"))
    assert title(sent) == "[WARNING] Reboot scheduled: 3 other VMs in 15 min"
    lines = body(sent).splitlines()
    assert lines[0] == f"This VM is not affected. For those that are: {REBOOTS}"
    assert "- Seen by: vm_9" in lines
    assert "- VMs: vm_1, vm_2, vm_3" in lines
    one = message(Transition.CANCELLED, instance="vm_9", target=Target.OTHER, resources=("vm_1",))
    assert title(one) == "[SUCCESS] Reboot cancelled: other VM vm_1 at 22:00 UTC"
    assert body(one).splitlines()[0].endswith("It did not start. This VM was not affected.")


def test_an_unknown_instance_is_worded() -> None:
    """While this VM does not know its name, the message says that, and whom Azure names."""
    sent = message(instance=None)
    assert title(sent) == "[WARNING] Reboot scheduled: this VM (name unknown) in 15 min"
    lines = body(sent).splitlines()
    assert lines[0].endswith("This VM's name is not known yet: the event may be another VM's.")
    assert "- This VM: name not known yet" in lines
    assert "- VMs: vm_0, vm_1" in lines


def test_an_event_without_resources_is_taken_as_ones_own() -> None:
    """Where Azure names no VM, the message says that it may be this one."""
    assert body(message(resources=())).splitlines()[0] == f"{REBOOTS} Azure named no VM; it may be this one."


@pytest.mark.parametrize(
    ("text_format", "start"),
    [("markdown", "{}\n\nown"), ("text", "{}\n\nown"), ("html", "<p>{}</p>\nown")],
)
def test_a_late_message_begins_with_when_it_happened(text_format: TextFormat, start: str) -> None:
    """Whatever the template, what arrives late says so in its first line."""
    renderer = Renderer(Templates(body="own", format=text_format))
    found = renderer.render(message(), NOW + timedelta(minutes=12), late=True)
    words = "This happened at 2026-03-04 22:00:00 UTC, 12 min ago; the message could not be delivered before."
    assert found.body == start.format(words)
    assert found.title == "[WARNING] Reboot scheduled: vm_0 in 3 min"


def test_a_late_html_document_stays_a_document() -> None:
    """Where a template writes a whole HTML document, the line goes into its body."""
    renderer = Renderer(Templates(body="<html><BODY class=x>own</BODY></html>", format="html"))
    found = renderer.render(message(), NOW, late=True).body
    assert found.startswith("<html><BODY class=x><p>This happened at 2026-03-04 22:00:00 UTC, now; ")


@pytest.mark.parametrize("text_format", ["markdown", "html"])
def test_mail_in_plain_text_reads_well(text_format: TextFormat) -> None:
    """Of a mail, Apprise makes a part in plain text, where each code element stands on a line of its own."""
    from apprise.conversion import convert_between

    found = Renderer(Templates(format=text_format), "https://vm_0.example.com/").render(message(), NOW).body
    convert: Any = convert_between
    html = found if text_format == "html" else convert("markdown", "html", found)
    lines = convert("html", "text", html).splitlines()
    assert "- This VM: vm_0" in lines
    assert f"- Event: Reboot {message().event.id}" in lines
    assert "- Exporter: https://vm_0.example.com/" in lines
