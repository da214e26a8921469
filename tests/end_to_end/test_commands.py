import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.program import eventually, exporter, free_port, get


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "exporter", *words], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_second_exporter_on_one_state_directory_refuses_to_start(tmp_path: Path) -> None:
    """Two exporters never share a state directory."""
    port, directory = free_port(), tmp_path / "state"
    with exporter(f"http://127.0.0.1:{free_port()}", directory, port):
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/healthy"))
        second = command("run", "--state.directory", str(directory), "--web.listen-address", "127.0.0.1:0")
    assert second.returncode == 1
    assert str(directory) in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config.file", "missing.yml"], "missing.yml: cannot be read: No such file or directory"),
        (["--web.config.file", "missing.yml"], "missing.yml: cannot be read: No such file or directory"),
        (["--web.listen-address", "nonsense"], "nonsense"),
    ],
)
def test_a_bad_flag_gives_status_2_and_a_line(words: list[str], message: str) -> None:
    """What is wrong on the command line is named, without a traceback."""
    done = command("run", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
