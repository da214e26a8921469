"""What is shown of the watch: the order of events, and whether polling stands still."""

from datetime import datetime, timedelta

import pytest

from exporter.model.views import Snapshot, urgency
from tests.builders import scheduled, started
from tests.clocks import NOW


def test_started_events_come_first_and_then_the_soonest() -> None:
    """An event without NotBefore comes last, unless it has started."""
    soon, late = (scheduled(not_before=NOW + timedelta(seconds=seconds)) for seconds in (30, 604800))
    ordered = [started(), soon, late, scheduled(not_before=None)]
    assert sorted((ordered[place] for place in (2, 0, 3, 1)), key=urgency) == ordered


@pytest.mark.parametrize(
    ("up", "success", "ago", "expected"),
    [(True, NOW, 65, False), (True, NOW, 75, True), (True, None, 75, False), (False, NOW, 75, False)],
)
def test_polling_stands_still(up: bool, success: datetime | None, ago: int, expected: bool) -> None:
    """It does where no poll has ended for a minute and two intervals, although the last one succeeded."""
    snapshot = Snapshot(up=up, last_success=success, poll_interval=5.0)
    assert snapshot.stands_still(NOW + timedelta(seconds=ago)) is expected
