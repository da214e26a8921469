import email
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from exporter import __version__
from exporter.config import PROGRAM
from exporter.simulator import load_scenarios

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "exporter"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel without the network; return a directory with its content."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "unpacked")
    return folder / "unpacked"


def contents(directory: Path) -> dict[str, bytes]:
    """Return all files under a directory, but for compiled ones."""
    paths = (path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


def run(code: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "exporter", *words]
    environment = {"PYTHONPATH": str(code), "LANG": "C.UTF-8"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd="/")


def test_the_wheel_has_every_file_of_the_package(unpacked: Path) -> None:
    """Pages, styles, scenarios and templates are shipped as well as modules."""
    found = {name for name in contents(unpacked / "exporter") if not name.startswith("assets/")}
    assert found == set(contents(PACKAGE))


def test_the_wheel_says_what_it_is(unpacked: Path) -> None:
    """Name, version, licence and command are those that users rely on; links lead somewhere on an index."""
    info = unpacked / f"azure_scheduled_events_exporter-{__version__}.dist-info"
    metadata = email.message_from_string((info / "METADATA").read_text())
    assert (metadata["Name"], metadata["Version"]) == (PROGRAM, __version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert f"{PROGRAM} = exporter.__main__:main" in (info / "entry_points.txt").read_text()
    links = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    assert len(links) > 10
    assert all(link.startswith(("https://", "#")) for link in links)


def test_the_wheel_works(unpacked: Path) -> None:
    """What is in the wheel runs by itself, with its data files."""
    assert run(unpacked, "--version").stdout == f"{PROGRAM}, version {__version__}\n"
    script = "import exporter, exporter.simulator as s; print(exporter.__file__, len(s.load_scenarios()))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=unpacked, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(unpacked / "exporter" / "__init__.py"), str(len(load_scenarios()))]


def test_assets_are_the_same_from_a_wheel_and_a_checkout(unpacked: Path, tmp_path: Path) -> None:
    """All rules, dashboards and deployment files are written, and nothing of what makes or tests them."""
    for name, code in (("wheel", unpacked), ("checkout", ROOT)):
        done = run(code, "assets", str(tmp_path / name))
        assert done.returncode == 0
        assert done.stdout.split() == [str(path) for path in sorted((tmp_path / name).iterdir())]
    found = contents(tmp_path / "wheel")
    assert found == contents(tmp_path / "checkout")
    assert {
        "alerts/events.rules.yml",
        "alerts/templates/scheduled-events.tmpl",
        "dashboards/fleet.json",
        "deploy/exporter.yml",
        "deploy/systemd/azure-scheduled-events-exporter.service",
    } <= set(found)
    assert not [name for name in found if name.startswith(("alerts/tests", "dashboards/source"))]


def test_assets_overwrite_nothing(tmp_path: Path) -> None:
    """A directory in use, and one that cannot be made, are refused in one line."""
    (tmp_path / "mine").write_text("kept")
    done = run(ROOT, "assets", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"{PROGRAM}: {tmp_path} is not empty; name a new directory\n"
    assert contents(tmp_path) == {"mine": b"kept"}
    below = tmp_path / "mine" / "below"
    done = run(ROOT, "assets", str(below))
    assert done.returncode == 1
    assert done.stderr == f"{PROGRAM}: cannot write files into {below}: Not a directory\n"
