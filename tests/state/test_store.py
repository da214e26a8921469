"""The store on a disk that does as it should."""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model.advance import advance
from exporter.model.documents import Document
from exporter.model.events import SCHEDULED, STARTED, ScheduledEvent
from exporter.model.lifecycle import HISTORY, Known
from tests.state_support import START, StateFixture, nth_step, on_disk, replay


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[StateFixture]:
    """Return a state directory that does not exist yet."""
    fixture = StateFixture(tmp_path / "deep" / "state")
    yield fixture
    fixture.close()


def test_new_directory_holds_nothing(fixture: StateFixture) -> None:
    """A missing directory is made, for its owner alone, and nothing is known in it."""
    assert fixture.open().load() == Known()
    assert fixture.directory.stat().st_mode & 0o777 == 0o700
    assert fixture.path.stat().st_mode & 0o777 == 0o600
    assert fixture.health.problems() == ()


def test_known_survives_a_restart(fixture: StateFixture) -> None:
    """What was recorded is there after a restart, in the order in which it came."""
    store = fixture.open()
    for number in range(1, 6):
        store.record(nth_step(replay(number - 1), number))
    loaded = fixture.open().load()
    assert loaded == replay(5)
    assert list(loaded.current) == list(replay(5).current)
    assert list(loaded.past) == list(replay(5).past)
    assert all(tracked.ended is None for tracked in loaded.current.values())
    assert all(tracked.ended is not None for tracked in loaded.past.values())


_IDS = ("A", "b", "c\x00é", "D")
_EVENTS = st.builds(
    ScheduledEvent,
    event_id=st.sampled_from(_IDS),
    event_type=st.sampled_from(["Freeze", "Reboot", "Neu"]),
    event_status=st.sampled_from([SCHEDULED, STARTED, "Odd"]),
    resources=st.lists(st.text(max_size=4), max_size=2).map(tuple),
    not_before=st.none() | st.datetimes().map(lambda at: at.replace(tzinfo=START.tzinfo)),
    duration_seconds=st.none() | st.integers(0, 4_000_000_000),
    description=st.text(max_size=8),
)
_DOCUMENTS = st.builds(
    Document,
    incarnation=st.integers(0, 5) | st.integers(0, 2**80),
    events=st.lists(_EVENTS, max_size=4, unique_by=lambda event: event.key).map(tuple),
)
_MOVES = st.tuples(st.timedeltas(timedelta(0), timedelta(days=60)), _DOCUMENTS, st.booleans())


@settings(max_examples=60)
@given(st.lists(_MOVES, max_size=8))
def test_any_history_survives_restarts(moves: list[tuple[timedelta, Document, bool]]) -> None:
    """After any documents, with restarts in between, exactly what was known is known."""
    with TemporaryDirectory() as directory:
        fixture = StateFixture(Path(directory))
        store = fixture.open()
        known = Known()
        for passed, document, restart in moves:
            fixture.clock.pass_seconds(passed.total_seconds())
            step = advance(known, document, fixture.clock.now(), instance="vm_0", watching=not restart)
            store.record(step)
            known = step.known
            if restart:
                store.note_last_success(fixture.clock.now())
                store = fixture.open()
                assert store.load() == known
        store.note_last_success(fixture.clock.now())
        loaded = fixture.open().load()
        assert loaded == msgspec.structs.replace(known, last_success=fixture.clock.now())
        fixture.close()
        assert fixture.health.problems() == ()


def _files(directory: Path) -> dict[str, tuple[int, int]]:
    return {p.name: (p.stat().st_size, p.stat().st_mtime_ns) for p in directory.iterdir()}


