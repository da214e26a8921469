"""Tests of `exporter.commands.table`: events on a terminal."""

from datetime import timedelta
from typing import Any

import pytest

from exporter.commands import table
from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import TrackedEvent
from exporter.model.snapshot import Snapshot
from exporter.model.views import event_view
from tests.builders import FREEZE_ID, NOT_BEFORE, scheduled, started
from tests.clocks import NOW


def rendered(event: ScheduledEvent, **fields: Any) -> list[str]:
    """Render a table of one event."""
    tracked = TrackedEvent(event, (event.event_id,), first_seen=NOW, **fields)
    return table.render([event_view(tracked)], NOW)


def test_a_row() -> None:
    """A row says what, when, how long, who, whom and which."""
    assert rendered(scheduled()) == [
        "TYPE    STATUS     STARTS  LASTS  SOURCE    TARGET  RESOURCES          EVENT ID",
        f"Freeze  Scheduled  in 15m  5s     Platform  self    WestNO_0,WestNO_1  {FREEZE_ID}",
    ]


@pytest.mark.parametrize(
    ("event", "fields", "expected"),
    [
        (scheduled(not_before=NOW), {}, "any moment"),
        (scheduled(not_before=None), {}, "unknown"),
        (started(), {"started": NOW - timedelta(seconds=90)}, "1m30s ago"),
        (scheduled(not_before=NOT_BEFORE + timedelta(days=6)), {}, "in 6d15m"),
    ],
)
def test_when_it_starts(event: ScheduledEvent, fields: dict[str, Any], expected: str) -> None:
    """The time left is in words; what is not known is not guessed."""
    assert expected in rendered(event, **fields)[1]


def test_nothing_that_azure_says_steers_the_terminal() -> None:
    """Escape sequences and line breaks are replaced."""
    rows = rendered(scheduled(event_type="\x1b[2J", resources=("a\nb",), event_id="\u202e"))
    assert len(rows) == 2
    assert all(row.isprintable() for row in rows)


def test_many_resources_do_not_widen_the_table() -> None:
    """Three are named and the rest is counted; none at all is a dash."""
    names = tuple(f"vm_{number}" for number in range(100))
    assert "  vm_0,vm_1,vm_2 and 97 more  " in rendered(scheduled(resources=names))[1]
    assert "  vm_0,vm_1,vm_2  " in rendered(scheduled(resources=names[:3]))[1]
    assert f"  -          {FREEZE_ID}" in rendered(scheduled(resources=()))[1]


def test_the_summary_says_whether_the_watch_works() -> None:
    """It names the VM, where it asks, and why it gets no answer."""
    snapshot = Snapshot(endpoint="http://imds", instance="vm_0", up=True, incarnation=3)
    assert table.summary(snapshot, NOW) == "vm_0: http://imds answers; incarnation 3; 2026-03-04T22:00:00Z"
    snapshot = Snapshot(endpoint="http://imds", last_error="refused")
    assert table.summary(snapshot, NOW).startswith("an unnamed VM: http://imds does not answer: refused;")
