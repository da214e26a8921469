"""The cloud-init file and the Ansible role, at work in Debians that systemd boots.

Not among the tests that pytest finds by itself: it needs root, Go and the network. ``make test-deb`` runs it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow.packaging.debian import PYTHON, boot, built, root

DEPLOY = Path(__file__).parents[3] / "deploy"
# debootstrap does not resolve virtual packages, such as those that python3-cffi-backend provides.
PACKAGES = (*PYTHON, "cloud-init", "python3-apt", "python3-cffi-backend", "curl")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("suite", "python", "ansible"),
    [("bookworm", "3.11", "ansible-core==2.14.*"), ("trixie", "3.13", "ansible-core")],
    ids=["the oldest Ansible", "the newest Ansible"],
)
def test_roll_out(check: Path, suite: str, python: str, ansible: str) -> None:
    """Each step of rollout.sh succeeds, with the oldest Ansible that meta/main.yml names, and the newest."""
    shutil.copytree(DEPLOY, check / "deploy")
    shutil.copy(built("*.deb"), check / "first.deb")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    command += ["--python-version", python, "--dest", str(check / "wheels"), ansible]
    subprocess.run(command, check=True)
    boot(root(f"rollout-{suite}", PACKAGES, suite), check, "rollout.sh")
