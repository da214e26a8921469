"""Signals to the running program, whichever of its threads the system hands them to."""

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, exporter, free_port, get, metric
from tests.end_to_end.vm import Vm

LOADED = "configuration reloaded"
REFUSED = "reload failed"
HELD = "tests.end_to_end.held"


def send(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Send a signal to a thread that is not the main one, which alone runs Python's handlers of signals."""
    threads = [int(folder.name) for folder in Path(f"/proc/{process.pid}/task").iterdir()]
    # The oldest of them, the web server's, stays; a signal that is pending for a thread ends with it.
    oldest = min(thread for thread in threads if thread != process.pid)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.tgkill(process.pid, oldest, number):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def starting(folder: Path) -> Iterator[tuple["subprocess.Popen[bytes]", Path, str]]:
    """Begin to start an exporter; yield it, its log and its URL once its first library is imported."""
    log, port = folder / "log", free_port()
    (folder / "exporter.yml").write_text("{}")
    flags = ("--config.file", str(folder / "exporter.yml"))
    environ = {"PYTHONPROFILEIMPORTTIME": "1", "HELD_FILE": str(folder / "exporter.yml")}
    with (
        SimulatorServer(Simulator()) as imds,
        exporter(imds.url, folder, port, *flags, environ=environ, module=HELD, log=log) as process,
    ):
        eventually(lambda: re.search(r"\| +click", log.read_text()), every=0)
        yield process, log, f"http://127.0.0.1:{port}"


def test_reloads_during_the_start_are_one(tmp_path: Path) -> None:
    """From the first import on SIGHUPs do not kill the exporter; it reloads once, as soon as it can."""
    file = tmp_path / "exporter.yml"
    with starting(tmp_path) as (process, log, url):
        process.send_signal(signal.SIGHUP)
        eventually(file.with_suffix(".yml.reached").exists)
        for _ in range(20):
            process.send_signal(signal.SIGHUP)
        file.with_suffix(".yml.go").touch()
        eventually(lambda: LOADED in log.read_text())
        file.write_text("nonsense: 1")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: metric(url, "config_last_reload_successful") == 0)
        process.terminate()
        assert process.wait(30) == 0
        assert (log.read_text().count(REFUSED), log.read_text().count(LOADED)) == (1, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["while it imports", "while it reads its configuration"])
def test_a_stop_during_the_start(tmp_path: Path, number: signal.Signals, moment: str) -> None:
    """It ends with status 0 and without output, as later on."""
    with starting(tmp_path) as (process, log, _):
        if moment == "while it reads its configuration":
            eventually((tmp_path / "exporter.yml.reached").exists)
        process.send_signal(number)
        assert process.wait(30) == 0
        assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_that_another_thread_took(vm: Vm, number: signal.Signals) -> None:
    """A reload is done, and a stop ends it within 10 s, although nothing wakes the main thread."""
    # The main thread wakes up twice within the watchdog's time, which is otherwise every 5 s.
    with vm.running(WATCHDOG_USEC="1000000") as process:
        if number == signal.SIGTERM:
            vm.configure(nonsense=1)
            send(process, signal.SIGHUP)
            eventually(lambda: metric(vm.url, "config_last_reload_successful") == 0)
        send(process, number)
        assert process.wait(30) == 0


def test_a_stop_amid_a_flood_of_reloads(tmp_path: Path) -> None:
    """SIGTERM ends it within 10 s, whatever a reload waits for and however many are queued behind it.

    It polls and serves during a check of targets that hangs, whose process ends with it. Requests that wait
    are answered 503, or cut.
    """
    checks, python, log, port = *(tmp_path / name for name in ("checks", "python", "log")), free_port()
    python.write_text(f"#!/bin/sh\necho $$ >> {checks}\nexec sleep 600\n")
    python.chmod(0o755)
    flags = ("--notify", "json://127.0.0.1:9", "--web.enable-lifecycle")
    environ = {"HELD_PYTHON": str(python)}
    with (
        SimulatorServer(Simulator()) as imds,
        exporter(
            imds.url, tmp_path / "state", port, *flags, environ=environ, log=log, module=HELD
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
        # The check of the start hangs, and that of the reload waits for it.
        eventually(checks.exists)
        process.send_signal(signal.SIGHUP)
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
            # Without a pause, its threads would hardly run on a busy machine, and nothing be answered.
            time.sleep(0.001)
        assert process.returncode == 0
        answers = {answer(peer) for peer in peers}
    assert b"HTTP/1.1 503" in answers
    assert answers <= {b"HTTP/1.1 503", b""}
    for child in (Path(f"/proc/{pid}/cmdline") for pid in checks.read_text().split()):
        # Killed; it may be left to be reaped by the first process.
        eventually(lambda: not child.exists() or not child.read_bytes())  # noqa: B023  # called at once
    assert "raceback" not in log.read_text()


def answer(peer: socket.socket) -> bytes:
    """Return the beginning of an answer; nothing where the connection was cut."""
    try:
        return peer.recv(12)
    except ConnectionError:
        return b""
