"""State files that are not what they should be: foreign, damaged, older, newer."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from exporter.health import Trouble
from exporter.lifecycle import Known
from exporter.state import Store
from exporter.state.schema import APPLICATION_ID, MIGRATIONS
from tests.state_support import House, nth_step, replay

_ASIDE = "state.db.corrupt-20261121T013000Z"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """Give an empty state directory."""
    house = House(tmp_path)
    yield house
    house.close()


def _alter(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


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
    """A file that is no SQLite file is kept under another name, with its content, and a new one begun."""
    house.path.write_bytes(b"no database at all" * 500)
    _assert_begun_anew(house, "it is no SQLite file")
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
    _alter(house.path, "CREATE TABLE theirs (a)", "PRAGMA application_id = 7")
    before = house.path.read_bytes()
    _assert_begun_anew(house, "it belongs to another program")
    assert (house.directory / _ASIDE).read_bytes() == before


def test_newer_version_is_moved_aside(house: House) -> None:
    """A newer version's file is kept for it, and named so."""
    house.remember(3)
    _alter(house.path, "PRAGMA user_version = 99")
    reason = f"a newer version of the exporter wrote it (schema 99, this one knows {len(MIGRATIONS)})"
    _assert_begun_anew(house, reason, "state.db.newer-20261121T013000Z")


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
    _alter(house.path, "DROP TABLE watch")
    _assert_begun_anew(house, "it is damaged: column id of table watch is missing")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET tracked = '{'",
        "UPDATE events SET tracked = '{}'",
        "UPDATE events SET tracked = x'ff'",
        "UPDATE events SET key = key || 'x'",
        "UPDATE watch SET incarnation = 'many'",
        "UPDATE watch SET last_success = 'noon'",
    ],
)
def test_senseless_rows_are_damage(house: House, change: str) -> None:
    """Rows that can no longer be understood put the whole file aside."""
    house.remember(3)
    _alter(house.path, change)
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
    connection = store._database._disk._connection
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
    _alter(house.path, "DROP TABLE events")
    store.record(nth_step(replay(3), 4))
    assert "no such table: events" in house.problem(Trouble.STATE_CORRUPT)
    assert house.open().load() == replay(4)


def test_empty_file_is_a_new_one(house: House) -> None:
    """A file of no bytes, as a crash at the very first start leaves it, is no cause for complaint."""
    house.path.touch()
    assert house.open().load() == Known()
    assert house.health.problems() == ()


def test_migration_keeps_what_is_known(house: House) -> None:
    """An older file is brought to the newest version step by step, and keeps its rows."""
    house.remember(3)
    newer = (
        *MIGRATIONS,
        "ALTER TABLE events ADD COLUMN note TEXT; UPDATE events SET note = key",
        """
        CREATE TABLE notes (event TEXT PRIMARY KEY, body TEXT NOT NULL);
        INSERT INTO notes SELECT key, note FROM events
        """,
    )
    store = Store.open(house.directory, health=house.health, clock=house.clock, migrations=newer)
    assert store.load() == replay(3)
    store.close()
    with closing(sqlite3.connect(house.path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(newer),)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("SELECT count(*) FROM notes WHERE event = body").fetchone() == (15,)
    assert house.health.problems() == ()


def test_failed_migration_leaves_the_old_file(house: House) -> None:
    """A file that cannot be migrated is put aside as it was, old version and all."""
    house.remember(3)
    newer = (*MIGRATIONS, "CREATE TABLE fresh (a); INSERT INTO fresh SELECT nothing FROM nowhere")
    with pytest.raises(sqlite3.OperationalError):
        Store.open(house.directory, health=house.health, clock=house.clock, migrations=newer)
    working = (*MIGRATIONS, "CREATE UNIQUE INDEX one ON events (substr(tracked, 1, 1))")
    store = Store.open(house.directory, health=house.health, clock=house.clock, migrations=working)
    assert store.load() == Known()
    store.close()
    with closing(sqlite3.connect(house.directory / _ASIDE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (15,)
