"""The state across processes: sudden death, and two exporters on one directory."""

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.errors import StateDirectoryInUseError
from exporter.model.lifecycle import Known
from tests.end_to_end.program import command, eventually, exporter, free_port, get
from tests.state_support import StateFixture, replay

_ROOT = Path(__file__).parent.parent.parent


def _worker(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.state_worker", str(directory), *arguments],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_kill_at_every_write_loses_nothing(tmp_path: Path) -> None:
    """Killed in the middle of any write, torn ones included, it finds all that was acknowledged."""
    sizes = [0, 1, 24, 32, 8192, *range(1000, 180_000, 3000)]
    with _worker(tmp_path, *map(str, sizes)) as worker:
        assert worker.stdout is not None
        printed = worker.stdout.readlines()
    assert worker.returncode == 0
    acknowledged = dict.fromkeys(sizes, 0) | {int(size): int(n) for size, n in map(str.split, printed)}
    assert len(set(acknowledged.values())) > 3
    for size, number in acknowledged.items():
        fixture = StateFixture(tmp_path / str(size))
        # Killed before anything was written: an empty file cannot be told from a damaged one.
        empty = fixture.path.exists() and not fixture.path.stat().st_size
        known = fixture.open().load()
        fixture.close()
        assert known.incarnation in {number or None, number + 1}
        assert known == replay(known.incarnation or 0)
        assert bool(fixture.health.problems()) == empty
        assert bool(fixture.aside()) == empty


def test_killed_exporter_leaves_no_lock(tmp_path: Path) -> None:
    """The directory is free again the moment its exporter is killed."""
    with _worker(tmp_path, "hold") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        with pytest.raises(StateDirectoryInUseError) as caught:
            StateFixture(tmp_path).open()
        assert str(caught.value) == (
            f"{tmp_path} is in use by another exporter (pid {worker.pid}); use separate state directories"
        )
        worker.kill()
    fixture = StateFixture(tmp_path)
    assert fixture.open().load() == Known()
    fixture.close()


def test_a_second_exporter_on_one_state_directory_refuses_to_start(tmp_path: Path) -> None:
    """Two exporters never share a state directory."""
    port, directory = free_port(), tmp_path / "state"
    with exporter(f"http://127.0.0.1:{free_port()}", directory, port):
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/healthy"))
        second = command("run", "--state.directory", str(directory), "--web.listen-address", "127.0.0.1:0")
    assert second.returncode == 1
    assert str(directory) in second.stderr
    assert "Traceback" not in second.stderr
