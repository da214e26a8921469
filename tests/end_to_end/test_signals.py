"""Signals to the running program, whichever of its threads the system hands them to."""

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.end_to_end.test_notifications import metric

LOADED = "configuration reloaded"
REFUSED = "reload failed"


def another_thread(process: "subprocess.Popen[bytes]") -> int:
    """Return a thread that is not the main one, the only one that runs Python's handlers of signals."""
    return max(int(folder.name) for folder in Path(f"/proc/{process.pid}/task").iterdir())


def send(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Send a signal to that thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.tgkill(process.pid, another_thread(process), number):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def held_reading(fifo: Path) -> Iterator[TextIO]:
    """Wait until a FIFO is opened for reading, and keep it open until the end of the block."""
    # Opening a FIFO without readers in this mode is an error.
    pipe = eventually(lambda: os.open(fifo, os.O_WRONLY | os.O_NONBLOCK), every=0)
    with os.fdopen(pipe, "w") as stream:
        yield stream


class Start:
    """An exporter that is starting: its first library is imported; ``file`` is its configuration, a FIFO."""

    def __init__(self, process: "subprocess.Popen[bytes]", file: Path, url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self._file = file
        self._log = log

    @contextlib.contextmanager
    def reading_configuration(self, text: str) -> Iterator[None]:
        """Hold the start where it reads the configuration; let it read ``text`` after the block."""
        with held_reading(self._file) as pipe:
            yield
            pipe.write(text)

    def configure(self, text: str) -> None:
        """Put a file in the place of the FIFO."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self._file)

    def logged(self, message: str) -> int:
        """Return how often the log has a message."""
        return self._log.read_text().count(message)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Begin to start an exporter, and kill it at the end of the test."""
    file, log, port = tmp_path / "exporter.yml", tmp_path / "log", free_port()
    os.mkfifo(file)
    environ = {"PYTHONPROFILEIMPORTTIME": "1"}
    with (
        SimulatorServer(Simulator()) as imds,
        exporter(imds.url, tmp_path, port, "--config.file", str(file), environ=environ, log=log) as process,
    ):
        eventually(lambda: re.search(r"\| +click", log.read_text()), every=0)
        yield Start(process, file, f"http://127.0.0.1:{port}", log)


def test_reloads_from_the_very_start(start: Start) -> None:
    """SIGHUPs from the first import on do not kill the process; they are served as soon as possible."""

    def ready() -> str:
        start.process.send_signal(signal.SIGHUP)
        return get(f"{start.url}/-/ready")

    start.process.send_signal(signal.SIGHUP)
    with start.reading_configuration("{}"):
        start.configure("{}")
    eventually(ready, every=0)
    eventually(lambda: start.logged(LOADED))
    start.process.terminate()
    assert start.process.wait(30) == 0


def test_reloads_during_the_start_are_one(start: Start) -> None:
    """However many SIGHUPs come before the exporter can serve them, it reloads once."""
    with start.reading_configuration("{}"):
        start.configure("nonsense: 1")
        for _ in range(20):
            start.process.send_signal(signal.SIGHUP)
    eventually(lambda: metric(start.url, "config_last_reload_successful") == 0)
    start.configure("{}")
    start.process.send_signal(signal.SIGHUP)
    eventually(lambda: start.logged(LOADED))
    start.process.terminate()
    assert start.process.wait(30) == 0
    assert (start.logged(REFUSED), start.logged(LOADED)) == (1, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["while it imports", "while it reads its configuration"])
def test_a_stop_during_the_start(start: Start, number: signal.Signals, moment: str) -> None:
    """It ends with status 0 and without output, as later on."""
    with contextlib.ExitStack() as stack:
        if moment == "while it reads its configuration":
            stack.enter_context(start.reading_configuration(""))
        start.process.send_signal(number)
        assert start.process.wait(30) == 0
    assert start.logged("Traceback") == 0


def test_other_commands_end_with_their_terminal() -> None:
    """SIGHUP kills what runs in a terminal, as it does any program."""
    # Tests that run under nohup ignore it, and so would what they start.
    command = ["env", "--default-signal=HUP", sys.executable, "-m", "exporter"]
    command += ["simulate", "--web.listen-address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"IMDS simulator at ")
            process.send_signal(signal.SIGHUP)
            assert process.wait(30) == -signal.SIGHUP
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_that_another_thread_took(tmp_path: Path, number: signal.Signals) -> None:
    """It ends within 10 s although nothing wakes the main thread."""
    port = free_port()
    with SimulatorServer(Simulator()) as imds, exporter(imds.url, tmp_path, port) as process:
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
        send(process, number)
        assert process.wait(30) == 0


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


def test_a_stop_amid_a_flood_of_reloads(tmp_path: Path) -> None:
    """SIGTERM ends it within 10 s, whatever a reload waits for and however many are queued behind it.

    Requests that wait are answered 503, or cut.
    """
    checks, python, port = tmp_path / "checks", tmp_path / "python", free_port()
    python.write_text(f"#!/bin/sh\necho begun >> {checks}\nexec sleep 600\n")
    python.chmod(0o755)
    flags = ("--notify", "json://127.0.0.1:9", "--web.enable-lifecycle")
    environ, module = {"HELD_PYTHON": str(python)}, "tests.end_to_end.held_check"
    with (
        SimulatorServer(Simulator()) as imds,
        exporter(imds.url, tmp_path / "state", port, *flags, environ=environ, module=module) as process,
        contextlib.ExitStack() as stack,
    ):
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
        process.send_signal(signal.SIGHUP)
        # That of the start, which hangs as well, and that of the reload.
        eventually(lambda: checks.read_text().count("begun") == 2)
        peers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(100)
        ]
        for peer in peers:
            peer.sendall(b"POST /-/reload HTTP/1.1\r\nHost: a\r\n\r\n")
            process.send_signal(signal.SIGHUP)
        # It is accepted after them.
        get(f"http://127.0.0.1:{port}/-/healthy")
        process.terminate()
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGHUP)
        assert process.returncode == 0
        answers = {answer(peer) for peer in peers}
    assert b"HTTP/1.1 503" in answers
    assert answers <= {b"HTTP/1.1 503", b""}


def answer(peer: socket.socket) -> bytes:
    """Return the beginning of an answer; nothing where the connection was cut."""
    try:
        return peer.recv(12)
    except ConnectionError:
        return b""


def test_the_simulator_stops_too() -> None:
    """`simulate` ends although another thread took the signal."""
    command = [sys.executable, "-m", "exporter", "simulate", "--web.listen-address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"IMDS simulator at ")
        eventually(lambda: another_thread(process) != process.pid)
        send(process, signal.SIGTERM)
        assert process.wait(30) == 0
