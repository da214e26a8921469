"""The store on a disk that is full, read-only, missing or slow to be freed: memory carries on."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from exporter.health import DegradedReason
from exporter.model.lifecycle import Step, WatchState
from tests.state_support import StateFixture, life_of, nth_step, on_disk, replay, unprivileged

_RETRY = 10.0


def _unwritable(fixture: StateFixture, reason: str) -> str:
    remedy = "free disk space, or correct the permissions"
    return f"cannot write the state in {fixture.directory}: {reason}; continuing in memory: {remedy}"


@pytest.mark.parametrize(
    ("directory", "reason"),
    [
        ("file/state", "Not a directory"),
        ("file", "Not a directory"),
        ("state", "Is a directory"),
        ("/proc/no/state", "No such file or directory"),
    ],
)
def test_impossible_directory(tmp_path: Path, directory: str, reason: str) -> None:
    """A directory that cannot be is reported with the system's reason; the store works from memory."""
    (tmp_path / "file").touch()
    (tmp_path / "state" / "state.db").mkdir(parents=True)
    fixture = StateFixture(tmp_path / directory)
    store = fixture.open()
    assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == _unwritable(fixture, reason)
    store.record(nth_step(WatchState(), 1))
    store.record_last_success(fixture.clock.now())
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert store.load().current == replay(1).current
    fixture.close()


def test_busy_file_does_not_hold_up_the_poller(fixture: StateFixture) -> None:
    """A file that another process keeps locked is reported like any disk that fails, and caught up with."""
    store, locked = fixture.open(), _unwritable(fixture, "database is locked (SQLITE_BUSY)")
    with closing(sqlite3.connect(fixture.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store.record(nth_step(WatchState(), 1))
        assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == locked
        fixture.clock.pass_seconds(_RETRY)
        store.retry()
        assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == locked
    store.record(nth_step(replay(1), 2))
    assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == locked
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert fixture.health.problems() == ()
    assert fixture.open().load() == replay(2)


def _set_mode(fixture: StateFixture, directory: int, files: int) -> None:
    fixture.directory.chmod(0o755)
    for path in fixture.directory.iterdir():
        path.chmod(files)
    fixture.directory.chmod(directory)


def test_read_only_directory_is_still_read(fixture: StateFixture) -> None:
    """What a read-only directory holds is known; what comes is kept in memory until it may be written."""
    fixture.remember(2)
    _set_mode(fixture, 0o555, 0o444)
    with unprivileged():
        store = fixture.open()
        assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == _unwritable(fixture, "Permission denied")
        assert store.load() == replay(2)
        store.record(nth_step(replay(2), 3))
        fixture.clock.pass_seconds(_RETRY)
        store.retry()
        assert fixture.problem(DegradedReason.STATE_UNWRITABLE) != ""
    _set_mode(fixture, 0o755, 0o644)
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert fixture.health.problems() == ()
    assert fixture.open().load() == replay(3)


def test_unreadable_file_is_merged_once_it_can_be_read(fixture: StateFixture) -> None:
    """A file that could not even be read loses none of its rows to what was recorded meanwhile."""
    fixture.remember(2)
    _set_mode(fixture, 0o000, 0o000)
    with unprivileged():
        store = fixture.open()
        assert store.load() == WatchState()
        step = nth_step(WatchState(), 7)
        store.record(step)
    _set_mode(fixture, 0o755, 0o644)
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert fixture.health.problems() == ()
    loaded = fixture.open().load()
    assert loaded.current == replay(2).current | step.state.current
    assert (loaded.incarnation, loaded.last_success) == (7, step.state.last_success)


def test_directory_that_was_renamed(fixture: StateFixture, caplog: pytest.LogCaptureFixture) -> None:
    """The state is written again at its path, and the former directory is free for another exporter."""
    fixture.remember(1)
    store = fixture.open()
    renamed = StateFixture(fixture.directory.rename(fixture.directory.with_name("renamed")))
    store.retry()
    assert "state file was removed or replaced" in caplog.text
    assert renamed.open().load() == replay(1)
    renamed.close()
    assert fixture.open().load() == replay(1)


def test_directory_taken_meanwhile(fixture: StateFixture) -> None:
    """Where another exporter took the directory before this one could, this one stays in memory."""
    fixture.directory.mkdir()
    fixture.directory.chmod(0o555)
    with unprivileged():
        store = fixture.open()
        store.record(nth_step(WatchState(), 1))
    fixture.directory.chmod(0o755)
    other = StateFixture(fixture.directory)
    other.open()
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert "is in use by another exporter (pid " in fixture.problem(DegradedReason.STATE_UNWRITABLE)
    other.close()
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert fixture.health.problems() == ()
    assert fixture.open().load() == replay(1)


def test_a_full_file_keeps_what_it_has(fixture: StateFixture) -> None:
    """At the limit of its pages it is below 16 MiB with its log; what memory has is written once it fits."""
    store = fixture.open()
    store.record(nth_step(WatchState(), 1))
    full = _unwritable(fixture, "database or disk is full (SQLITE_FULL)")
    large = tuple(life_of(f"{number}".ljust(2**18, "x")) for number in range(40))
    store.record(Step(WatchState(), changed=large))
    assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == full
    assert sum(path.stat().st_size for path in fixture.directory.iterdir()) < 16 * 2**20
    assert len(store.load().current) == 45
    assert len(on_disk(fixture.directory, "event")) == 5
    store.record(Step(WatchState(), changed=(life_of("small"),), forgotten=tuple(one.key for one in large)))
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert fixture.health.problems() == ()
    assert fixture.open().load().current.keys() == {*replay(1).current, "small"}


def test_a_file_that_grows_leaves_room_for_its_log(fixture: StateFixture) -> None:
    """It is full at half of 16 MiB: while a transaction changes every page, the log has each once more."""
    store = fixture.open()
    for number in range(40):
        store.record(Step(WatchState(), changed=(life_of(f"{number}".ljust(2**18, "x")),)))
    full = _unwritable(fixture, "database or disk is full (SQLITE_FULL)")
    assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == full
    assert fixture.path.stat().st_size < 8 * 2**20
