"""Tests of the rule groups for Azure Monitor managed Prometheus.

Source: Azure's page "Azure Monitor managed service for Prometheus rule groups" and the REST reference of
`Microsoft.AlertsManagement/prometheusRuleGroups`, version 2023-03-01.
"""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.alerts.support import ALERTS, alerts, tool

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


def test_promtool_takes_the_expressions(tmp_path: Path) -> None:
    """Expressions and texts are valid, and no two rules are the same."""
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(converted()))
    assert f"SUCCESS: {len(RULES)} rules found" in tool("promtool", "check", "rules", file)


def test_an_event_is_one_alert(tmp_path: Path) -> None:
    """Two VMs that see one event make one alert, of the severity of its type."""
    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump(converted()))
    info = (
        'azure_scheduled_events_event_info{event_id="A", event_type="Preempt", event_status="%s", '
        'event_source="Platform", target="self", instance="%s"}'
    )
    labels = {"event_id": "A", "event_type": "Preempt", "event_source": "Platform", "severity": "0"}
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [
            {"series": info % (status, vm), "values": values}
            for vm in ("a", "b")
            for status, values in (("Scheduled", "1 1 _ _ _"), ("Started", "_ _ stale 1 1"))
        ],
        "alert_rule_test": [
            {"eval_time": "1m", "alertname": "ScheduledEventPending", "exp_alerts": [{"exp_labels": labels}]},
            {"eval_time": "1m", "alertname": "ScheduledEventStarted", "exp_alerts": []},
            {"eval_time": "4m", "alertname": "ScheduledEventStarted", "exp_alerts": [{"exp_labels": labels}]},
        ],
    }
    event = {
        "summary": "Preempt %s",
        "description": "Event A, requested by Platform. "
        "The page of the exporter on one of its VMs has the details.",
    }
    for case, word in zip(test["alert_rule_test"], ("scheduled", "", "started"), strict=True):
        for expected in case["exp_alerts"]:
            expected["exp_annotations"] = event | {"summary": event["summary"] % word}
    file = tmp_path / "test.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]})
    )
    tool("promtool", "test", "rules", file)


def test_rule_groups_keep_the_limits_of_azure() -> None:
    """An interval is 1 to 15 minutes, a group has 20 rules at most, and severities are 0 to 4."""
    for group in GROUPS:
        assert group["type"] == "Microsoft.AlertsManagement/prometheusRuleGroups"
        assert re.fullmatch("PT([1-9]|1[0-5])M", group["properties"]["interval"])
        assert len(group["properties"]["rules"]) <= 20
        assert not re.search(r"[:@/#{}%&+*<>?]", group["name"])
    for rule in RULES:
        assert rule["severity"] in range(5)
        assert re.fullmatch(r"PT\d+M", rule.get("for", "PT1M"))
        assert rule["actions"] == "[variables('actions')]"
        # Texts are filled in from labels; Azure Monitor does not evaluate queries in them.
        assert "query" not in "".join(rule["annotations"].values())


def test_rule_groups_name_alerts_that_have_runbooks() -> None:
    """The alerts are called what they are called in Prometheus."""
    assert {rule["alert"] for rule in RULES} <= set(alerts())
