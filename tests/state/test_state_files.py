"""State files that are not what they should be: foreign, damaged, older, newer."""

import random
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from exporter.health import Trouble
from exporter.model.lifecycle import Known
from exporter.state import disk
from exporter.state.disk import APPLICATION_ID, Row
from tests.state_support import House, alter, nth_step, on_disk, replay

_ASIDE = "state.db.corrupt-20261121T013000Z"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """Return an empty state directory."""
    house = House(tmp_path)
    yield house
    house.close()


def _assert_begun_anew(house: House, reason: str, aside: str = _ASIDE) -> None:
    store = house.open()
    assert store.load() == Known()
    assert aside in house.aside()
    assert house.problem(Trouble.STATE_CORRUPT) == (
        f"{house.path} cannot be used: {reason}; it was moved to {aside}, and a new one begun"
    )
    assert house.problem(Trouble.STATE_UNWRITABLE) == ""
    store.record(nth_step(Known(), 1))
    assert house.open().load() == replay(1)


def test_garbage_is_moved_aside(house: House) -> None:
    """A file that is not a SQLite file is kept under another name, with its content, and a new one begun."""
    house.path.write_bytes(b"no database at all" * 500)
    _assert_begun_anew(house, "it is not a SQLite file")
    assert (house.directory / _ASIDE).read_bytes() == b"no database at all" * 500


def test_name_aside_is_never_reused(house: House) -> None:
    """A second bad file within the second gets a name of its own; companions go with their file."""
    (house.directory / _ASIDE).write_text("the first")
    house.path.write_bytes(b"garbage" * 500)
    house.path.with_name("state.db-wal").write_bytes(b"log")
    house.open()
    assert house.aside() == [_ASIDE, f"{_ASIDE}.1", f"{_ASIDE}.1-wal"]
    assert (house.directory / _ASIDE).read_text() == "the first"


def test_foreign_database_is_moved_aside(house: House) -> None:
    """Another program's SQLite file is left as it was, under another name."""
    alter(house.directory, "CREATE TABLE theirs (a)")
    alter(house.directory, "PRAGMA application_id = 7")
    before = house.path.read_bytes()
    _assert_begun_anew(house, "it belongs to another program")
    assert (house.directory / _ASIDE).read_bytes() == before


def test_newer_version_is_moved_aside(house: House) -> None:
    """A newer version's file is kept for it, and named so."""
    house.remember(3)
    alter(house.directory, "PRAGMA user_version = 99")
    reason = "a newer exporter wrote it (version 99, this one knows 1)"
    _assert_begun_anew(house, reason, "state.db.newer-20261121T013000Z")


def test_former_layout_is_moved_aside(house: House) -> None:
    """A file in the layout of development versions is kept, and the message says why it is not read."""
    alter(house.directory, "CREATE TABLE events (a)")
    alter(house.directory, "PRAGMA application_id = 0x617A7365")
    _assert_begun_anew(house, "it has the layout of an earlier, unreleased version of the exporter")


def test_damaged_pages_are_found_at_the_start(house: House) -> None:
    """Damage in the middle of the file is found when it is opened, not when the row is needed."""
    house.remember(3)
    content = bytearray(house.path.read_bytes())
    content[4096:8192] = b"\xa5" * 4096
    house.path.write_bytes(content)
    store = house.open()
    assert store.load() == Known()
    assert house.aside() == [_ASIDE]
    assert "it is damaged: " in house.problem(Trouble.STATE_CORRUPT)


def test_truncated_file_is_moved_aside(house: House) -> None:
    """A file that lost its end is not trusted."""
    house.remember(3)
    house.path.write_bytes(house.path.read_bytes()[:5000])
    assert house.open().load() == Known()
    assert house.aside() == [_ASIDE]


def test_missing_table_is_damage(house: House) -> None:
    """A file of ours without one of its tables is not trusted."""
    house.remember(3)
    alter(house.directory, "DROP TABLE entries")
    _assert_begun_anew(house, "it is damaged: no such table: entries")


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
def test_senseless_rows_are_damage(house: House, change: str) -> None:
    """Rows that can no longer be understood put the whole file aside."""
    house.remember(3)
    alter(house.directory, change)
    store = house.open()
    assert store.load() == Known()
    assert house.aside() == [_ASIDE]
    assert "its content makes no sense: " in house.problem(Trouble.STATE_CORRUPT)
    store.record(nth_step(Known(), 1))
    assert house.open().load() == replay(1)


def test_damage_during_the_run_costs_nothing(house: House) -> None:
    """Damage met while writing puts the file aside; what is known goes into the new one."""
    house.remember(3)
    store = house.open()
    connection = store._journal._disk._connection
    assert connection is not None
    connection.execute("PRAGMA shrink_memory")
    size = house.path.stat().st_size
    with house.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    store.record(nth_step(replay(3), 4))
    assert "it is damaged: database disk image is malformed" in house.problem(Trouble.STATE_CORRUPT)
    assert len([name for name in house.aside() if not name.endswith(("-wal", "-shm"))]) == 1
    assert store.load() == replay(4)
    assert house.open().load() == replay(4)


def test_alien_change_during_the_run_costs_nothing(house: House) -> None:
    """A table dropped behind the exporter's back is noticed at the next write, and nothing is lost."""
    house.remember(3)
    store = house.open()
    alter(house.directory, "DROP TABLE entries")
    store.record(nth_step(replay(3), 4))
    assert "no such table: entries" in house.problem(Trouble.STATE_CORRUPT)
    assert house.open().load() == replay(4)


def test_empty_file_is_a_new_one(house: House) -> None:
    """A file of no bytes, as a crash at the very first start leaves it, is no cause for complaint."""
    house.path.touch()
    assert house.open().load() == Known()
    assert house.health.problems() == ()


def test_upgrades_keep_what_is_known(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of an older version is read step by step, and written anew in the newest one."""
    house.remember(3)

    def rename(rows: Iterable[Row]) -> Iterable[Row]:
        return ((kind.replace("old-", ""), key, value) for kind, key, value in rows)

    def add(rows: Iterable[Row]) -> Iterable[Row]:
        yield from rows
        yield "watch", b'"second"', b"{}"

    alter(house.directory, "UPDATE entries SET kind = 'old-' || kind")
    monkeypatch.setattr(disk, "UPGRADES", (rename, add))
    assert house.open().load() == replay(3)
    house.close()
    assert set(on_disk(house.directory, "watch")) == {"progress", "second"}
    with closing(sqlite3.connect(house.path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert house.open().load() == replay(3)
    assert house.health.problems() == ()


@pytest.mark.parametrize("seed", range(60))
def test_any_damage_is_survived(house: House, seed: int) -> None:
    """Whatever bytes of the file change, the store opens; it knows all, or begins anew and says so."""
    dice = random.Random(seed)
    house.remember(4)
    content = bytearray(house.path.read_bytes())
    for _ in range(dice.choice((1, 4, 64))):
        content[dice.randrange(len(content))] = dice.randrange(256)
    house.path.write_bytes(content)
    store = house.open()
    assert house.problem(Trouble.STATE_UNWRITABLE) == ""
    known = store.load()
    assert known == Known() or not house.aside()
    step = nth_step(known, 9)
    store.record(step)
    assert house.open().load() == step.known
