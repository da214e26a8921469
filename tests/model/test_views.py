"""What is shown of the watch: the order of events, and whether polling stands still."""

from datetime import timedelta

from exporter.model.views import urgency
from tests.builders import scheduled, started
from tests.clocks import NOW


def test_started_events_come_first_and_then_the_soonest() -> None:
    """An event without NotBefore comes last, unless it has started."""
    soon, late = (scheduled(not_before=NOW + timedelta(seconds=seconds)) for seconds in (30, 604800))
    ordered = [started(), soon, late, scheduled(not_before=None)]
    assert sorted((ordered[place] for place in (2, 0, 3, 1)), key=urgency) == ordered
