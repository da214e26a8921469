"""The running exporter needs no privileges: everything works as user nobody, without capabilities."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.program import eventually
from tests.end_to_end.vm import EVENT, one_vm, stop
from tests.receivers import http_receiver
from tests.security.support import EVENTS, configure

NOBODY = 65534
_NOTHING = ("--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs")
_DROPPED = (*_NOTHING, "--bounding-set=-all")
# Where nobody can reach this checkout or Python, as in root's home, it is root that is left without any
# capability; and whoever is not root, or may not change the bounding set, has none that counts anyway.
_AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
WAYS = (
    (*_AS_NOBODY, *_DROPPED),
    (*_AS_NOBODY, *_NOTHING),
    ("setpriv", *_DROPPED),
    ("setpriv", "--no-new-privs"),
)


@pytest.fixture(scope="module")
def prefix() -> tuple[str, ...]:
    """Return the words before a command by which it gets the least that it can run with here."""
    # setpriv itself can start what its user cannot: the program has to start its own processes, too.
    again = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], check=True)"
    look = (sys.executable, "-c", again, "-c", "import exporter.app, click, h11")
    for way in WAYS:
        if subprocess.run([*way, *look], capture_output=True, check=False).returncode == 0:
            return way
    raise AssertionError("setpriv does not work here")


def status(pid: int) -> dict[str, str]:
    """Read a process's status from the kernel (proc_pid_status(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_everything_works_without_privileges(open_folder: Path, prefix: tuple[str, ...]) -> None:
    """Polling, serving, the state, a hook, messages and an approval; and a stop in good order."""
    with http_receiver() as receiver, one_vm(open_folder) as vm:
        environ = {"ONCALL_URL": f"json://{receiver.authority}", "HOME": "/nonexistent"}
        configure(vm)
        with vm.running(prefix=prefix, **environ) as process:
            vm.tell(*EVENTS)
            eventually(lambda: len(receiver.requests) == 3)
            found = status(process.pid)
            stop(process)
        assert vm.notes() == [EVENT]
        assert [approval.event_id for approval in vm.imds.simulator.approvals] == [EVENT]
        written = vm.log_file.read_text()
    assert {found[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {"0" * 16}
    assert found["NoNewPrivs"] == "1"
    if f"--reuid={NOBODY}" in prefix:
        assert set(found["Uid"].split()) == {str(NOBODY)}
    assert "degraded" not in written
    assert "raceback" not in written
