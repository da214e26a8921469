"""The runbooks' commands work with the real tools."""

import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from scripts.alerts import ALERTS, INHIBITOR, RUNBOOKS, alerts, commands, rules
from tests.alerts.test_rules import exposed
from tests.end_to_end.program import free_port, get, running


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run an Alertmanager with the example's configuration."""
    storage = f"--storage.path={tmp_path_factory.mktemp('alertmanager')}"
    file = f"--config.file={ALERTS / 'alertmanager.example.yml'}"
    with running("prometheus-alertmanager", free_port(), file, storage, "--cluster.listen-address=") as url:
        yield url


def test_every_amtool_command_works(alertmanager: str) -> None:
    """Alertmanager takes each, and each alert is silenced by its own runbook's command."""
    for name, text in RUNBOOKS.items():
        for command in commands(text, "amtool"):
            where = [f"--alertmanager.url={alertmanager}", *(["--author=test"] if "add" in command else [])]
            done = subprocess.run([*command, *where], capture_output=True, text=True, check=False)
            assert done.returncode == 0, (name, command, done.stderr)
    made = json.loads(get(f"{alertmanager}/api/v2/silences"))
    silenced = {m["value"] for one in made for m in one["matchers"] if m["name"] == "alertname"}
    assert silenced == alerts().keys() - {INHIBITOR}


def test_every_metric_of_the_runbooks_exists() -> None:
    """Metrics that a reader is to look at are exposed or recorded."""
    known = exposed().keys() | {rule["record"] for rule in rules() if "record" in rule}
    for name, text in RUNBOOKS.items():
        for metric in re.findall(r"azure_scheduled_events[\w:]+", text):
            assert metric in known, (name, metric)
