"""The store on a disk that is full, read-only, missing or slow to be freed: memory carries on."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from exporter.health import DegradedReason
from exporter.model.lifecycle import Known
from tests.state_support import StateFixture, no_room_for_files, nth_step, on_disk, replay

_RETRY = 10.0


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[StateFixture]:
    """Return a state directory that does not exist yet."""
    fixture = StateFixture(tmp_path / "state")
    yield fixture
    fixture.close()


def _unwritable(fixture: StateFixture, reason: str) -> str:
    return f"cannot write the state in {fixture.directory}: {reason}; continuing in memory"


def test_failing_writes_are_caught_up(fixture: StateFixture) -> None:
    """While writes fail the store works in memory; the disk is retried every 10 s, and catches up."""
    store = fixture.open()
    store.record(nth_step(Known(), 1))
    with no_room_for_files():
        for number in (2, 3, 4):
            store.record(nth_step(replay(number - 1), number))
            fixture.clock.pass_seconds(_RETRY)
        store.retry()
        assert store.load() == replay(4)
        assert fixture.problem(DegradedReason.STATE_UNWRITABLE).startswith(
            f"cannot write the state in {fixture.directory}: disk I/O error (SQLITE_IOERR"
        )
    store.retry()
    assert fixture.problem(DegradedReason.STATE_UNWRITABLE) != ""
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert fixture.health.problems() == ()
    assert on_disk(fixture.directory, "watch")["progress"]["incarnation"] == 4
    assert fixture.open().load() == replay(4)
    assert fixture.aside() == []


def test_full_disk_is_caught_up_by_a_record(fixture: StateFixture) -> None:
    """A file that cannot grow is reported as a full disk; the next record after 10 s writes all of it."""
    store = fixture.open()
    connection = store._journal._disk._connection
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 1")
    known = Known()
    for number in range(1, 30):
        step = nth_step(known, number)
        store.record(step)
        known = step.known
        if fixture.health.problems():
            break
    assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == _unwritable(
        fixture, "database or disk is full (SQLITE_FULL)"
    )
    fixture.clock.pass_seconds(_RETRY)
    step = nth_step(known, number + 1)
    store.record(step)
    assert fixture.health.problems() == ()
    assert fixture.open().load() == step.known


def test_stop_is_the_last_chance_to_catch_up(fixture: StateFixture) -> None:
    """A stop tries the disk once more, without waiting for the 10 s."""
    store = fixture.open()
    with no_room_for_files():
        store.record(nth_step(Known(), 1))
    store.close()
    assert fixture.open().load() == replay(1)


def test_start_on_a_full_disk(fixture: StateFixture) -> None:
    """A new state directory on a full disk does not prevent the start."""
    fixture.directory.mkdir()
    with no_room_for_files():
        store = fixture.open()
        assert store.load() == Known()
        store.record(nth_step(Known(), 1))
        assert fixture.problem(DegradedReason.STATE_UNWRITABLE) != ""
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert fixture.health.problems() == ()
    assert fixture.open().load() == replay(1)


def test_start_on_a_full_disk_after_a_kill(fixture: StateFixture) -> None:
    """What a killed exporter left, the last of it in SQLite's log, is known on a full disk too."""
    store = fixture.open()
    store.record(nth_step(Known(), 1))
    store.record(nth_step(replay(1), 2))
    killed = StateFixture(fixture.directory.with_name("killed"))
    shutil.copytree(fixture.directory, killed.directory)
    assert (killed.directory / "state.db-wal").stat().st_size > 0
    with no_room_for_files():
        store = killed.open()
        assert store.load() == replay(2)
        store.record(nth_step(replay(2), 3))
    killed.clock.pass_seconds(_RETRY)
    store.retry()
    assert killed.health.problems() == ()
    assert killed.open().load() == replay(3)
    killed.close()


def _under_a_file(root: Path) -> Path:
    (root / "file").touch()
    return root / "file" / "state"


def _a_file(root: Path) -> Path:
    (root / "file").touch()
    return root / "file"


def _file_is_a_directory(root: Path) -> Path:
    (root / "state" / "state.db").mkdir(parents=True)
    return root / "state"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_under_a_file, "Not a directory"),
        (_a_file, "Not a directory"),
        (_file_is_a_directory, "Is a directory"),
        (lambda _root: Path("/proc/no/state"), "No such file or directory"),
    ],
    ids=["under a file", "a file", "state.db is a directory", "cannot be made"],
)
def test_impossible_directory(tmp_path: Path, make: Callable[[Path], Path], reason: str) -> None:
    """A directory that cannot be is reported with the system's reason; the store works from memory."""
    fixture = StateFixture(make(tmp_path))
    store = fixture.open()
    assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == _unwritable(fixture, reason)
    store.record(nth_step(Known(), 1))
    store.note_last_success(fixture.clock.now())
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert store.load().current == replay(1).current
    fixture.close()


def test_removed_directory_is_written_anew(fixture: StateFixture) -> None:
    """Where someone removes the directory, the next poll brings back all of it, lock included."""
    store = fixture.open()
    store.record(nth_step(Known(), 1))
    shutil.rmtree(fixture.directory)
    store.retry()
    assert {path.name for path in fixture.directory.iterdir()} >= {"state.db", "state.lock"}
    assert fixture.health.problems() == ()
    assert fixture.open().load() == replay(1)


def test_replaced_file_is_written_anew(fixture: StateFixture) -> None:
    """Where someone puts an old copy in place of the file, the next record makes it new."""
    fixture.remember(1)
    copy = fixture.path.with_name("copy")
    shutil.copy(fixture.path, copy)
    store = fixture.open()
    store.record(nth_step(replay(1), 2))
    copy.replace(fixture.path)
    for name in ("state.db-wal", "state.db-shm"):
        fixture.path.with_name(name).unlink()
    store.record(nth_step(replay(2), 3))
    assert fixture.health.problems() == ()
    assert fixture.open().load() == replay(3)


def test_busy_file_does_not_hold_up_the_poller(fixture: StateFixture) -> None:
    """A file that another process keeps locked is reported like any disk that fails, and caught up with."""
    store = fixture.open()
    with closing(sqlite3.connect(fixture.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store.record(nth_step(Known(), 1))
        assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == _unwritable(
            fixture, "database is locked (SQLITE_BUSY)"
        )
        fixture.clock.pass_seconds(_RETRY)
        store.retry()
        assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == _unwritable(
            fixture, "database is locked (SQLITE_BUSY)"
        )
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert fixture.health.problems() == ()
    assert fixture.open().load() == replay(1)
