"""The wheel: what the package index shows, and the files that `assets` writes out."""

import email
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the content of the wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(directory),
        str(PROJECT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(directory / "unpacked")
    return directory / "unpacked"


def assets(directory: Path, code: Path) -> "subprocess.CompletedProcess[str]":
    """Run the command from the code in a directory."""
    command = [sys.executable, "-P", "-m", "exporter", "assets", str(directory)]
    environment = {"PYTHONPATH": str(code), "LANG": "C.UTF-8"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd="/")


def contents(directory: Path) -> dict[str, bytes]:
    """Return all files under a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_assets_are_the_same_from_a_wheel_and_a_checkout(unpacked: Path, tmp_path: Path) -> None:
    """All rules, dashboards and deployment files are written, and nothing of what makes or tests them."""
    for name, code in (("wheel", unpacked), ("checkout", PROJECT)):
        assert assets(tmp_path / name, code).returncode == 0
    found = contents(tmp_path / "wheel")
    assert found == contents(tmp_path / "checkout")
    assert {
        "alerts/scheduled-events.rules.yml",
        "dashboards/fleet.json",
        "deploy/exporter.yml",
        "deploy/systemd/azure-scheduled-events-exporter.service",
    } <= set(found)
    assert not [name for name in found if name.startswith(("alerts/tests", "dashboards/source"))]


def test_assets_overwrite_nothing(tmp_path: Path) -> None:
    """A directory in use is refused in one line, and stays as it is."""
    (tmp_path / "mine").write_text("kept")
    done = assets(tmp_path, PROJECT)
    assert done.returncode == 1
    assert done.stderr == f"azure-scheduled-events-exporter: {tmp_path} is not empty; name a new directory\n"
    assert contents(tmp_path) == {"mine": b"kept"}


def test_assets_report_what_cannot_be_written(tmp_path: Path) -> None:
    """A path below a file ends in one line, too."""
    (tmp_path / "file").touch()
    done = assets(tmp_path / "file" / "below", PROJECT)
    assert done.returncode == 1
    assert done.stderr.startswith("azure-scheduled-events-exporter: cannot write the files: ")
    assert done.stderr.count("\n") == 1


def test_links_of_the_readme_lead_somewhere_on_an_index(unpacked: Path) -> None:
    """Links of the description are absolute."""
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    description = str(email.message_from_string(metadata.read_text()).get_payload())
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert len(links) > 10
    assert all(link.startswith(("https://", "#")) for link in links)


def test_pictures_of_the_readme_are_found_by_an_index() -> None:
    """They lead to the file itself, and not to the page about it."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]
    text = "![A picture](docs/images/a.png) [a page](docs/a.md) [elsewhere](https://example.com)"
    for one in settings["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    home = "azure-scheduled-events-exporter/azure-scheduled-events-exporter"
    assert text == (
        f"![A picture](https://raw.githubusercontent.com/{home}/main/docs/images/a.png) "
        f"[a page](https://github.com/{home}/blob/main/docs/a.md) [elsewhere](https://example.com)"
    )
