"""The store on a disk that does as it should."""

import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.errors import StateDirectoryInUseError
from exporter.model.advance import advance
from exporter.model.documents import Document
from exporter.model.events import SCHEDULED, STARTED, ScheduledEvent
from exporter.model.lifecycle import HISTORY, Known
from tests.state_support import START, StateFixture, life_of, nth_step, on_disk

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


@settings(max_examples=30)
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


def test_a_past_event_is_kept_as_long_as_it_is_known(fixture: StateFixture) -> None:
    """It is kept for exactly 90 days, across restarts, and then deleted from the file."""
    events = (ScheduledEvent("a", "Freeze", SCHEDULED), ScheduledEvent("b", "Freeze", SCHEDULED))
    store, known = fixture.open(), Known()
    later = (timedelta(0), timedelta(0), HISTORY, HISTORY + timedelta(seconds=1))
    for number, (after, listed) in enumerate(zip(later, (events, (), events[:1], ()), strict=True)):
        if after:
            fixture.clock.pass_seconds((START + after - fixture.clock.now()).total_seconds())
            store = fixture.open()
            known = store.load()
        step = advance(known, Document(number, listed), START + after, instance="vm_0", watching=True)
        store.record(step)
        known = step.known
        assert ("b" in on_disk(fixture.directory, "event")) is (after <= HISTORY)


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
    # A small transaction is written to the log alone.
    assert files["state.db-wal"][0] > 0
    for _ in range(300):
        fixture.clock.pass_seconds(1)
        document = Document(1, tuple(life.event for life in known.current.values()))
        step = advance(known, document, START, instance="vm_0", watching=True)
        assert not step.writes
        store.record(step)
        store.retry()
        known = step.known
    assert (_files(fixture.directory), _bytes_written()) == (files, written)


def test_reading_does_not_wait_for_the_disk(fixture: StateFixture) -> None:
    """While a transaction is written, other threads read what was there before it."""
    store = fixture.open()
    store.approvals.decide([(life_of("A"), "rule")], START)
    with store._journal.transaction():
        # This thread holds what a writer holds while it waits for the disk.
        assert [approval.key for approval in store.approvals.known()] == ["a"]
        assert store.outbox.counts() == {}
        assert store.outbox.first("oncall", 1) == []
        assert store.hook_jobs.counts() == {}
        assert store.load() == Known()


def test_a_new_file(fixture: StateFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shrinks with its content, survives a power failure with its directory, and leaves nothing open."""
    descriptors = Path("/proc/self/fd")
    before = sorted(descriptors.iterdir())
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append((descriptors / str(file)).readlink()))
    fixture.open()
    assert flushed == [fixture.directory]
    with pytest.raises(StateDirectoryInUseError, match=rf"/state is in use by .* \(pid {os.getpid()}\); use"):
        StateFixture(fixture.directory).open()
    fixture.close()
    assert sorted(descriptors.iterdir()) == before
    assert sorted(path.name for path in fixture.directory.iterdir()) == ["state.db", "state.lock"]
    with closing(sqlite3.connect(fixture.path)) as connection:
        pragmas = ("page_size", "auto_vacuum", "journal_mode")
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas]
    assert found == [8192, 1, "wal"]
