"""The cloud-init file and the Ansible role, at work in a Debian that systemd boots.

Not among the tests that pytest finds by itself: it needs root, Go and the network. ``make test-deb`` runs it.
"""

import shutil
from pathlib import Path

import pytest

from tests.slow.packaging.debian import PYTHON, boot, built, root

DEPLOY = Path(__file__).parents[3] / "deploy"
# debootstrap does not resolve virtual packages, such as those that python3-cffi-backend provides.
PACKAGES = (*PYTHON, "ansible-core", "cloud-init", "python3-apt", "python3-cffi-backend", "curl")


@pytest.mark.timeout(900)
def test_roll_out(check: Path) -> None:
    """Each step of rollout.sh succeeds."""
    shutil.copytree(DEPLOY, check / "deploy")
    shutil.copy(built("*.deb"), check / "first.deb")
    boot(root("rollout", PACKAGES), check, "rollout.sh")
