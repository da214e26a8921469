"""The cloud-init file and the Ansible role: what make test-deb runs for real is at least consistent."""

import re
from pathlib import Path

import yaml

from exporter.config import Overrides
from exporter.notifications import planning

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
ROLE = DEPLOY / "ansible" / "roles" / "azure_scheduled_events_exporter"
DOCS = DEPLOY.parent / "docs" / "rollout.md"


def test_the_configuration_in_the_custom_data_is_good(tmp_path: Path) -> None:
    """It is valid, and lies where the unit reads it."""
    text = (DEPLOY / "cloud-init" / "azure-scheduled-events-exporter.yml").read_text()
    assert text.startswith("#cloud-config\n")
    (file,) = yaml.safe_load(text)["write_files"]
    unit = (DEPLOY / "systemd" / "azure-scheduled-events-exporter.service").read_text()
    assert f"--config.file {file['path']}" in unit
    written = tmp_path / "exporter.yml"
    written.write_text(file["content"])
    written.chmod(int(file["permissions"], 8))
    planning.load(written, Overrides(), (), {})


def test_the_variables_of_the_role() -> None:
    """Each has a default, is used and documented."""
    defaults = set(yaml.safe_load((ROLE / "defaults" / "main.yml").read_text()))
    tasks = "".join((ROLE / part / "main.yml").read_text() for part in ("tasks", "handlers"))
    assert set(re.findall(r"azure_scheduled_events_exporter_\w+", tasks)) == defaults
    assert set(re.findall(r"`(azure_scheduled_events_exporter_\w+)`", DOCS.read_text())) == defaults
