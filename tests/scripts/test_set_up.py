"""Scripts that set up machines as root leave nothing behind, and use pinned versions."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.program import INTERRUPTIBLE, eventually

ROOT = Path(__file__).parent.parent.parent
# Stand-ins: no package is installed, the user is root, and installing takes long. The last one starts no
# process: a shell that waits for one which ends just before an interrupt goes on.
PROGRAMS = {
    "dpkg-query": "exit 1",
    "id": "echo 0",
    "apt-get": '[ "$1" = update ] || { : >"$BEGUN"; exec sleep 600; }',
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_leaves_no_policy_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Services could not be started any more, by nobody, if the file that keeps them down stayed."""
    for name, code in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{code}\n")
        (tmp_path / name).chmod(0o755)
    policy, begun = tmp_path / "policy-rc.d", tmp_path / "begun"
    environ = os.environ | {"POLICY_RC_D": str(policy), "BEGUN": str(begun)}
    environ["PATH"] = f"{tmp_path}:{environ['PATH']}"
    command = [*INTERRUPTIBLE, str(ROOT / "scripts" / "debian-packages"), "prometheus"]
    with subprocess.Popen(command, env=environ, start_new_session=True) as process:
        eventually(begun.exists)
        assert policy.exists()
        os.killpg(process.pid, number)
        assert process.wait(30) == 128 + number
    assert not policy.exists()
