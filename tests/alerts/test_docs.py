"""Tests of `docs/prometheus.md`: what it shows works as it stands."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from scripts.alerts import RULE_FILES, rules
from scripts.project import ROOT
from tests.alerts.support import tool

TEXT = (ROOT / "docs" / "prometheus.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
MONITOR, _ = (yaml.safe_load(block) for block in BLOCKS if block.startswith("apiVersion"))
(SCRIPT,) = re.findall(r"^```sh\n([^`]*kubectl apply.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
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
