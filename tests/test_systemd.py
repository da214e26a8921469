"""Messages on the service manager's socket, from the parts and from the program."""

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.health import DegradedReason, Problem
from exporter.model.lifecycle import Life
from exporter.model.views import Snapshot
from exporter.simulator import Simulator, SimulatorServer
from exporter.systemd import Systemd, status
from tests.builders import scheduled
from tests.clocks import NOW
from tests.end_to_end.program import eventually, exporter, free_port, get


@contextlib.contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + address[1:] if address.startswith("@") else address)
        listener.settimeout(30)
        yield listener


def heard(listener: socket.socket) -> list[str]:
    return listener.recv(4096).decode().split("\n")


def wait_for(listener: socket.socket, *wanted: str) -> None:
    """Wait until a field matches each of the patterns; fields in between may be anything."""
    missing = set(wanted)
    deadline = time.monotonic() + 60
    while missing and time.monotonic() < deadline:
        fields = heard(listener)
        missing -= {pattern for pattern in missing for field in fields if re.fullmatch(pattern, field)}
    assert not missing


def test_a_watchdog_of_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the status is sent, every 5 s; a manager that is gone, or does not read, delays nothing."""
    for environ in ({}, {"NOTIFY_SOCKET": "/nonexistent/notify"}):
        Systemd(environ).ready()
    monkeypatch.setattr("exporter.systemd._SEND_SECONDS", 0.0)
    with manager(str(tmp_path / "notify")) as listener:
        variables = {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
        systemd = Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify"), **variables})
        assert systemd.interval == 5
        for number in range(600):
            systemd.alive(str(number))
        assert heard(listener) == ["STATUS=0"]


def test_the_status_line() -> None:
    """It names VM and endpoint, how many events there are, and what is wrong; whatever it is, on one line."""
    begun = Snapshot(endpoint="http://169.254.169.254")
    unnamed = "Watching a VM whose name is not known yet at http://169.254.169.254"
    assert status(begun, ()) == f"{unnamed}: no answer yet"
    down = Snapshot(endpoint="http://a", instance="web_3", last_error="timed\nout")
    assert status(down, ()) == "Watching web_3 at http://a: no answer: timed out"
    lives = tuple(Life(event, (event.event_id,), NOW) for event in (scheduled(), scheduled(event_id="b")))
    problem = Problem(DegradedReason.RELOAD_FAILED, "no such key", NOW)
    for number, listed in enumerate(("no events", "1 event", "2 events")):
        up = Snapshot(endpoint="http://a", instance="web_3", up=True, current=lives[:number])
        expected = f"Watching web_3 at http://a: {listed} listed; reload failed: no such key"
        assert status(up, (problem,)) == expected


def test_the_program(tmp_path: Path) -> None:
    """It is ready once it serves, alive while it waits for Azure, and reports reloads and its end.

    The socket may be in the abstract name space.
    """
    address, file, port = f"@azse-test-{os.getpid()}", tmp_path / "exporter.yml", free_port()
    file.write_text("")
    # Azure's first answer takes longer than this test.
    imds = SimulatorServer(Simulator([], first_call_delay=120.0))
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}
    flags = ("--config.file", str(file))
    with (
        manager(address) as listener,
        imds as server,
        exporter(server.url, tmp_path, port, *flags, environ=environ) as process,
    ):
        assert heard(listener) == ["READY=1"]
        get(f"http://127.0.0.1:{port}/-/healthy")
        assert heard(listener)[0] == "WATCHDOG=1"
        assert heard(listener)[0] == "WATCHDOG=1"
        file.write_text("imds: {poll_intervall: 1}\n")
        process.send_signal(signal.SIGHUP)
        reload = ("RELOADING=1", r"MONOTONIC_USEC=\d+", "READY=1")
        wait_for(listener, *reload, "STATUS=.*reload failed: .*poll_intervall: unknown key.*")
        file.write_text("")
        process.send_signal(signal.SIGHUP)
        wait_for(listener, *reload, "STATUS=.*: no answer yet")
        process.send_signal(signal.SIGTERM)
        wait_for(listener, "STOPPING=1")
        assert eventually(lambda: process.poll() is not None)
        assert process.returncode == 0