def _bytes_written() -> str:
    """Return the kernel's count of what this process had written to disks; constant where it keeps none."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        return ""
    return next(line for line in counters.read_text().splitlines() if line.startswith("write_bytes"))


def test_unchanged_document_writes_nothing(fixture: StateFixture) -> None:
    """A poll that brings nothing new touches no file."""
    store = fixture.open()
    known = nth_step(Known(), 1).known
    store.record(nth_step(Known(), 1))
    files, written = _files(fixture.directory), _bytes_written()
    for _ in range(300):
        fixture.clock.pass_seconds(1)
        step = advance(
            known,
            Document(1, tuple(t.event for t in known.current.values())),
            START,
            instance="vm_0",
            watching=True,
        )
        assert not step.writes
        store.record(step)
        store.retry()
        known = step.known
    assert (_files(fixture.directory), _bytes_written()) == (files, written)


def test_new_incarnation_alone_is_remembered(fixture: StateFixture) -> None:
    """A document with the same events and a new number leaves the number for the next start."""
    store = fixture.open()
    for incarnation in (1, 2):
        store.record(
            advance(Known(incarnation=1), Document(incarnation), START, instance="vm_0", watching=True)
        )
    assert fixture.open().load() == Known(incarnation=2, last_success=START)


def test_last_success_is_noted_at_a_clean_stop(fixture: StateFixture) -> None:
    """The time of the last valid document outlives a clean stop, though the document changed nothing."""
    later = datetime.fromisoformat("2026-11-21T09:00:00.000001+00:00")
    store = fixture.open()
    store.record(nth_step(Known(), 1))
    store.note_last_success(later)
    files = _files(fixture.directory)
    store.note_last_success(later)
    assert _files(fixture.directory) == files
    loaded = fixture.open().load()
    assert loaded == msgspec.structs.replace(replay(1), last_success=later)


def test_last_success_without_any_record(fixture: StateFixture) -> None:
    """A stop may note the time even where no document was ever recorded."""
    fixture.open().note_last_success(START)
    assert fixture.open().load() == Known(last_success=START)


def test_history_is_kept_for_ninety_days(fixture: StateFixture) -> None:
    """What ended over 90 days ago is not loaded, and its row goes with the next write."""
    store = fixture.open()
    for number in (1, 2, 3):
        store.record(nth_step(replay(number - 1), number))
    ended = {tracked.ended for tracked in replay(3).past.values()}
    assert ended == {START + timedelta(microseconds=3)}
    fixture.clock.pass_seconds(HISTORY.total_seconds())
    store = fixture.open()
    assert len(store.load().past) == 5
    fixture.clock.pass_seconds(1)
    store = fixture.open()
    known = store.load()
    assert known.past == {}
    assert len(known.current) == 10
    store.record(advance(known, Document(4), fixture.clock.now(), instance="vm_0", watching=False))
    assert len(on_disk(fixture.directory, "event")) == 10


def test_forgotten_events_are_deleted(fixture: StateFixture) -> None:
    """An event that the life cycle forgets leaves no row behind."""
    store = fixture.open()
    known = Known()
    for number in (1, 2, 3):
        step = nth_step(known, number)
        store.record(step)
        known = step.known
    assert known.past
    forgotten = tuple(known.past)
    step = msgspec.structs.replace(nth_step(known, 4), changed=(), forgotten=forgotten)
    store.record(step)
    assert store.load().past == {}


def test_reading_does_not_wait_for_the_disk(fixture: StateFixture) -> None:
    """While a transaction is written, other threads read what was there before it."""
    store = fixture.open()
    store.approvals.decide("a", "A", "rule", START)
    with store._journal.transaction():
        # This thread holds what a writer holds while it waits for the disk.
        assert [approval.key for approval in store.approvals.known()] == ["a"]
        assert store.outbox.counts() == {}
        assert store.outbox.waiting("oncall", 1) == []
        assert store.hook_jobs.counts() == {}
        assert store.load() == Known()


def test_threads_share_the_store(fixture: StateFixture) -> None:
    """Several threads may write and read at once; each write takes effect whole."""
    store = fixture.open()
    store.record(nth_step(Known(), 1))

    def work(offset: int) -> None:
        for number in range(25):
            store.note_last_success(START + timedelta(seconds=100 * offset + number))
            assert len(store.load().current) == 5

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last_success = store.load().last_success
    assert last_success in {START + timedelta(seconds=100 * offset + 24) for offset in range(4)}
    assert fixture.open().load().last_success == last_success
