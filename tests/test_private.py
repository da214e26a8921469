"""Tests of `exporter.files`, and of the state's files: nobody else may read them, whatever the umask."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter import files as private
from exporter.health import Trouble
from exporter.model.lifecycle import Known
from tests.state_support import House, nth_step, replay, unprivileged

UMASKS = [0o000, 0o022, 0o077, 0o177, 0o777]


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the umask of this process."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a directory in which an unprivileged user may write."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


def modes(folder: Path) -> dict[str, int]:
    """Return the permission bits of all below a folder."""
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o7777 for path in folder.rglob("*")}


@pytest.mark.parametrize("mask", UMASKS)
def test_the_state_is_private(folder: Path, mask: int) -> None:
    """Directories that are made get 0700, those above included, and every file of the state 0600."""
    house = House(folder / "above" / "state")
    with unprivileged():
        with umask(mask):
            store = house.open()
            store.record(nth_step(Known(), 1))
            assert house.problem(Trouble.STATE_UNWRITABLE) == ""
            found = modes(folder)
        assert {name: mode for name, mode in found.items() if mode == 0o700} == {
            "above": 0o700,
            "above/state": 0o700,
        }
        assert {name for name, mode in found.items() if mode == 0o600} == {
            f"above/state/{name}" for name in ("state.lock", "state.db", "state.db-wal", "state.db-shm")
        }
        assert house.open().load() == replay(1)
        house.close()


def test_what_was_moved_aside_stays_private(folder: Path) -> None:
    """A damaged file keeps its mode under its new name, and the new file is as private as the first."""
    house = House(folder / "state")
    with umask(0):
        house.open()
        house.close()
        house.path.write_bytes(b"garbage" * 1000)
        house.open()
        house.close()
    assert len(house.aside()) == 1
    assert set(modes(folder / "state").values()) == {0o600}


def test_what_is_there_stays_as_it_is(folder: Path) -> None:
    """Modes that an administrator has chosen are not changed."""
    directory, file = folder / "given", folder / "given" / "file"
    directory.mkdir()
    file.touch()
    directory.chmod(0o750)
    file.chmod(0o640)
    private.make_directory(directory)
    os.close(private.open_file(file))
    assert modes(folder) == {"given": 0o750, "given/file": 0o640}


def test_a_file_in_the_place_of_a_directory(folder: Path) -> None:
    """The system's own reason is raised."""
    (folder / "file").touch()
    with pytest.raises(NotADirectoryError):
        private.make_directory(folder / "file" / "state")
