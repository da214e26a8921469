import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.state import jobs as state_jobs
from exporter.state.jobs import BoundedTable
from exporter.state.journal import Journal
from tests.state_support import StateFixture

_ROOM = 20
_BATCHES = st.lists(st.lists(st.integers(1, _ROOM), max_size=4), max_size=6)


def _newest(entries: dict[int, str], room: int) -> dict[int, str]:
    """Return the newest entries that have room together; one takes the digits of its key and a text."""
    kept: dict[int, str] = {}
    for key, value in reversed(entries.items()):
        room -= len(f'{key}"{value}"')
        if room < 0:
            break
        kept = {key: value, **kept}
    return kept


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_BATCHES)
def test_the_oldest_make_room_for_the_newest(
    fixture: StateFixture, monkeypatch: pytest.MonkeyPatch, batches: list[list[int]]
) -> None:
    """No more is dropped than needed, to the byte, and what is dropped is reported."""
    monkeypatch.setitem(state_jobs.MOST_BYTES, "span", _ROOM)
    journal = Journal(fixture.directory, fixture.health, fixture.clock)
    table = BoundedTable(journal, "span", int, str)
    numbers = iter(range(1, 100))
    expected: dict[int, str] = {}
    for lengths in batches:
        added = {next(numbers): "x" * (length - 3) for length in lengths}
        fitting = _newest(added, _ROOM)
        older = _newest(expected, _ROOM - sum(len(f'{key}"{value}"') for key, value in fitting.items()))
        with journal.transaction() as transaction:
            deleted, left_out = table.add_newest(transaction, [*added.items()], [*table.entries])
        assert deleted == [key for key in expected if key not in older]
        assert left_out == len(added) - len(fitting)
        expected = older | fitting
        assert table.snapshot() == [*expected.items()]
        assert table.size <= _ROOM
