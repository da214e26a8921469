from datetime import timedelta
from typing import Any

import pytest

from exporter.commands import terminal
from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import Life
from exporter.model.views import EventView, event_view
from tests.builders import FREEZE_ID, NOT_BEFORE, scheduled, started
from tests.clocks import NOW


def view(event: ScheduledEvent, **fields: Any) -> EventView:
    return event_view(Life(event, (event.event_id,), first_seen=NOW, **fields))


def rendered(event: ScheduledEvent, **fields: Any) -> list[str]:
    return terminal.table([view(event, **fields)], NOW).plain.split("\n")


def test_a_row() -> None:
    """A row has id, status, time, duration and type; the line below has the affected VMs and the source."""
    assert rendered(scheduled()) == [
        "EVENT ID                              STATUS     STARTS      LASTS    TYPE",
        f"{FREEZE_ID}  Scheduled  in 15m      5s       Freeze",
        "  affects this VM: WestNO_0, WestNO_1; requested by Platform",
    ]


@pytest.mark.parametrize(
    ("event", "fields", "expected"),
    [
        (scheduled(not_before=NOW), {}, "any moment"),
        (scheduled(not_before=None), {}, "unknown"),
        (started(), {}, "under way"),
        (scheduled(not_before=NOW + timedelta(seconds=1)), {}, "in 1s "),
        (scheduled(duration_seconds=None), {}, "in 15m      unknown  "),
        (started(), {"started": NOW - timedelta(seconds=90)}, "1m30s ago"),
        (scheduled(not_before=NOT_BEFORE + timedelta(days=6)), {}, "in 6d15m"),
        (scheduled(not_before=NOT_BEFORE + timedelta(days=6, seconds=9)), {}, "in 6d15m "),
    ],
)
def test_when_it_starts(event: ScheduledEvent, fields: dict[str, Any], expected: str) -> None:
    """The time left is in words; what is not known is not guessed."""
    assert expected in rendered(event, **fields)[1]


def test_nothing_that_azure_says_steers_the_terminal() -> None:
    """Escape sequences and line breaks are replaced."""
    rows = rendered(scheduled(event_type="\x1b[2J", resources=("a\nb",), event_id="\u202e"))
    assert len(rows) == 3
    assert all(row.isprintable() for row in rows)


def test_nothing_is_cut() -> None:
    """An id, a type or a name of any length is whole, and on one line."""
    fields = {name: name * 40 for name in ("event_id", "event_status", "event_type", "event_source")}
    row, whom = rendered(scheduled(**fields, resources=("v" * 99,)))[1:]
    assert row == f"{'event_id' * 40}  {'event_status' * 40}  in 15m      5s       {'event_type' * 40}"
    assert whom == f"  affects this VM: {'v' * 99}; requested by {'event_source' * 40}"


def test_many_resources() -> None:
    """The first ten are listed, and the rest is counted; an empty list is stated."""
    names = [f"vm_{number}" for number in range(99)]
    assert rendered(scheduled(resources=names))[2] == (
        f"  affects this VM: {', '.join(names[:10])} and 89 more; requested by Platform"
    )
    assert rendered(scheduled(resources=()))[2] == (
        "  affects this VM (Azure names none); requested by Platform"
    )


@pytest.mark.parametrize(
    ("event", "style"),
    [
        (scheduled(), "cyan"),
        (scheduled(event_type="Preempt"), "bold red"),
        (started(event_type="Reboot"), "bold red"),
        (scheduled(event_type="Reboot", event_status="Advisory"), "yellow"),
    ],
)
def test_colours(event: ScheduledEvent, style: str) -> None:
    """The head is bold, and a row has the colour of its severity."""
    text = terminal.table([view(event)], NOW)
    assert [span.style for span in text.spans] == ["bold", style]
