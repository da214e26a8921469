"""Tests of the rule groups for Azure Monitor managed Prometheus.

Source: Azure's page "Azure Monitor managed service for Prometheus rule groups" and the REST reference of
`Microsoft.AlertsManagement/prometheusRuleGroups`, version 2023-03-01.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from scripts.alerts import ALERTS
from tests.alerts.support import tool

TEMPLATE = json.loads((ALERTS / "azure-monitor.rule-groups.json").read_text())
GROUPS = TEMPLATE["resources"]
RULES = [rule for group in GROUPS for rule in group["properties"]["rules"]]


def converted() -> dict[str, Any]:
    """Return the groups as Prometheus writes them."""
    return {
        "groups": [
            {
                "name": group["name"],
                "rules": [
                    {
                        "alert": rule["alert"],
                        "expr": rule["expression"],
                        "for": rule.get("for", "PT0S").removeprefix("PT").lower(),
                        "labels": {"severity": str(rule["severity"])},
                        "annotations": rule["annotations"],
                    }
                    for rule in group["properties"]["rules"]
                ],
            }
            for group in GROUPS
        ]
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
      - {series: 'P_event_not_before_timestamp_seconds{VM, EVENT}', values: _x3 480x5 stale}
      - {series: 'P_event_first_seen_timestamp_seconds{VM, EVENT}', values: _x3 180x6 stale _x5 180x4 stale}
      - {series: 'up{NEXT}', values: 1x45}
      - {series: 'P_event_info{NEXT, EVENT, event_status="Scheduled"}', values: _x4 1x4 stale}
      - {series: 'P_event_first_seen_timestamp_seconds{NEXT, EVENT}', values: _x4 240x4 stale}
    alert_rule_test:
      - eval_time: 5m
        alertname: ScheduledEventPending
        exp_alerts:
          - exp_labels: {event_id: A, event_type: Reboot, event_source: User, instance: vm-1, severity: "2"}
            exp_annotations:
              summary: Reboot of vm-1 scheduled
              description: >-
                Event A of vm-1, requested by User; it may affect other VMs too. The page of the exporter
                there has the time and the details.
    promql_expr_test:
      - expr: count by (alertname, severity, instance) (count_over_time(ALERTS{alertstate="firing"}[1h]))
        eval_time: 40m
        exp_samples:
          - {labels: '{alertname="ScheduledEventPending", severity="2", instance="vm-1"}', value: 1}
          - {labels: '{alertname="ScheduledEventStarted", severity="0", instance="vm-1"}', value: 1}
      - expr: sum(count_over_time(ALERTS{alertname="ScheduledEventStarted", alertstate="firing"}[1h]))
        eval_time: 40m
        exp_samples: [{labels: '{}', value: 12}]
"""
EVENT = 'event_id="A", event_type="Reboot", event_source="User", target="self"'


def test_a_reboot_of_six_minutes_is_one_start_and_no_page(tmp_path: Path) -> None:
    """Rules are valid; a phase is one alert for both VMs, without a gap, and names one; no ExporterDown."""
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(converted()))
    assert f"SUCCESS: {len(RULES)} rules found" in tool("promtool", "check", "rules", file)
    text = REBOOT.replace("EVENT", EVENT).replace("P_", "azure_scheduled_events_")
    for name, vm in (("{NEXT", "vm-2"), ("{VM", "vm-1")):
        text = text.replace(name, f'{{job="azure-scheduled-events-exporter", instance="{vm}"')
    (tmp_path / "test.yml").write_text(text)
    tool("promtool", "test", "rules", tmp_path / "test.yml")
