"""Unit, custom data and chart for the programs that read them; `scripts.chart` checks the rest."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from exporter.config import Overrides
from exporter.notifications import planning
from scripts.chart import only
from scripts.renderings import VALUES, rendering
from tests.web.support import application

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


each = pytest.mark.parametrize("name", [rendering(values).stem for values in VALUES])


@each
def test_the_probed_paths_are_routes(name: str) -> None:
    """A probe of a path that does not exist would end every pod."""
    (container,) = only(name, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    probes = (container[f"{kind}Probe"].get("httpGet", {}) for kind in ("liveness", "readiness"))
    assert {probe.get("path", "/") for probe in probes} <= application().routes.keys()


@each
@pytest.mark.usefixtures("checks_in_process")
def test_the_configuration_is_good(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is valid, and with the modes that the pod gives to secrets nothing is warned of."""
    pod = only(name, "DaemonSet")["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    secret, file = tmp_path / "oncall", tmp_path / "exporter.yml"
    secret.write_text("json://host.example/token\n")
    secret.chmod(volumes.get("secrets", {}).get("secret", {}).get("defaultMode", 0o440))
    text: str = only(name, "ConfigMap")["data"]["exporter.yml"]
    file.write_text(text.replace("/etc/azure-scheduled-events-exporter/secrets/oncall", str(secret)))
    file.chmod(0o644)
    planning.load(file, Overrides(), (), {})
    assert caplog.records == []
