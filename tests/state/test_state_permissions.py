"""The store in a directory that permissions keep it from writing, or even reading."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.health import Trouble
from exporter.model.lifecycle import Known
from tests.state_support import House, alter, nth_step, replay, unprivileged

_RETRY = 10.0


@pytest.fixture
def house() -> Iterator[House]:
    """Return an empty state directory that an unprivileged user can reach."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        house = House(Path(directory) / "state")
        yield house
        house.close()


def _set_mode(house: House, directory: int, files: int) -> None:
    house.directory.chmod(0o755)
    for path in house.directory.iterdir():
        path.chmod(files)
    house.directory.chmod(directory)


def test_read_only_directory_is_still_read(house: House) -> None:
    """What a read-only directory holds is known; what comes is kept in memory until it may be written."""
    house.remember(2)
    _set_mode(house, 0o555, 0o444)
    with unprivileged():
        store = house.open()
        assert house.problem(Trouble.STATE_UNWRITABLE) == (
            f"cannot write the state in {house.directory}: Permission denied; continuing in memory"
        )
        assert store.load() == replay(2)
        store.record(nth_step(replay(2), 3))
        house.clock.advance(_RETRY)
        store.retry()
        assert house.problem(Trouble.STATE_UNWRITABLE) != ""
    _set_mode(house, 0o755, 0o644)
    house.clock.advance(_RETRY)
    store.retry()
    assert house.health.problems() == ()
    assert house.open().load() == replay(3)


def test_read_only_directory_with_a_log_is_still_read(house: House) -> None:
    """After a sudden end the last steps are in SQLite's log; a read-only directory gives them, too."""
    store = house.open()
    store.record(nth_step(Known(), 1))
    store.record(nth_step(replay(1), 2))
    killed = house.directory.with_name("killed")
    shutil.copytree(house.directory, killed)
    assert (killed / "state.db-wal").stat().st_size > 0
    other = House(killed)
    _set_mode(other, 0o555, 0o444)
    with unprivileged():
        assert other.open().load() == replay(2)
        other.close()
    _set_mode(other, 0o755, 0o644)


def test_unreadable_file_is_merged_once_it_can_be_read(house: House) -> None:
    """A file that could not even be read loses none of its rows to what was recorded meanwhile."""
    house.remember(2)
    _set_mode(house, 0o000, 0o000)
    with unprivileged():
        store = house.open()
        assert store.load() == Known()
        step = nth_step(Known(), 7)
        store.record(step)
    _set_mode(house, 0o755, 0o644)
    house.clock.advance(_RETRY)
    store.retry()
    assert house.health.problems() == ()
    loaded = house.open().load()
    assert loaded.current == replay(2).current | step.known.current
    assert (loaded.incarnation, loaded.last_success) == (7, step.known.last_success)


def test_damaged_file_in_a_read_only_directory(house: House) -> None:
    """A bad file that cannot be moved is reported, and moved once it can be."""
    house.directory.mkdir()
    house.path.write_bytes(b"garbage" * 1000)
    _set_mode(house, 0o555, 0o444)
    with unprivileged():
        store = house.open()
        assert store.load() == Known()
        store.record(nth_step(Known(), 1))
        assert house.problem(Trouble.STATE_CORRUPT).endswith("it cannot be moved aside yet")
    _set_mode(house, 0o755, 0o644)
    house.clock.advance(_RETRY)
    store.retry()
    assert house.aside() == ["state.db.corrupt-20261121T013010Z"]
    assert house.problem(Trouble.STATE_UNWRITABLE) == ""
    assert house.open().load() == replay(1)


def test_senseless_rows_in_a_read_only_directory(house: House) -> None:
    """A file of senseless rows is never overwritten, however late it can be moved aside."""
    house.remember(1)
    alter(house.directory, "UPDATE entries SET value = 'x'")
    _set_mode(house, 0o555, 0o444)
    with unprivileged():
        store = house.open()
        assert store.load() == Known()
        store.record(nth_step(Known(), 1))
        assert house.aside() == []
    _set_mode(house, 0o755, 0o644)
    house.clock.advance(_RETRY)
    store.retry()
    assert len(house.aside()) == 1
    assert house.open().load() == replay(1)


def test_directory_taken_meanwhile(house: House) -> None:
    """Where another exporter took the directory before this one could, this one stays in memory."""
    house.directory.mkdir()
    house.directory.chmod(0o555)
    with unprivileged():
        store = house.open()
        store.record(nth_step(Known(), 1))
    house.directory.chmod(0o755)
    other = House(house.directory)
    other.open()
    house.clock.advance(_RETRY)
    store.retry()
    assert "is in use by another exporter (pid " in house.problem(Trouble.STATE_UNWRITABLE)
    other.close()
    house.clock.advance(_RETRY)
    store.retry()
    assert house.health.problems() == ()
    assert house.open().load() == replay(1)
