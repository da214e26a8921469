"""Tests of `exporter.notifications.rendering`: what the messages say, as the program writes them."""

from datetime import timedelta
from typing import Any

import pytest

from exporter.config import Templates
from exporter.model.events import Target
from exporter.model.lifecycle import Change, Transition, TransitionRecord
from exporter.model.messages import Message, TextFormat
from exporter.notifications.rendering import Renderer
from tests.builders import NOT_BEFORE, REBOOT_ID
from tests.clocks import NOW
from tests.notifications.messages import message

LATER = NOT_BEFORE + timedelta(minutes=5)
RESTARTS = "The VM restarts. What is in memory is lost; its disks stay."
WHEN = "When: 2026-03-04 22:15:00 UTC, in 15 minutes, at the earliest"
LASTS = "Lasts: about 9 seconds"
REST = [
    "Asked for by: Azure itself (Platform)",
    "Other VMs: `vm_1`",
    "Azure says: `The host is being repaired.`",
]
GONE = "Gone: 2026-03-04 22:00:00 UTC, now"

CASES: dict[Transition, tuple[str, str, list[str]]] = {
    Transition.ADVISED: ("[WARNING] Reboot advised: vm_0 in 15 minutes", RESTARTS, [WHEN, LASTS]),
    Transition.SCHEDULED: ("[WARNING] Reboot scheduled: vm_0 in 15 minutes", RESTARTS, [WHEN, LASTS]),
    Transition.STARTED: (
        "[CRITICAL] Reboot started: vm_0, about 9 seconds",
        RESTARTS,
        ["Started: 2026-03-04 22:00:00 UTC, now", LASTS],
    ),
    Transition.UPDATED: (
        "[WARNING] Reboot updated: vm_0 now in 15 minutes",
        RESTARTS,
        ["Changed: starts 2026-03-04 22:20:00 UTC -> 2026-03-04 22:15:00 UTC", WHEN, LASTS],
    ),
    Transition.COMPLETED: (
        "[SUCCESS] Reboot completed: vm_0 after 9 min 58 s",
        "Completed: it is over.",
        [
            "Started: 2026-03-04 21:50:02 UTC, 10 minutes ago",
            GONE,
            "Took: 9 min 58 s from started to gone",
        ],
    ),
    Transition.CANCELLED: (
        "[SUCCESS] Reboot cancelled: vm_0",
        "Cancelled: Azure no longer plans it for this VM; it did not start.",
        ["Was due: 2026-03-04 22:15:00 UTC", GONE, "Took: never seen to start; listed for 20 min"],
    ),
    Transition.VANISHED: (
        "[WARNING] Reboot vanished: vm_0, outcome unknown",
        "Vanished: Azure no longer lists it. Its end was not seen; it may have happened.",
        ["Was due: 2026-03-04 22:15:00 UTC", GONE, "Took: never seen to start; listed for 20 min"],
    ),
    Transition.APPROVED: (
        "[INFO] Reboot approved: vm_0 in 15 minutes",
        f"This exporter told Azure to go ahead. {RESTARTS}",
        [WHEN, LASTS],
    ),
}


def of(transition: Transition) -> Message:
    """Return the message of a transition, with a change where that is what it is about."""
    changes = (Change("not_before", LATER, NOT_BEFORE),) if transition is Transition.UPDATED else ()
    return message(transition, changes=changes)


def body(sent: Message, **templates: Any) -> str:
    """Return the body that goes out."""
    return Renderer(Templates(**templates)).render(sent, NOW).body


def title(sent: Message) -> str:
    """Return the title that goes out."""
    return Renderer(Templates()).render(sent, NOW).title


@pytest.mark.parametrize("transition", Transition)
def test_markdown_answers_at_a_glance(transition: Transition) -> None:
    """The default message has severity and transition in its title, and the facts in a list."""
    expected_title, explanation, facts = CASES[transition]
    found = Renderer(Templates()).render(of(transition), NOW)
    lines = ["This VM: `vm_0`", *facts, *REST, f"Event: Reboot `{REBOOT_ID}`"]
    assert found.title == expected_title
    assert found.body == "\n".join([explanation, "", *(f"- {line}" for line in lines)])
    assert (found.format, f"[{found.severity.upper()}]") == ("markdown", expected_title.split()[0])


