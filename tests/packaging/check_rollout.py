"""The cloud-init file and the Ansible role, at work in a Debian that systemd boots.

Not among the tests that pytest finds by itself: it needs root, Go and the network. ``make test-deb`` runs it.
"""

import shutil
from pathlib import Path

import pytest

from tests.packaging.debian import boot, root

PROJECT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).with_name("rollout.sh")


@pytest.mark.timeout(900)
def test_roll_out(tmp_path: Path) -> None:
    """Each step of rollout.sh succeeds."""
    check = tmp_path / "check"
    (deb,) = (PROJECT / "dist").glob("*.deb")
    shutil.copytree(PROJECT / "deploy", check / "deploy")
    shutil.copy(deb, check / "first.deb")
    shutil.copy(SCRIPT, check)
    # debootstrap does not resolve virtual packages, such as those that python3-cffi-backend provides.
    debian = root("rollout", "ansible-core", "cloud-init", "python3-apt", "python3-cffi-backend", "curl")
    log = boot(debian, check, SCRIPT.name)
    assert log.endswith("everything was rolled out\n"), log
