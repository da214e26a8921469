"""The packages in a clean Debian that systemd boots: installed, started, upgraded, removed and purged.

Not among the tests that pytest finds by itself: it needs root, Go and the network. ``make test-deb`` runs it.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from exporter.config import PROGRAM
from tests.slow.packaging.debian import boot, built, root

# What docs/install.md promises, with the minor version of their glibc.
SYSTEMS = {"bookworm": 36, "jammy": 35, "noble": 39}
ROOT = Path(__file__).parents[3]
AZURE = ROOT / "deploy" / "azure"


def debian() -> Path:
    return root("bookworm", ("curl", "rpm"))


def systems() -> list[str]:
    """Return the systems that the package is for, as their glibc is not older than that of the build."""
    show = ["dpkg-deb", "--field", str(built("*.deb")), "Depends"]
    depends = subprocess.run(show, check=True, stdout=subprocess.PIPE, text=True).stdout
    (needed,) = re.findall(r"libc6 \(>= 2\.(\d+)\)", depends)
    return [suite for suite, minor in SYSTEMS.items() if minor >= int(needed)]


def newer(deb: Path, directory: Path) -> Path:
    """Return the same package under a higher version, with another sample."""
    tree = directory / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub("(?m)^Version: .*", "Version: 9999", control.read_text()))
    with (tree / "usr" / "share" / "doc" / PROGRAM / "exporter.yml").open("a") as sample:
        sample.write("# Another sample.\n")
    second = directory / "second.deb"
    subprocess.run(["dpkg-deb", "--build", "-Zgzip", "-z1", tree, second], check=True)
    shutil.rmtree(tree)
    return second


@pytest.mark.timeout(900)
def test_the_package_lives(check: Path) -> None:
    """Each step of lifecycle.sh succeeds, where there is no Python."""
    first = check / "first.deb"
    shutil.copy(built("*.deb"), first)
    newer(first, check)
    boot(debian(), check, "lifecycle.sh")


@pytest.mark.timeout(600)
def test_the_rpm_lives(check: Path) -> None:
    """Each step of rpm.sh succeeds: what its scripts do, on a distribution that is not its own."""
    shutil.copy(built("*.rpm"), check / "exporter.rpm")
    boot(debian(), check, "rpm.sh")


@pytest.mark.timeout(900)
def test_the_vm_application_lives(check: Path) -> None:
    """Each step of vmapplication.sh succeeds, and the allowlists name the program that runs."""
    shutil.copytree(AZURE / "vm-application", check / "vm-application")
    for kind in ("package", "tarball"):
        rules = json.loads((AZURE / "allowlists" / f"{kind}.json").read_text())["rules"]
        (check / f"executable-{kind}").write_text(rules["identities"][0]["exePath"])
    shutil.copy(built("*.linux-*.tar.gz"), check / "first.tar.gz")
    first = check / "first.deb"
    shutil.copy(built("*.deb"), first)
    newer(first, check)
    boot(debian(), check, "vmapplication.sh")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("suite", systems())
def test_the_lines_of_the_readme(check: Path, suite: str) -> None:
    """Install and Test it work as they stand in a clean Debian 12, Ubuntu 22.04 and 24.04."""
    shutil.copy(built("*.deb"), check)
    blocks = [
        re.findall(
            r"^```sh\n(.*?)^```$",
            (ROOT / page).read_text().partition(f"\n## {title}\n")[2],
            re.DOTALL | re.MULTILINE,
        )
        for page, title in (("README.md", "Install"), ("docs/install.md", "Test it"))
    ]
    for name, block in (("install", blocks[0][0]), ("service", blocks[1][0]), ("test", blocks[1][1])):
        (check / f"{name}.sh").write_text(block)
    boot(debian() if suite == "bookworm" else root(suite, ("curl",), suite), check, "readme.sh")


def test_lintian_finds_no_error() -> None:
    """Debian's own checks accept the package."""
    command = ["lintian", "--fail-on=error", str(built("*.deb"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
