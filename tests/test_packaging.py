"""Tests of the wheel: its files and its metadata are complete."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from exporter import __version__
from exporter.simulator import load_scenarios

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "exporter"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, without the network."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    """Pages, styles, scenarios and templates are shipped as well as modules."""
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {path.relative_to(ROOT).as_posix() for path in files}
    others = (".dist-info/", "exporter/assets/")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if not any(other in name for other in others)} == wanted


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    """Name, version, licence and command are those that users rely on."""
    archive = zipfile.ZipFile(wheel)
    info = f"azure_scheduled_events_exporter-{__version__}.dist-info"
    metadata = archive.read(f"{info}/METADATA").decode()
    for line in (
        "Name: azure-scheduled-events-exporter",
        f"Version: {__version__}",
        "License-Expression: Apache-2.0",
        "Requires-Python: >=3.11",
    ):
        assert line in metadata.splitlines()
    command = "azure-scheduled-events-exporter = exporter.__main__:main"
    assert command in archive.read(f"{info}/entry_points.txt").decode()


def test_the_wheel_works(wheel: Path, tmp_path: Path) -> None:
    """What is in the wheel runs by itself, with its data files."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    script = "import exporter, exporter.simulator as s; print(exporter.__file__, len(s.load_scenarios()))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(tmp_path / "exporter" / "__init__.py"), str(len(load_scenarios()))]
    version = [sys.executable, "-m", "exporter", "--version"]
    done = subprocess.run(version, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == __version__


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "exporter"],
        [str(Path(sys.executable).parent / "azure-scheduled-events-exporter")],
    ],
)
def test_both_ways_to_start_it(command: list[str]) -> None:
    """The script and the module are one program."""
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"azure-scheduled-events-exporter, version {__version__}\n"
