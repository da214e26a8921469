"""The runbooks' commands work with the real tools."""

import json
import re
from pathlib import Path

from scripts.alerts import RUNBOOKS, alerts, commands, rules
from tests.alerts.support import alertmanager, tool
from tests.alerts.test_rules import exposed
from tests.end_to_end.program import get


def test_every_amtool_command_works(tmp_path: Path) -> None:
    """Alertmanager takes each, and each alert is silenced by its own runbook's command."""
    with alertmanager(tmp_path) as url:
        for text in RUNBOOKS.values():
            for command in commands(text, "amtool"):
                tool(*command, f"--alertmanager.url={url}", *(["--author=test"] if "add" in command else []))
        made = json.loads(get(f"{url}/api/v2/silences"))
    silenced = {m["value"] for one in made for m in one["matchers"] if m["name"] == "alertname"}
    assert silenced == alerts().keys()


def test_every_metric_of_the_runbooks_exists() -> None:
    """Metrics that a reader is to look at are exposed or recorded."""
    known = exposed().keys() | {rule["record"] for rule in rules() if "record" in rule}
    for name, text in RUNBOOKS.items():
        for metric in re.findall(r"azure_scheduled_events[\w:]+", text):
            assert metric in known, (name, metric)
