"""The packages in a clean Debian that systemd boots: installed, started, upgraded, removed and purged.

Not among the tests that pytest finds by itself: it needs root, Go and the network. ``make test-deb`` runs it.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.debian import boot, root

PROJECT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).with_name("lifecycle.sh")


def newer(deb: Path, directory: Path) -> Path:
    """Return the same package under a higher version."""
    tree = directory / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub("(?m)^Version: .*", "Version: 9999", control.read_text()))
    second = directory / "second.deb"
    subprocess.run(["dpkg-deb", "--build", "-Zgzip", "-z1", tree, second], check=True)
    shutil.rmtree(tree)
    return second


@pytest.mark.timeout(600)
def test_the_package_lives(tmp_path: Path) -> None:
    """Each step of lifecycle.sh succeeds."""
    check = tmp_path / "check"
    check.mkdir()
    (deb,) = (PROJECT / "dist").glob("*.deb")
    shutil.copy(deb, check / "first.deb")
    newer(deb, check)
    shutil.copy(SCRIPT, check)
    log = boot(root(), check, SCRIPT.name)
    assert log.endswith("the life of the package is complete\n"), log


@pytest.mark.timeout(600)
def test_the_rpm_lives(tmp_path: Path) -> None:
    """Each step of rpm.sh succeeds: what its scripts do, on a distribution that is not its own."""
    check = tmp_path / "check"
    check.mkdir()
    (rpm,) = (PROJECT / "dist").glob("*.rpm")
    shutil.copy(rpm, check / "exporter.rpm")
    script = SCRIPT.with_name("rpm.sh")
    shutil.copy(script, check)
    log = boot(root("rpm", "rpm"), check, script.name)
    assert log.endswith("the life of the package is complete\n"), log
