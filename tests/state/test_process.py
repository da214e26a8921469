"""The state across processes: sudden death, and two exporters on one directory."""

import subprocess
import sys
from pathlib import Path

from tests.end_to_end.program import command, eventually, exporter, free_port, get
from tests.state_support import StateFixture, replay

_ROOT = Path(__file__).parent.parent.parent


def test_kill_at_every_write_loses_nothing(tmp_path: Path) -> None:
    """Killed in the middle of any write, torn ones included, it finds all that was acknowledged."""
    sizes = [0, 1, 24, 32, 8192, *range(1000, 180_000, 6000)]
    worker = [sys.executable, "-m", "tests.state_worker", str(tmp_path), *map(str, sizes)]
    printed = subprocess.check_output(worker, cwd=_ROOT, text=True).splitlines()
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


def test_two_exporters_on_one_state_directory(tmp_path: Path) -> None:
    """The second refuses to start, in one line with directory and pid; one that is killed leaves no lock."""
    port, directory = free_port(), tmp_path / "state"
    with exporter(f"http://127.0.0.1:{free_port()}", directory, port) as first:
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/healthy"))
        second = command("run", "--state.directory", str(directory), "--web.listen-address", "127.0.0.1:0")
    assert second.returncode == 1
    assert f"{directory} is in use by another exporter (pid {first.pid}); use separate" in second.stderr
    assert "Traceback" not in second.stderr
    fixture = StateFixture(directory)
    fixture.open()
    assert fixture.health.problems() == ()
    fixture.close()
