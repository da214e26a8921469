"""Tests of the mixin: the checked-in files are made from it, and each setting has an effect."""

import json
from typing import Any

from scripts.alerts import ALERTS
from scripts.mixin import build, evaluate
from scripts.project import ROOT

OTHER = """
  (mixin + { _config+:: {
    jobs: ['vms', 'spot'], placeLabels: ['job', 'team'],
    many: 7, imminentSeconds: 600, runbookBase: 'https://wiki/',
    severities+: { announced+: { Reboot: 'page' } },
  } })
"""


def test_what_is_checked_in_is_what_the_mixin_says() -> None:
    """Nobody edits rules by hand, or forgets `make alerts`; its dashboards are those of `dashboards`."""
    made = build()
    assert {name: (ALERTS / name).read_text() for name in made} == made
    boards: dict[str, Any] = evaluate("mixin.grafanaDashboards")
    assert boards == {name: json.loads((ROOT / "dashboards" / name).read_text()) for name in boards}


def test_rules_and_dashboards_follow_the_configuration() -> None:
    """Jobs, labels, thresholds, severities and addresses are changed in one place."""
    groups = evaluate(f"{OTHER}.prometheusAlerts.groups")
    rules = {rule.get("alert", rule.get("record")): rule for group in groups for rule in group["rules"]}
    jobs = [rule["labels"]["job"] for rule in groups[0]["rules"] if "labels" in rule]
    assert jobs == ["vms", "spot"]
    assert rules["ScheduledEventsMany"]["expr"] == "count by (job, team) (azure_scheduled_events:event) > 7"
    assert "<= 600\n" in rules["ScheduledEventImminent"]["expr"]
    assert "within 10 minutes" in rules["ScheduledEventImminent"]["annotations"]["summary"]
    announced = next(
        rule for rule in groups[1]["rules"] if rule.get("labels") == {"event_status": "Scheduled"}
    )
    assert '"severity", "page", "event_type", "Reboot"' in announced["expr"]
    addresses = {rule["annotations"]["runbook_url"] for rule in rules.values() if "alert" in rule}
    assert all(address.startswith("https://wiki/") for address in addresses)
    board = evaluate(f"{OTHER}.grafanaDashboards['fleet.json']")
    (job,) = (it for it in board["templating"]["list"] if it["name"] == "job")
    assert job["current"]["value"] == ["vms"]
