"""Signals to the running program, whichever of its threads the system hands them to."""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.end_to_end.test_notifications import metric


def another_thread(process: "subprocess.Popen[bytes]") -> int:
    """Give a thread that is not the main one, the only one that runs Python's handlers of signals."""
    return max(int(folder.name) for folder in Path(f"/proc/{process.pid}/task").iterdir())


def send(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Let that thread take a signal."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.tgkill(process.pid, another_thread(process), number):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_that_another_thread_took(tmp_path: Path, number: signal.Signals) -> None:
    """It ends within 10 s although nothing wakes the main thread."""
    port = free_port()
    with SimulatorServer(Simulator()) as imds, exporter(imds.url, tmp_path, port) as process:
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
        send(process, number)
        assert process.wait(10) == 0


def test_a_reload_that_another_thread_took(tmp_path: Path) -> None:
    """It is done all the same."""
    file, port = tmp_path / "exporter.yml", free_port()
    file.write_text("{}")
    flags = ("--config.file", str(file))
    with SimulatorServer(Simulator()) as imds, exporter(imds.url, tmp_path, port, *flags) as process:
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
        file.write_text("nonsense: 1")
        send(process, signal.SIGHUP)
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: metric(url, "config_last_reload_successful") == 0)


def test_the_simulator_stops_too() -> None:
    """`simulate` ends although another thread took the signal."""
    command = [sys.executable, "-m", "exporter", "simulate", "--web.listen-address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"IMDS simulator at ")
        eventually(lambda: another_thread(process) != process.pid)
        send(process, signal.SIGTERM)
        assert process.wait(10) == 0
