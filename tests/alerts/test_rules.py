"""The rules by promtool, their copies for others, the runbooks and docs/prometheus.md.

`scripts.alerts` checks the rest. Source of the limits of Azure Monitor's rule groups: the REST reference of
`Microsoft.AlertsManagement/prometheusRuleGroups`, version 2023-03-01.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import _jsonnet
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from scripts.alerts import (
    ALERTS,
    PROMTOOL_TESTS,
    RULE_FILES,
    RULE_GROUPS,
    RUNBOOKS,
    alerts,
    commands,
    groups,
    rules,
)
from scripts.project import ROOT
from tests.alerts.support import alertmanager, tool
from tests.bench import Build
from tests.builders import REBOOT_ID, raw_event
from tests.end_to_end.program import get

EVERYTHING = """
metrics: {resources: true}
notifications: {targets: [{name: chat, url: 'json://receiver.test'}]}
approval: {mode: 'on', rules: [{name: freezes, action: approve, delay: 1h}]}
hooks: [{name: drain, command: [drain]}]
otlp: {metrics: true, logs: true}
tracing: {enabled: true}
kubernetes: {node: a, service_account: /nowhere, drain: {enabled: true}}
"""
_SELECTOR = re.compile(r"\b((?:azure_scheduled_events|process)[a-z_:]*|up\b)(?:\{(.*?)\})?")


@pytest.mark.parametrize("file", PROMTOOL_TESTS, ids=lambda file: file.name)
def test_promtool_tests(file: Path) -> None:
    """Alerts fire and resolve as in their promtool tests."""
    tool("promtool", "test", "rules", file)


def exposed(build: Build) -> dict[str, set[str]]:
    """Return the names of all samples of an exporter with everything on, with the labels of each."""
    bench = build(EVERYTHING)
    bench.show(raw_event(), raw_event(EventId=REBOOT_ID, EventStatus="Started", NotBefore=""))
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(bench.request("/metrics")[1]):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def used() -> list[tuple[str, set[str]]]:
    """Return every metric that an expression selects, with the labels of its matchers."""
    return selections("\n".join(rule["expr"] for rule in rules()))


def selections(text: str) -> list[tuple[str, set[str]]]:
    found = _SELECTOR.findall(text)
    return [(name, set(re.findall(r'(\w+)\s*[!=]~?"', matchers))) for name, matchers in found]


def test_every_metric_of_the_rules_is_there(build: Build) -> None:
    """A rule for a metric or label that the exporter does not expose would never fire."""
    names = exposed(build) | {"up": {"job"}}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    selected = [(name, labels) for name, labels in used() if name not in recorded]
    assert len(selected) > 10
    for name, labels in selected:
        assert name in names, name
        assert labels <= names[name], name


def test_the_mixin_is_what_the_files_are() -> None:
    """Tools of others get the same rules and dashboards from it."""
    text = "local mixin = import 'mixin.libsonnet'; [mixin.prometheusAlerts.groups, mixin.grafanaDashboards]"
    found, boards = json.loads(_jsonnet.evaluate_snippet(str(ALERTS / "mixin" / "-"), text))
    assert found == groups()
    assert boards == {name: json.loads((ROOT / "dashboards" / name).read_text()) for name in boards}
    assert len(boards) == 3


def test_every_amtool_command_works(tmp_path: Path) -> None:
    """Alertmanager takes each, and each alert is silenced by its own runbook's command."""
    with alertmanager(tmp_path) as url:
        for text in RUNBOOKS.values():
            for command in commands(text, "amtool"):
                tool(*command, f"--alertmanager.url={url}", *(["--author=test"] if "add" in command else []))
        made = json.loads(get(f"{url}/api/v2/silences"))
    silenced = {m["value"] for one in made for m in one["matchers"] if m["name"] == "alertname"}
    assert silenced == alerts().keys()


def test_every_metric_of_the_runbooks_exists(build: Build) -> None:
    """Metrics that a reader is to look at are exposed or recorded, with the labels that select them."""
    known = exposed(build)
    # The recording rule keeps the labels of the gauge that it reads.
    known["azure_scheduled_events:event"] = known["azure_scheduled_events_event_phase_timestamp_seconds"]
    for name, text in RUNBOOKS.items():
        for metric in re.findall(r"azure_scheduled_events[\w:]+", text):
            assert metric in known, (name, metric)
        for metric, labels in selections(text):
            assert labels <= known.get(metric, labels), (name, metric)


