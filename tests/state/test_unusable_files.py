"""State files that are not what they should be: foreign, damaged, of another version."""

import random
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.health import DegradedReason
from exporter.model.lifecycle import WatchState
from tests.state_support import START, StateFixture, alter, no_room_for_files, nth_step, replay

_ASIDE = "state.db.corrupt-20261121T013000Z"


def _assert_begun_anew(fixture: StateFixture, reason: str, aside: str = _ASIDE) -> None:
    store = fixture.open()
    assert store.load() == WatchState()
    assert store.unknown_until() == START + timedelta(hours=1)
    assert aside in fixture.aside()
    assert fixture.problem(DegradedReason.STATE_CORRUPT) == (
        f"{fixture.path} cannot be used: {reason}; it was moved to {aside}, and a new one was created; "
        "rules approve nothing until 2026-11-21T02:30:00Z"
    )
    assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == ""
    store.record(nth_step(WatchState(), 1))
    assert fixture.open().load() == replay(1)


@pytest.mark.parametrize(
    ("content", "reason"), [(b"no database" * 500, "it is not a SQLite file"), (b"", "it is empty")]
)
def test_garbage_is_moved_aside(fixture: StateFixture, content: bytes, reason: str) -> None:
    """What is not a SQLite file is kept under another name with its log, and a new one begun."""
    fixture.directory.mkdir(parents=True)
    for suffix in ("", ".1", ".2"):
        fixture.close()
        for companion in ("", "-wal"):
            Path(f"{fixture.path}{companion}").write_bytes(content)
        _assert_begun_anew(fixture, reason, _ASIDE + suffix)
        for companion in ("", "-wal"):
            assert (fixture.directory / f"{_ASIDE}{suffix}{companion}").read_bytes() == content


def test_the_file_of_another_program_is_moved_aside(fixture: StateFixture) -> None:
    """A SQLite file without the exporter's mark in its header is kept, and not written to."""
    fixture.remember(3)
    assert fixture.path.read_bytes()[68:72] == b"azsj"
    alter(fixture.directory, "PRAGMA application_id = 1")
    _assert_begun_anew(fixture, "it belongs to another program")


@pytest.mark.parametrize("version", [0, 99])
def test_another_version_is_moved_aside(fixture: StateFixture, version: int) -> None:
    """The file of an exporter with another version of the state is kept for it."""
    fixture.remember(3)
    alter(fixture.directory, f"PRAGMA user_version = {version}")
    _assert_begun_anew(fixture, f"it is of version {version}, and this exporter reads version 1")


def test_a_loss_is_known_for_an_hour(fixture: StateFixture) -> None:
    """It is, across restarts, and no longer; also where the clock is set back."""
    fixture.remember(3)
    alter(fixture.directory, "PRAGMA user_version = 99")
    for seconds in (0, 1800, 1799):
        fixture.clock.pass_seconds(seconds)
        store = fixture.open()
        assert store.unknown_until() == START + timedelta(hours=1)
    store.retry()
    assert fixture.problem(DegradedReason.STATE_CORRUPT) == (
        f"a state file was moved to {fixture.directory}/state.db.corrupt-20261121T013000Z; "
        "rules approve nothing until 2026-11-21T02:30:00Z"
    )
    fixture.clock.pass_seconds(10)
    store.retry()
    assert fixture.health.problems() == ()
    assert fixture.open().unknown_until() is None
    fixture.clock.set_wall(START - timedelta(hours=9))
    assert fixture.open().unknown_until() == START - timedelta(hours=8)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET value = '{' WHERE kind = 'event'",
        "UPDATE entries SET value = '{}' WHERE kind = 'event'",
        "UPDATE entries SET value = x'ff' WHERE kind = 'event'",
        "UPDATE entries SET value = 7 WHERE kind = 'event'",
        "UPDATE entries SET key = '\"other\"' WHERE position = 1",
        "UPDATE entries SET key = '' WHERE position = 1",
        "UPDATE entries SET kind = 'evening'",
        "UPDATE entries SET kind = x'ff'",
        "UPDATE entries SET value = '{\"incarnation\": \"many\"}' WHERE kind = 'watch'",
        "UPDATE entries SET value = '{\"last_success\": \"2026-11-21T09:00:00\"}' WHERE kind = 'watch'",
    ],
)
def test_senseless_rows_are_damage(fixture: StateFixture, change: str) -> None:
    """Rows that can no longer be understood put the whole file aside."""
    fixture.remember(3)
    alter(fixture.directory, change)
    store = fixture.open()
    assert store.load() == WatchState()
    assert fixture.aside() == [_ASIDE]
    assert "its content makes no sense: " in fixture.problem(DegradedReason.STATE_CORRUPT)
    store.record(nth_step(WatchState(), 1))
    assert fixture.open().load() == replay(1)


def test_damage_during_the_run_costs_nothing(fixture: StateFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage met while writing puts the file aside; what is known goes into the new one."""
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*args: Any, **options: Any) -> sqlite3.Connection:
        connections.append(connect(*args, **options))
        return connections[-1]

    fixture.remember(3)
    monkeypatch.setattr(sqlite3, "connect", noted)
    store = fixture.open()
    connections[-1].execute("PRAGMA shrink_memory")
    size = fixture.path.stat().st_size
    with fixture.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    store.record(nth_step(replay(3), 4))
    assert "it is damaged: database disk image is malformed" in fixture.problem(DegradedReason.STATE_CORRUPT)
    assert len([name for name in fixture.aside() if not name.endswith(("-wal", "-shm"))]) == 1
    assert store.load() == replay(4)
    assert fixture.open().load() == replay(4)


def test_a_full_disk_leaves_no_empty_file(fixture: StateFixture) -> None:
    """Nor is one moved aside later: the exporter creates the file again when there is room."""
    fixture.directory.mkdir()
    with no_room_for_files():
        store = fixture.open()
        assert not fixture.path.exists()
    fixture.clock.pass_seconds(60)
    store.record(nth_step(WatchState(), 1))
    assert fixture.health.problems() == ()
    assert fixture.open().load() == replay(1)
    assert fixture.aside() == []


@pytest.mark.parametrize("seed", range(60))
def test_any_damage_is_survived(fixture: StateFixture, seed: int) -> None:
    """With any bytes of the file changed, the store opens, with all its data, or empty with a problem."""
    dice = random.Random(seed)
    fixture.remember(4)
    content = bytearray(fixture.path.read_bytes())
    for _ in range(dice.choice((1, 4, 64))):
        content[dice.randrange(len(content))] = dice.randrange(256)
    fixture.path.write_bytes(content)
    store = fixture.open()
    assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == ""
    known = store.load()
    assert known == WatchState() or not fixture.aside()
    step = nth_step(known, 9)
    store.record(step)
    assert fixture.open().load() == step.state
