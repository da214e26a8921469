"""The store in a directory that permissions keep it from writing, or even reading."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.health import DegradedReason
from exporter.model.lifecycle import Known
from tests.state_support import StateFixture, nth_step, replay, unprivileged

_RETRY = 10.0


@pytest.fixture
def fixture() -> Iterator[StateFixture]:
    """Return an empty state directory that an unprivileged user can reach."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        fixture = StateFixture(Path(directory) / "state")
        yield fixture
        fixture.close()


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
        assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == (
            f"cannot write the state in {fixture.directory}: Permission denied; continuing in memory"
        )
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
        assert store.load() == Known()
        step = nth_step(Known(), 7)
        store.record(step)
    _set_mode(fixture, 0o755, 0o644)
    fixture.clock.pass_seconds(_RETRY)
    store.retry()
    assert fixture.health.problems() == ()
    loaded = fixture.open().load()
    assert loaded.current == replay(2).current | step.known.current
    assert (loaded.incarnation, loaded.last_success) == (7, step.known.last_success)


def test_directory_taken_meanwhile(fixture: StateFixture) -> None:
    """Where another exporter took the directory before this one could, this one stays in memory."""
    fixture.directory.mkdir()
    fixture.directory.chmod(0o555)
    with unprivileged():
        store = fixture.open()
        store.record(nth_step(Known(), 1))
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