@pytest.mark.parametrize("transition", Transition)
def test_text_says_the_same_without_markup(transition: Transition) -> None:
    """The text has the words of the Markdown, and none of its signs."""
    found = Renderer(Templates(format="text")).render(of(transition), NOW)
    markdown = body(of(transition))
    assert found.body == markdown.replace("\n- ", "\n").replace("`", "")
    assert (found.title, found.format) == (CASES[transition][0], "text")


@pytest.mark.parametrize("transition", Transition)
def test_html_says_the_same_in_elements(transition: Transition) -> None:
    """The HTML has a paragraph and a list, and is escaped."""
    found = Renderer(Templates(format="html")).render(of(transition), NOW)
    explanation, _, *facts = body(of(transition), format="text").split("\n")
    plain = found.body.replace("<code>", "").replace("</code>", "").replace("-&gt;", "->")
    items = "".join(f"<li>{fact}</li>\n" for fact in facts)
    assert plain == f"<p>{explanation}</p>\n<ul>\n{items}</ul>"
    assert (found.title, found.format) == (CASES[transition][0], "html")


@pytest.mark.parametrize(
    ("event_type", "expected"),
    [
        ("Freeze", "The VM pauses for about 9 seconds; memory, disks and connections survive."),
        ("Redeploy", "The VM restarts on another host. What is in memory and on temporary disks is lost."),
        (
            "Preempt",
            "Azure takes this Spot VM back: it is stopped or deleted, and its temporary disks are lost.",
        ),
        ("Terminate", "The VM is deleted."),
        ("Evacuate", "This exporter does not know this type of event; Azure's documentation will."),
    ],
)
def test_every_type_is_explained(event_type: str, expected: str) -> None:
    """The first line says what the event does to a VM."""
    assert body(message(type=event_type)).splitlines()[0] == expected


def test_what_was_not_watched_is_not_claimed() -> None:
    """Where a start or an end was missed, the message says since when it is known, and not how long."""
    noticed = (TransitionRecord(Transition.STARTED, NOW),)
    sent = message(Transition.STARTED, started=None, transitions=noticed)
    assert "- Started: already under way at 2026-03-04 22:00:00 UTC" in body(sent).splitlines()
    for started in (None, NOW):
        over = message(Transition.COMPLETED, started=started, transitions=noticed, impact_seconds=None)
        assert title(over) == "[SUCCESS] Reboot completed: vm_0"
        assert "- Took: unknown; its start or its end was not observed" in body(over).splitlines()


def test_a_not_before_that_cannot_be_read_is_unknown() -> None:
    """What Azure wrote and nobody can read is not taken for "at any moment"."""
    sent = message(not_before=None, doubts=("NotBefore: 'soon' is not an RFC 1123 or ISO 8601 time",))
    assert title(sent) == "[WARNING] Reboot scheduled: vm_0 at an unknown time"
    assert "- When: unknown; Azure's time could not be read" in body(sent).splitlines()


def test_what_azure_leaves_out_is_worded() -> None:
    """Without NotBefore, duration, source and description the message still reads well."""
    sent = message(not_before=None, duration_seconds=None, source="", description="")
    assert title(sent) == "[WARNING] Reboot scheduled: vm_0 at any moment"
    lines = body(sent).splitlines()
    assert "- When: at any moment; Azure gives no time" in lines
    assert "- Lasts: not known" in lines
    assert "- Asked for by: not said" in lines
    assert not any(line.startswith("- Azure says") for line in lines)


def test_a_not_before_that_has_passed_is_said_to() -> None:
    """A message that comes after NotBefore does not speak of the future."""
    sent = message(not_before=NOW - timedelta(minutes=5))
    assert title(sent) == "[WARNING] Reboot scheduled: vm_0, due 5 minutes ago"
    assert "2026-03-04 21:55:00 UTC, 5 minutes ago, so it may start at any moment" in body(sent)


