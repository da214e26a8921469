from datetime import timedelta
from typing import Any

import pytest

from exporter.commands import terminal
from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import Life
from exporter.model.views import event_view
from tests.builders import FREEZE_ID, NOT_BEFORE, scheduled, started
from tests.clocks import NOW


def rendered(event: ScheduledEvent, **fields: Any) -> list[str]:
    life = Life(event, (event.event_id,), first_seen=NOW, **fields)
    return terminal.render([event_view(life)], NOW)


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
    "fields",
    [
        {"resources": tuple(f"a-rather-long-name-of-a-vm_{number}" for number in range(100))},
        {"resources": ("x" * 256,), "event_source": "y" * 256},
        {"resources": (), "event_source": "z" * 256},
        {"event_type": "HostMaintenanceWithoutWarning", "event_status": "ScheduledForSomeTimeLater"},
        {"event_type": "Terminate", "not_before": NOW + timedelta(days=700, hours=23)},
    ],
)
def test_it_fits_on_80_columns(fields: dict[str, Any]) -> None:
    """Whatever Azure sends, no line is longer, and the id of an event is whole."""
    rows = rendered(scheduled(**fields))
    assert max(map(len, rows)) <= terminal.WIDTH
    assert rows[1].endswith(f"  {FREEZE_ID}")


def test_many_resources_do_not_widen_the_table() -> None:
    """As many as fit are listed, and the rest is counted; an empty list is stated."""
    names = tuple(f"vm_{number}" for number in range(100))
    whom = rendered(scheduled(resources=names))[2]
    assert whom.startswith("  affects this VM: vm_0, vm_1, vm_2")
    assert whom.endswith(" more; requested by Platform")
    assert rendered(scheduled(resources=("v" * 70,)))[2] == "  affects this VM: 1 VM; requested by Platform"
    assert "Azure names none" in rendered(scheduled(resources=()))[2]
