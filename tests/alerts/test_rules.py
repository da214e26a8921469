"""Tests of the rule files: promtool's, and that they fit the exporter; `scripts.alerts` checks the rest."""

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from exporter.metrics import Metrics, SnapshotCollector
from exporter.model.jobs import Signal
from exporter.model.views import Snapshot
from exporter.model.vm import VirtualMachine
from scripts.alerts import PROMTOOL_TESTS, RULE_FILES, rules
from tests.alerts.support import tool
from tests.builders import scheduled, started
from tests.clocks import NOW
from tests.lives import Story
from tests.web.support import Scene

_SELECTOR = re.compile(r"\b((?:azure_scheduled_events|process)[a-z_:]*|up\b)(?:\{(.*?)\})?")


@pytest.mark.parametrize("file", RULE_FILES, ids=lambda file: file.name)
def test_promtool_takes_the_rules(file: Path) -> None:
    """Every expression and template can be parsed."""
    assert "SUCCESS" in tool("promtool", "check", "rules", file)


@pytest.mark.parametrize("file", PROMTOOL_TESTS, ids=lambda file: file.name)
def test_promtool_tests(file: Path) -> None:
    """Alerts fire and resolve as in their promtool tests."""
    tool("promtool", "test", "rules", file)


def exposed() -> dict[str, set[str]]:
    """Return the names of all samples that an exporter exposes, with the labels of each."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.notifying(["chat"])
    metrics.approving(["short-freeze"])
    metrics.hooking(["drain"])
    metrics.draining()
    for signal in Signal:
        metrics.exporting(signal)
    metrics.loaded(None)
    story, families = Story(), [*registry.collect()]
    for event in (scheduled(), started()):
        story.feed(event)
        vm, current = VirtualMachine(name="WestNO_0"), tuple(story.current)
        snapshot = Snapshot(vm=vm, last_success=NOW, incarnation=1, current=current)
        picture = SnapshotCollector(Scene(snapshot, waiting={"chat": 0}))
        families += picture.collect()
    found: dict[str, set[str]] = {}
    for sample in (sample for family in families for sample in family.samples):
        found.setdefault(sample.name, set()).update(sample.labels)
    return found


def used() -> list[tuple[str, set[str]]]:
    """Return every metric that an expression selects, with the labels of its matchers."""
    found = _SELECTOR.findall("\n".join(rule["expr"] for rule in rules()))
    return [(name, set(re.findall(r'(\w+)\s*[!=]~?"', matchers))) for name, matchers in found]


def test_every_metric_of_the_rules_is_there() -> None:
    """A rule for a metric or label that the exporter does not expose would never fire."""
    names = exposed() | {"up": {"job"}}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    selected = [(name, labels) for name, labels in used() if name not in recorded]
    assert len(selected) > 20
    for name, labels in selected:
        assert name in names, name
        assert labels <= names[name], name
