from datetime import timedelta
from typing import Any

import pytest

from exporter.commands import terminal
from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import Life
from exporter.model.views import EventView, event_view
from tests.builders import FREEZE_ID, NOT_BEFORE, scheduled, started
from tests.clocks import NOW

ROW = "Freeze  Scheduled  in 15m  5s     "
BY_Z = f"; requested by {'z' * 26}..."
WIDE = {"event_type": "HostMaintenanceWithoutWarning", "event_status": "ScheduledForSomeTimeLater"}
FAR = {"event_type": "Terminated", "not_before": NOW + timedelta(days=700, hours=23)}
BOTH = "this VM: WestNO_0, WestNO_1; requested by Platform"


def view(event: ScheduledEvent, **fields: Any) -> EventView:
    return event_view(Life(event, (event.event_id,), first_seen=NOW, **fields))


def rendered(event: ScheduledEvent, width: int = 80, **fields: Any) -> list[str]:
    return terminal.render([view(event, **fields)], NOW, width=width)


def test_a_row() -> None:
    """A row has type, time, duration and id; the line below has the affected VMs and the source."""
    assert rendered(scheduled()) == [
        "TYPE    STATUS     STARTS  LASTS  EVENT ID",
        f"Freeze  Scheduled  in 15m  5s     {FREEZE_ID}",
        "  affects this VM: WestNO_0, WestNO_1; requested by Platform",
    ]


@pytest.mark.parametrize(
    ("event", "fields", "expected"),
    [
        (scheduled(not_before=NOW), {}, "any moment"),
        (scheduled(not_before=None), {}, "unknown"),
        (started(), {}, "under way"),
        (scheduled(not_before=NOW + timedelta(seconds=1)), {}, "in 1s "),
        (scheduled(duration_seconds=None), {}, "in 15m  unknown  "),
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


@pytest.mark.parametrize(
    ("fields", "row", "whom"),
    [
        ({"resources": ["v" * 40] * 100}, ROW, "this VM: 100 VMs; requested by Platform"),
        (
            {"resources": ["x" * 99], "event_source": "y" * 99},
            ROW,
            f"this VM: 1 VM; requested by {'y' * 39}...",
        ),
        ({"resources": (), "event_source": "z" * 99}, ROW, f"this VM (Azure names none){BY_Z}"),
        (WIDE, "HostMa...  ScheduledForS...  in 15m  5s     ", BOTH),
        (FAR, "Terminated  Scheduled  in 700d23h  5s     ", BOTH),
    ],
)
def test_it_fits_on_80_columns(fields: dict[str, Any], row: str, whom: str) -> None:
    """Whatever Azure sends, no line is longer, and the id of an event is whole."""
    rows = rendered(scheduled(**fields), width=10)
    assert max(map(len, rows)) <= terminal.WIDTH
    assert rows[1:] == [row + FREEZE_ID, f"  affects {whom}"]


def test_many_resources_do_not_widen_the_table() -> None:
    """As many as fit are listed, and the rest is counted; an empty list is stated."""
    names = tuple(f"vm_{number}" for number in range(99))
    whom = rendered(scheduled(resources=names))[2]
    assert whom == "  affects this VM: vm_0, vm_1, vm_2, vm_3 and 95 more; requested by Platform"
    fits, wide = (rendered(scheduled(resources=("v" * length,)))[2] for length in (38, 39))
    assert fits == f"  affects this VM: {'v' * 38}; requested by Platform"
    assert wide == "  affects this VM: 1 VM; requested by Platform"
    assert rendered(scheduled(resources=names), width=79 + len(whom))[2].count("vm_") > 2 * whom.count("vm_")


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
    text = terminal.coloured([view(event)], NOW)
    assert [span.style for span in text.spans] == ["bold", style]
    assert text.plain.split("\n") == rendered(event)
