"""The program as process 1, as in a container without an init, in its own PID namespace."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.program import children, eventually
from tests.end_to_end.vm import event, hook, one_vm

_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
# Whoever is not root makes the namespace in one of users, or by sudo.
WAYS = (_NAMESPACE, (*_NAMESPACE, "--user", "--map-root-user"), ("sudo", "--non-interactive", *_NAMESPACE))
LEAVES = "for n in 1 2 3; do setsid sh -c 'sleep 0.2; echo left >> $HERE/notes' & done"


@pytest.fixture(scope="module")
def prefix() -> tuple[str, ...]:
    """Return the words before a command by which it becomes the first process of a namespace."""
    for way in WAYS:
        if shutil.which(way[0]) and not subprocess.run([*way, "true"], check=False).returncode:
            return way
    raise AssertionError("no PID namespace can be made here")


def first_process(parent: int) -> int:
    """Find the process that is number 1 in its namespace, below another."""
    for child in children(parent):
        status = Path(f"/proc/{child}/status").read_text()
        if status.partition("NSpid:")[2].splitlines()[0].split()[-1] == "1":
            return child
        if found := first_process(child):
            return found
    return 0


def test_it_reaps_what_hooks_leave_behind(tmp_path: Path, prefix: tuple[str, ...]) -> None:
    """Orphans of hooks do not remain zombies; SIGTERM still ends the program properly."""
    with one_vm(tmp_path) as vm:
        vm.configure(hook("leaves", LEAVES))
        with vm.running(prefix=prefix) as process:
            vm.tell(event())
            eventually(lambda: vm.notes() == ["left"] * 3)
            first = first_process(process.pid)
            # The exporter itself is all that is left below the first process.
            eventually(lambda: len(children(first)) == 1)
            (exporter,) = children(first)
            sudo = prefix[:2] if prefix[0] == "sudo" else ()
            subprocess.run([*sudo, "kill", "-TERM", str(first)], check=True)
            assert process.wait(30) == 0
            assert not Path(f"/proc/{exporter}").exists()
        assert vm.log("stopped")
        assert "raceback" not in vm.log_file.read_text()


@pytest.mark.parametrize(("end", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)])
def test_its_status_is_that_of_the_exporter(end: str, status: int) -> None:
    """As a shell reports it: 128 and the number of the signal that killed it."""
    # Not by Popen, which reaps its process when it is deleted.
    code = "child = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])"
    code += "; os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT); _reap(child)"
    code = f"import os, sys; from exporter.__main__ import _reap; {code}"
    assert subprocess.run([sys.executable, "-c", code, "sh", "-c", end], check=False).returncode == status
