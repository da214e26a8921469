import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.model.jobs import Job, JobKey
from exporter.model.lifecycle import Life, Step, WatchState, weight
from exporter.state.facts import Facts
from exporter.state.jobs import Jobs, Parts, Record
from exporter.state.journal import Journal, Table
from tests.state_support import StateFixture, on_disk

_ROOM = 400
_BATCHES = st.lists(st.lists(st.integers(3, _ROOM), max_size=4), max_size=6)


def _weights(entries: dict[JobKey, Record]) -> dict[JobKey, int]:
    encode = msgspec.json.encode
    return {key: weight(encode(key)) + weight(encode(record)) for key, record in entries.items()}


def _newest(entries: dict[JobKey, Record], room: int) -> dict[JobKey, Record]:
    """Return the newest entries that have room together."""
    kept: dict[JobKey, Record] = {}
    for key, size in reversed(_weights(entries).items()):
        room -= size
        if room < 0:
            break
        kept = {key: entries[key], **kept}
    return kept


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_BATCHES)
def test_the_oldest_make_room_for_the_newest(
    fixture: StateFixture, monkeypatch: pytest.MonkeyPatch, batches: list[list[int]]
) -> None:
    """No more is dropped than needed, to the byte, and what is dropped is reported."""
    monkeypatch.setattr(Jobs, "most_bytes", _ROOM)
    journal = Journal(fixture.directory, fixture.health, fixture.clock)
    lives = Table(journal, "event", str, Life)
    jobs = Jobs("output", Parts(journal, lives, Facts(journal, fixture.clock), fixture.clock))
    numbers = iter(range(1, 100))
    expected: dict[JobKey, Record] = {}
    for lengths in batches:
        texts = {JobKey("lane", "life", next(numbers)): "x" * (length - 2) for length in lengths}
        added = {key: Record(msgspec.Raw(msgspec.json.encode(text))) for key, text in texts.items()}
        fitting = _newest(added, _ROOM)
        older = _newest(expected, _ROOM - sum(_weights(fitting).values()))
        with journal.transaction() as transaction:
            assert jobs.put(transaction, [*added.items()]) is (fitting == added)
        lost = len(expected) - len(older) + len(added) - len(fitting)
        assert jobs.take_dropped() == ({"lane": lost} if lost else {})
        expected = older | fitting
        assert jobs.snapshot() == [*expected.items()]
        assert jobs.size <= _ROOM


def test_jobs_of_an_output_that_is_gone(fixture: StateFixture) -> None:
    """They make no file unusable, and those that wait are still there, until the outputs are known."""
    job = Job("gone", JobKey("lane", "life", 1), msgspec.Raw(b"{}"))
    fixture.open().record(Step(WatchState(), new_incarnation=True), [job])
    store = fixture.open()
    assert store.jobs("gone", Jobs).counts() == {"lane": 1}
    store.drop_jobs(but=["gone"])
    assert len(on_disk(fixture.directory, "gone")) == 1
    store.drop_jobs(but=["other"])
    assert on_disk(fixture.directory, "gone") == {}
    assert fixture.health.problems() == ()