def test_every_change_is_told() -> None:
    """An updated event says of each field what it was and what it is, also as JSON gives it back."""
    changes = (
        Change("not_before", "2026-03-04T22:10:00Z", NOT_BEFORE),
        Change("not_before", None, "soon"),
        Change("duration_seconds", None, 9),
        Change("resources", [], ["vm_0", "vm_1"]),
        Change("description", "", "a `b`"),
    )
    lines = body(message(Transition.UPDATED, changes=changes)).splitlines()
    assert [line.removeprefix("- Changed: ") for line in lines if "Changed" in line] == [
        "starts 2026-03-04 22:10:00 UTC -> 2026-03-04 22:15:00 UTC",
        "starts unknown -> `soon`",
        "lasts unknown -> 9 seconds",
        "VMs none -> `vm_0`, `vm_1`",
        "text none -> `a 'b'`",
    ]


def test_many_vms_are_counted() -> None:
    """After ten names the rest is a number."""
    sent = message(resources=tuple(f"vm_{number}" for number in range(14)))
    names = ", ".join(f"`vm_{number}`" for number in range(1, 11))
    assert f"- Other VMs: {names} and 3 more" in body(sent).splitlines()


def test_an_event_of_others_says_so() -> None:
    """The message names those that are hit, and says that this VM is not."""
    sent = message(instance="vm_9", target=Target.OTHER, resources=("vm_1", "vm_2", "vm_3"))
    assert title(sent) == "[WARNING] Reboot scheduled for other VMs: vm_1, vm_2 and 1 more in 15 minutes"
    lines = body(sent).splitlines()
    assert lines[0] == f"This VM is not affected; it only saw the event. For those affected: {RESTARTS}"
    assert "- This VM: `vm_9`" in lines
    assert "- VMs: `vm_1`, `vm_2`, `vm_3`" in lines
    one = message(Transition.CANCELLED, instance="vm_9", target=Target.OTHER, resources=("vm_1",))
    assert title(one) == "[SUCCESS] Reboot cancelled for another VM: vm_1"
    assert body(one).splitlines()[0].endswith("it did not start. This VM only saw it.")


def test_an_unknown_instance_is_worded() -> None:
    """While this VM does not know its name, the message says that, and whom Azure names."""
    sent = message(instance=None)
    assert title(sent) == "[WARNING] Reboot scheduled: this VM (name not known yet) in 15 minutes"
    lines = body(sent).splitlines()
    assert lines[0].endswith("This VM's name is not known yet: the event may be another VM's.")
    assert "- This VM: name not known yet" in lines
    assert "- VMs: `vm_0`, `vm_1`" in lines


def test_an_event_without_resources_is_taken_as_ones_own() -> None:
    """Where Azure names no VM, the message says that it may be this one."""
    assert body(message(resources=())).splitlines()[0] == f"{RESTARTS} Azure named no VM; it may be this one."


@pytest.mark.parametrize(
    ("text_format", "start"),
    [("markdown", "{}\n\nown"), ("text", "{}\n\nown"), ("html", "<p>{}</p>\nown")],
)
def test_a_late_message_begins_with_when_it_happened(text_format: TextFormat, start: str) -> None:
    """Whatever the template, what arrives late says so in its first line."""
    renderer = Renderer(Templates(body="own", format=text_format))
    found = renderer.render(message(), NOW + timedelta(minutes=12), late=True)
    words = (
        "This happened at 2026-03-04 22:00:00 UTC, 12 minutes ago; the message could not be delivered before."
    )
    assert found.body == start.format(words)
    assert found.title == "[WARNING] Reboot scheduled: vm_0 in 3 minutes"


def test_a_late_html_document_stays_a_document() -> None:
    """Where a template writes a whole HTML document, the line goes into its body."""
    renderer = Renderer(Templates(body="<html><BODY class=x>own</BODY></html>", format="html"))
    found = renderer.render(message(), NOW, late=True).body
    assert found.startswith("<html><BODY class=x><p>This happened at 2026-03-04 22:00:00 UTC, now; ")
