"""The state across processes: sudden death, and two exporters on one directory."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from exporter.errors import StateDirectoryInUseError
from exporter.model.lifecycle import Known
from tests.state_support import StateFixture, nth_step, replay

_ROOT = Path(__file__).parent.parent.parent


def _worker(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.state_worker", str(directory), *arguments],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _kill_after(directory: Path, steps: int, seconds: float) -> int:
    """Run a worker that records, kill it, and return the last number that it printed, or 0."""
    with _worker(directory) as worker:
        assert worker.stdout is not None
        printed = [worker.stdout.readline() for _ in range(steps)]
        # Not to wait for anything: the moment of death is to fall anywhere within a write.
        threading.Event().wait(seconds)
        worker.kill()
        printed += worker.stdout.readlines()
    numbers = [int(line) for line in printed if line.endswith("\n")]
    return numbers[-1] if numbers else 0


@pytest.mark.parametrize("seed", range(3))
def test_kill_at_any_moment_loses_nothing(tmp_path: Path, seed: int) -> None:
    """After each SIGKILL all acknowledged steps are there, at most one more, and nothing is damaged."""
    dice = random.Random(seed)
    fixture = StateFixture(tmp_path)
    reached = 0
    for _ in range(5):
        steps = dice.choice([0, 1, dice.randrange(2, 40)])
        acknowledged = _kill_after(tmp_path, steps, dice.uniform(0, 0.25 if steps == 0 else 0.01)) or reached
        known = fixture.open().load()
        fixture.close()
        reached = known.incarnation or 0
        assert reached in {acknowledged, acknowledged + 1}
        assert known == replay(reached)
        assert fixture.health.problems() == ()
        assert fixture.aside() == []


def test_kill_at_every_write_loses_nothing(tmp_path: Path) -> None:
    """Killed in the middle of any write, torn ones included, it finds all that was acknowledged."""
    sizes = [0, 1, 24, 32, 4096, *range(1000, 90_000, 1500)]
    with _worker(tmp_path, *map(str, sizes)) as worker:
        assert worker.stdout is not None
        printed = worker.stdout.readlines()
    assert worker.returncode == 0
    acknowledged = dict.fromkeys(sizes, 0) | {int(size): int(n) for size, n in map(str.split, printed)}
    assert len(set(acknowledged.values())) > 3
    for size, number in acknowledged.items():
        fixture = StateFixture(tmp_path / str(size))
        known = fixture.open().load()
        fixture.close()
        assert known.incarnation in {number or None, number + 1}
        assert known == replay(known.incarnation or 0)
        assert fixture.health.problems() == ()
        assert fixture.aside() == []


def test_second_exporter_is_refused(tmp_path: Path) -> None:
    """A second exporter on the same directory does not start; its error has directory and pid."""
    fixture = StateFixture(tmp_path)
    store = fixture.open()
    message = (
        f"{tmp_path} is in use by another exporter (pid {os.getpid()}); give each its own state.directory"
    )
    with pytest.raises(StateDirectoryInUseError) as caught:
        StateFixture(tmp_path).open()
    assert str(caught.value) == message
    store.record(nth_step(Known(), 1))
    fixture.close()
    assert fixture.open().load() == replay(1)
    fixture.close()


def test_killed_exporter_leaves_no_lock(tmp_path: Path) -> None:
    """The directory is free again the moment its exporter is killed."""
    with _worker(tmp_path, "hold") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        with pytest.raises(StateDirectoryInUseError, match=rf"\(pid {worker.pid}\)"):
            StateFixture(tmp_path).open()
        worker.kill()
    fixture = StateFixture(tmp_path)
    assert fixture.open().load() == Known()
    fixture.close()
