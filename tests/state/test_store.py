"""The store on a disk that does as it should."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from exporter.errors import ImdsError, StateDirectoryInUseError
from exporter.model.advance import advance
from exporter.model.documents import Document, decode_document
from exporter.model.events import Affected
from exporter.model.lifecycle import Step, Transition, WatchState
from exporter.outputs.approval.approvals import Approvals
from tests.builders import scheduled
from tests.lives import Story
from tests.model.histories import history
from tests.state_support import START, StateFixture, alter, life_of, nth_step


@pytest.mark.parametrize("seed", range(12))
def test_any_history_survives_restarts(fixture: StateFixture, seed: int) -> None:
    """After any documents, with restarts in between, exactly what was known is known."""
    store, known = fixture.open(), WatchState()
    for one in [*history(seed), *history(seed + 1000)]:
        fixture.clock.set_wall(one.at)
        with suppress(ImdsError):
            document = decode_document(one.body)
            step = advance(known, document, one.at, instance=one.instance, watching=not one.restart)
            store.record(step)
            store.record_last_success(one.at)
            known = step.state
        if one.restart:
            store = fixture.open()
            assert store.load() == known
    assert fixture.open().load() == known
    assert fixture.health.problems() == ()


def test_words_of_azure_do_not_replace_words_of_the_program(fixture: StateFixture) -> None:
    """After a restart, a transition is one also where a text of the event is the same word."""
    event = scheduled(description="scheduled", resources=("self", "WestNO_0"))
    fixture.open().record(Story().feed(event))
    (life,) = fixture.open().load().current.values()
    assert (type(life.transitions[0].transition), type(life.target)) == (Transition, Affected)


def _files(directory: Path) -> dict[str, tuple[int, int]]:
    return {p.name: (p.stat().st_size, p.stat().st_mtime_ns) for p in directory.iterdir()}


def test_unchanged_document_writes_nothing(fixture: StateFixture) -> None:
    """A poll that brings nothing new touches no file."""
    store = fixture.open()
    known = nth_step(WatchState(), 1).state
    store.record(nth_step(WatchState(), 1))
    # A small transaction is written to the log alone, which does not keep the size of a large one.
    assert _files(fixture.directory)["state.db-wal"][0] > 0
    store.record(Step(known, changed=(life_of("A" * 2**20),)))
    files = _files(fixture.directory)
    assert files["state.db-wal"][0] == 0
    for _ in range(300):
        fixture.clock.pass_seconds(1)
        document = Document(1, tuple(life.event for life in known.current.values()))
        step = advance(known, document, START, instance="vm_0", watching=True)
        assert not step.writes
        store.record(step)
        store.retry()
        known = step.state
    assert _files(fixture.directory) == files


def test_a_new_file(fixture: StateFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shrinks with its content, survives a power failure with its directory, and leaves nothing open."""
    descriptors = Path("/proc/self/fd")
    before = sorted(descriptors.iterdir())
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append((descriptors / str(file)).readlink()))
    assert fixture.open().unknown_until() is None
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


def test_what_is_known_of_approvals_is_bounded(fixture: StateFixture) -> None:
    """However many there are, with ids as long as they may be, the newest are known, in half a MiB."""
    approvals, rest = fixture.open().jobs("approval", Approvals), "\N{GRINNING FACE}" * 253
    assert all(approvals.decide(f"{number}{rest}", "rule") for number in range(1000, 2000))
    known = [key.life_key[:4] for key in approvals.entries]
    assert known == [str(number) for number in range(2000 - len(known), 2000)]
    assert len(known) >= 100
    assert approvals.size <= 2**19


def test_an_approval_that_cannot_be_read_counts(fixture: StateFixture) -> None:
    """For the hourly limit it was decided just now, so that no more are sent than allowed."""
    assert fixture.open().jobs("approval", Approvals).decide("a", "rule")
    fixture.close()
    alter(fixture.directory, "UPDATE entries SET value = '{' WHERE kind = 'approval'")
    approvals = fixture.open().jobs("approval", Approvals)
    fixture.clock.pass_seconds(3599)
    assert approvals.of_last_hour() == {"a"}
    fixture.clock.pass_seconds(1)
    assert approvals.of_last_hour() == set()