PAGE = (ROOT / "docs" / "prometheus.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(MONITOR,) = (yaml.safe_load(block) for block in BLOCKS if block.startswith("apiVersion"))
(SCRIPT,) = re.findall(r"^```sh\n([^`]*kubectl apply.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
JOB = "azure-scheduled-events-exporter"


def test_the_pod_monitor_is_what_the_operator_knows(tmp_path: Path) -> None:
    """Its relabelings are Prometheus' own under other names, and the job comes from the pods' label."""
    spec = MONITOR["spec"]
    assert spec["selector"]["matchLabels"][spec["jobLabel"]] == JOB
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint.keys() == {"port", "interval", "relabelings"}
    relabelings: list[dict[str, Any]] = [
        {re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", key): value for key, value in one.items()}
        for one in endpoint["relabelings"]
    ]
    scrape = {"job_name": JOB, "scrape_interval": endpoint["interval"], "relabel_configs": relabelings}
    file = tmp_path / "prometheus.yml"
    file.write_text(json.dumps({"scrape_configs": [scrape]}))
    assert "SUCCESS" in tool("promtool", "check", "config", file)


def test_the_rules_become_a_prometheus_rule(tmp_path: Path) -> None:
    """What kubectl gets holds the same rules, and promtool still takes them."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\n[ "$*" = "apply -f -" ] && cat\n')
    kubectl.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", SCRIPT], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    for resource, rule_file in zip(yaml.safe_load_all(done.stdout), RULE_FILES, strict=True):
        assert (resource["apiVersion"], resource["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
        file = tmp_path / "spec.yml"
        file.write_text(yaml.safe_dump(resource["spec"]))
        assert "SUCCESS" in tool("promtool", "check", "rules", file)
        assert rules(file) == rules(rule_file)


GROUPS = json.loads(RULE_GROUPS.read_text())["resources"]


def test_azure_monitor_evaluates_the_very_same_expressions() -> None:
    """A person who knows one of both knows the other."""
    own = [" ".join(rule["expr"].split()) for rule in rules()]
    assert [rule["expression"] for group in GROUPS for rule in group["properties"]["rules"]] == own


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
      - {series: 'GAUGE{VM, LABELS, phase="scheduled", severity="warning"}', values: _x3 0x5 stale}
      - {series: 'GAUGE{VM, LABELS, phase="started", severity="critical"}', values: _x9 0 stale _x5 0x4 stale}
    promql_expr_test:
      - expr: count by (alertname, severity, sev) (count_over_time(ALERTS{event_id="A"}[1h]))
        eval_time: 40m
        exp_samples:
          - {labels: '{alertname="ScheduledEventPending", severity="warning", sev="1"}', value: 1}
          - {labels: '{alertname="ScheduledEventStarted", severity="critical", sev="1"}', value: 1}
      - expr: sum(count_over_time(ALERTS{alertname="ScheduledEventStarted", alertstate="firing"}[1h]))
        eval_time: 40m
        exp_samples: [{labels: '{}', value: 12}]
"""
LABELS = 'event_id="A", event_type="Reboot", event_source="User"'


def test_the_rules_work_when_they_are_evaluated_once_a_minute(tmp_path: Path) -> None:
    """Rules and limits are Azure Monitor's; a Reboot is announced and starts, and each has one severity."""
    assert all(len(group["properties"]["rules"]) <= 20 for group in GROUPS)
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(converted()))
    found = sum(len(group["properties"]["rules"]) for group in GROUPS)
    assert f"SUCCESS: {found} rules found" in tool("promtool", "check", "rules", file)
    text = REBOOT.replace("LABELS", LABELS).replace(
        "GAUGE", "azure_scheduled_events_event_phase_timestamp_seconds"
    )
    text = text.replace("{VM", '{job="azure-scheduled-events-exporter", instance="vm-1"')
    (tmp_path / "test.yml").write_text(text)
    tool("promtool", "test", "rules", tmp_path / "test.yml")
