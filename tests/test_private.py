import contextlib
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter import files as private
from exporter.errors import ConfigurationError
from exporter.health import DegradedReason
from exporter.model.lifecycle import WatchState
from tests.end_to_end.program import eventually, exporter, free_port
from tests.state_support import StateFixture, nth_step, replay, unprivileged

UMASKS = [0o000, 0o022, 0o077, 0o177, 0o777]


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o7777 for path in folder.rglob("*")}


@pytest.mark.parametrize("mask", UMASKS)
def test_the_state_is_private(open_folder: Path, mask: int) -> None:
    """Directories that are made get 0700, those above included, and every file of the state 0600."""
    fixture = StateFixture(open_folder / "above" / "state")
    with unprivileged():
        with umask(mask):
            store = fixture.open()
            store.record(nth_step(WatchState(), 1))
            assert fixture.problem(DegradedReason.STATE_UNWRITABLE) == ""
            found = modes(open_folder)
        assert {name: mode for name, mode in found.items() if mode == 0o700} == {
            "above": 0o700,
            "above/state": 0o700,
        }
        assert {name for name, mode in found.items() if mode == 0o600} == {
            f"above/state/{name}" for name in ("state.lock", "state.db", "state.db-wal", "state.db-shm")
        }
        assert fixture.open().load() == replay(1)
        fixture.close()


TRAPS: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to(path.parent.parent / "target"),
    "a link to nothing": lambda path: path.symlink_to(path.parent / "nothing"),
    "a FIFO": os.mkfifo,
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
}


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("name", ["state.lock", "state.db", "state.db-wal"])
def test_a_trap_in_the_place_of_a_file_is_refused(tmp_path: Path, name: str, trap: str) -> None:
    """A start neither follows nor waits for it, and leaves alone what a link leads to."""
    fixture, target = StateFixture(tmp_path / "state"), tmp_path / "target"
    target.write_text("precious")
    fixture.directory.mkdir()
    TRAPS[trap](fixture.directory / name)
    path = fixture.directory / name
    with pytest.raises(ConfigurationError, match=f"^{path} is not a regular file; run: rm {path}$"):
        fixture.open()
    assert target.read_text() == "precious"


@pytest.mark.parametrize("name", ["state.lock", "state.db"])
def test_a_trap_that_comes_later_is_not_followed(tmp_path: Path, name: str) -> None:
    """If a file is replaced by anything while the exporter runs, it continues from memory."""
    fixture, target = StateFixture(tmp_path / "state"), tmp_path / "target"
    target.write_text("precious")
    store = fixture.open()
    for path in list(fixture.directory.iterdir()):
        path.unlink()
    (fixture.directory / name).symlink_to(target)
    fixture.clock.pass_seconds(60)
    store.retry()
    store.record(nth_step(WatchState(), 1))
    assert fixture.problem(DegradedReason.STATE_UNWRITABLE)
    assert target.read_text() == "precious"
    fixture.close()


@pytest.mark.parametrize("name", ["", "state.lock", "state.db", "state.db-shm"])
def test_what_others_can_write_is_refused(tmp_path: Path, name: str) -> None:
    """The error at the start has the remedy, which works."""
    fixture = StateFixture(tmp_path / "state")
    fixture.remember(1)
    path = fixture.directory / name
    path.touch()
    path.chmod(path.stat().st_mode | 0o022)
    with pytest.raises(ConfigurationError, match=f"^{path} can be written by other users; run: chmod go-w "):
        fixture.open()
    subprocess.run(["chmod", "go-w", str(path)], check=True)
    assert fixture.open().load() == replay(1)
    fixture.close()


@pytest.mark.parametrize("path", ["/dev/null", "/tmp"])  # noqa: S108  # what is refused
def test_what_belongs_to_the_system_is_refused(path: str) -> None:
    """The remedy is not to remove or to change it."""
    with pytest.raises(ConfigurationError, match=f"^{path} cannot hold the state; choose a directory of"):
        private.refuse_unsafe(Path(path), ())


@pytest.mark.parametrize("name", ["", "state.lock", "state.db", "state.db-wal"])
def test_what_others_own_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whoever made it could have written it; root may own what a container is given."""
    fixture = StateFixture(tmp_path / "state")
    fixture.remember(1)
    path = fixture.directory / name
    path.touch()
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    uid = path.stat().st_uid
    if uid == os.geteuid():
        monkeypatch.setattr("os.geteuid", lambda: uid + 1)
    with pytest.raises(ConfigurationError, match=rf"^{path} belongs to .* \(uid {uid}\); .* chown "):
        fixture.open()


def test_a_group_of_the_exporter_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes are handed to containers by a group, or by root; another group than one's own is refused."""
    private.refuse_unsafe(Path("/usr"), (), user=1)
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(0o3770)
    private.refuse_unsafe(directory, ())
    monkeypatch.setattr("os.getegid", lambda: directory.stat().st_gid + 1)
    monkeypatch.setattr("os.getgroups", list)
    directory.chmod(0o700)
    private.refuse_unsafe(directory, ())
    directory.chmod(0o770)
    with pytest.raises(ConfigurationError):
        private.refuse_unsafe(directory, ())


def test_a_file_of_a_configuration_is_bounded(tmp_path: Path) -> None:
    """What is too long, has no end, or is waited for is refused; a link, as Kubernetes makes it, is not."""
    short, long, fifo, link = (tmp_path / name for name in ("short", "long", "fifo", "link"))
    short.write_text("json://a")
    long.write_text("x" * 65_536)
    assert private.read_text(long) == "x" * 65_536
    long.write_text("x" * 65_537)
    os.mkfifo(fifo)
    link.symlink_to(short)
    assert private.read_text(link) == "json://a"
    descriptors = len([*Path("/proc/self/fd").iterdir()])
    for path, message in ((long, "more than 64 KiB"), (fifo, "regular file"), (Path("/dev/zero"), "regular")):
        with pytest.raises(OSError, match=message):
            private.read_text(path)
    assert len([*Path("/proc/self/fd").iterdir()]) == descriptors


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="limits are read from /proc")
def test_no_core_file_is_written(tmp_path: Path) -> None:
    """The program has none written, whatever the limit of who starts it: its memory contains secrets."""
    prefix = ("sh", "-c", 'ulimit -c unlimited || ulimit -S -c "$(ulimit -H -c)"; exec "$@"', "sh")
    log = tmp_path / "log"
    with exporter("http://127.0.0.1:9", tmp_path, free_port(), log=log, prefix=prefix) as process:
        eventually(lambda: "msg=started" in log.read_text())
        limits = Path(f"/proc/{process.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 ", limits, re.MULTILINE), limits
