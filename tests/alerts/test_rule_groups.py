"""Tests of the rule groups for Azure Monitor managed Prometheus.

Source: Azure's page "Azure Monitor managed service for Prometheus rule groups" and the REST reference of
`Microsoft.AlertsManagement/prometheusRuleGroups`, version 2023-03-01.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from scripts.alerts import RULE_GROUPS
from tests.alerts.support import tool

GROUPS = json.loads(RULE_GROUPS.read_text())["resources"]


def converted() -> dict[str, Any]:
    """Return the groups as Prometheus writes them; the number of an alert's severity is a label."""
    return {
        "groups": [
            {"name": group["name"], "rules": [_rule(rule) for rule in group["properties"]["rules"]]}
            for group in GROUPS
        ]
    }


def _rule(rule: dict[str, Any]) -> dict[str, Any]:
    if "record" in rule:
        return {"record": rule["record"], "expr": rule["expression"]}
    return {
        "alert": rule["alert"],
        "expr": rule["expression"],
        "for": rule.get("for", "PT0S").removeprefix("PT").lower(),
        "labels": rule["labels"] | {"sev": str(rule["severity"])},
        "annotations": rule["annotations"],
    }


REBOOT = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'up{VM}', values: 1x9 0x5 1x30}
      - {series: 'P_event_info{VM, EVENT, event_status="Scheduled"}', values: _x3 1x5 stale}
      - {series: 'P_event_info{VM, EVENT, event_status="Started"}', values: _x9 1 stale _x5 1x4 stale}
    promql_expr_test:
      - expr: count by (alertname, severity, sev) (count_over_time(ALERTS{event_id="A"}[1h]))
        eval_time: 40m
        exp_samples:
          - {labels: '{alertname="ScheduledEventPending", severity="warning", sev="2"}', value: 1}
          - {labels: '{alertname="ScheduledEventStarted", severity="critical", sev="0"}', value: 1}
      - expr: sum(count_over_time(ALERTS{alertname="ScheduledEventStarted", alertstate="firing"}[1h]))
        eval_time: 40m
        exp_samples: [{labels: '{}', value: 12}]
"""
EVENT = 'event_id="A", event_type="Reboot", event_source="User", target="self"'


def test_the_rules_work_when_they_are_evaluated_once_a_minute(tmp_path: Path) -> None:
    """Rules and limits are Azure Monitor's; a Reboot is announced and starts, and each has one severity."""
    assert all(len(group["properties"]["rules"]) <= 20 for group in GROUPS)
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(converted()))
    found = sum(len(group["properties"]["rules"]) for group in GROUPS)
    assert f"SUCCESS: {found} rules found" in tool("promtool", "check", "rules", file)
    text = REBOOT.replace("EVENT", EVENT).replace("P_", "azure_scheduled_events_")
    text = text.replace("{VM", '{job="azure-scheduled-events-exporter", instance="vm-1"')
    (tmp_path / "test.yml").write_text(text)
    tool("promtool", "test", "rules", tmp_path / "test.yml")
