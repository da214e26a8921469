"""A real load balancer that polls /-/in-service: HAProxy takes the VM out of service and back."""

import contextlib
import csv
import io
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.program import eventually, free_port, get
from tests.end_to_end.vm import Vm, event
from tests.receivers import Receiver, http_receiver

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "haproxy"


class Balancer:
    """HAProxy by the example with addresses of loopback; ``stats`` is the port of its stats socket."""

    def __init__(self, vm: Vm, application: Receiver) -> None:
        self.file = vm.folder / "haproxy.cfg"
        self.socket = vm.folder / "haproxy.sock"
        self.port, self.stats = free_port(), free_port()
        text = (EXAMPLE / "haproxy.cfg").read_text()
        for theirs, ours in (
            (
                "stats socket ipv4@10.0.0.2:9999",
                f"stats socket {self.socket} level admin\n    stats socket ipv4@127.0.0.1:{self.stats}",
            ),
            ("bind :80", f"bind 127.0.0.1:{self.port}"),
            ("port 9843 inter 1s", f"port {vm.port} inter 1s"),
            ("10.0.0.11:8080", application.authority),
            ("    server vm-2 10.0.0.12:8080\n", ""),
            ("server vm-1", "server vm"),
        ):
            assert theirs in text
            text = text.replace(theirs, ours)
        self.file.write_text(text)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        # Debian keeps it where only root looks.
        program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
        assert program, "haproxy is not installed; make test installs it"
        process = subprocess.Popen([program, "-db", "-q", "-f", str(self.file)], stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: self.ask("show info"))
            yield
        finally:
            process.kill()
            process.wait()

    def ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(self.socket))
            connection.sendall(f"{command}\n".encode())
            return connection.makefile(encoding="utf-8").read()

    def server(self) -> dict[str, str]:
        rows = csv.DictReader(io.StringIO(self.ask("show stat").removeprefix("# ")))
        return next(row for row in rows if row["svname"] == "vm")

    def sees(self, status: str, check: str) -> bool:
        """Return whether the VM is ``UP`` or ``DOWN`` there, its last check having ended like that."""
        found = self.server()
        return found["status"] == status and found["check_status"].lstrip("* ") == check


@pytest.fixture
def application() -> Iterator[Receiver]:
    with http_receiver() as made:
        yield made


def in_minutes(minutes: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(minutes=minutes), usegmt=True)


def test_the_example(vm: Vm, application: Receiver) -> None:
    """Its check takes the VM out and puts it back; while no VM is left, the one that is out serves."""
    balancer = Balancer(vm, application)
    with vm.running(), balancer.running():
        eventually(lambda: balancer.sees("UP", "L7OK"))
        vm.tell(event(NotBefore=in_minutes(4)))
        eventually(lambda: balancer.sees("DOWN", "L7STS"))
        eventually(lambda: get(f"http://127.0.0.1:{balancer.port}/") == "{}")
        vm.tell()
        eventually(lambda: balancer.sees("UP", "L7OK"))


def test_the_example_of_a_hook(vm: Vm, application: Receiver) -> None:
    """The hook drains the server from the announcement on, until the last event is gone."""
    balancer = Balancer(vm, application)
    balancer.file.write_text(balancer.file.read_text().replace("option httpchk", "#"))
    settings = yaml.safe_load((EXAMPLE / "exporter.yml").read_text())
    (hook,) = settings["hooks"]
    assert hook["command"][0] == "python3"
    program = [sys.executable, str(EXAMPLE / "set_server.py")]
    hook["command"] = [*program, vm.url, f"127.0.0.1:{balancer.stats}", "app/vm"]
    vm.configure(hook, in_service=settings["in_service"])
    far, gone = {"NotBefore": in_minutes(600)}, ("a", "b")
    with vm.running(), balancer.running():
        eventually(lambda: balancer.server()["status"].startswith("UP"))
        vm.tell(*(event(name, **far) for name in gone))
        eventually(lambda: balancer.server()["status"] == "DRAIN")
        vm.tell(event("b", **far))
        eventually(lambda: vm.count("haproxy", "succeeded") == 3)
        assert balancer.server()["status"] == "DRAIN"
        vm.tell()
        eventually(lambda: balancer.server()["status"].startswith("UP"))
        # A hook that is killed runs again.
        eventually(lambda: vm.count("haproxy", "succeeded") == 4)
        hook["command"][-1] = "app/nonsense"
        vm.configure(hook, in_service=settings["in_service"])
    with vm.running(), balancer.running():
        vm.tell(event("c", **far))
        eventually(lambda: vm.count("haproxy", "failed") == 1)
    assert "HAProxy says: No such server." in [line["line"] for line in vm.log("hook output")]
