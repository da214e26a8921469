"""The unit and the custom data of `deploy/`, for the programs that read them."""

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from exporter.config import Overrides
from exporter.notifications import planning

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
UNIT = DEPLOY / "systemd" / "azure-scheduled-events-exporter.service"
NAME = "azure-scheduled-events-exporter"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """It finds no mistake in the unit, and calls it closed."""
    program = shutil.which("systemd-analyze")
    assert program, "systemd is not installed; make test installs it"
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/scheduled-events/bin/" + NAME, sys.executable))
    commands = (["verify", str(copy)], ["security", "--offline=yes", "--threshold=20", str(copy)])
    for command in commands:
        done = subprocess.run([program, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert command[0] == "security" or done.stderr == ""


def test_the_configuration_in_the_custom_data_is_good(tmp_path: Path) -> None:
    """It is valid, and lies where the unit reads it."""
    text = (DEPLOY / "cloud-init" / "azure-scheduled-events-exporter.yml").read_text()
    assert text.startswith("#cloud-config\n")
    (file,) = yaml.safe_load(text)["write_files"]
    assert f"--config.file {file['path']}" in UNIT.read_text()
    written = tmp_path / "exporter.yml"
    written.write_text(file["content"])
    written.chmod(int(file["permissions"], 8))
    planning.load(written, Overrides(), (), {})
