"""Tests of the rule files: promtool's, and that they fit the exporter and their runbooks."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from exporter.health import Health
from exporter.metrics import EventCollector, Metrics, SnapshotCollector
from exporter.model.views import Snapshot
from exporter.model.vm import VirtualMachine
from tests.alerts.support import (
    ALERTS,
    PROMTOOL_TESTS,
    RULE_FILES,
    alerts,
    firing,
    moments,
    rules,
    tool,
)
from tests.builders import scheduled, started
from tests.clocks import NOW, HandClock
from tests.dashboards.reading import NAMES, load, queries
from tests.lives import Story

ALERTS_IN_ORDER = [
    "ScheduledEventPending",
    "ScheduledEventImminent",
    "ScheduledEventRescheduled",
    "ScheduledEventStarted",
    "ScheduledEventOverrun",
    "ScheduledEventsConcurrent",
    "ScheduledEventsMany",
    "ScheduledEventHookFailed",
    "ScheduledEventUnannouncedPause",
    "ScheduledEventsBlind",
    "ScheduledEventsPollStale",
    "ScheduledEventsClockSkew",
    "ScheduledEventsExporterDown",
    "ScheduledEventNotificationsFailing",
    "ScheduledEventMessagesLost",
    "ScheduledEventApprovalsFailing",
    "ScheduledEventsReloadFailed",
    "ScheduledEventsDegraded",
    "ScheduledEventsNoExporter",
]
JOB = "azure-scheduled-events-exporter"
RUNBOOKS = (
    "https://github.com/azure-scheduled-events-exporter/azure-scheduled-events-exporter"
    "/blob/main/alerts/runbooks/"
)
# A selector of several metrics, as in a template: {__name__=~"prefix(one|other)", job=...}
_SEVERAL = re.compile(r'\{__name__=~\\?"([a-z_:]+)\(([a-z_|]+)\)\\?", ')
_SELECTOR = re.compile(r"\b((?:azure_scheduled_events|process)[a-z_:]*|up\b)(?:\{(.*?)\})?")


@pytest.mark.parametrize("file", RULE_FILES, ids=lambda file: file.name)
def test_promtool_takes_the_rules(file: Path) -> None:
    """Every expression and template can be parsed."""
    assert "SUCCESS" in tool("promtool", "check", "rules", file)


@pytest.mark.parametrize("file", PROMTOOL_TESTS, ids=lambda file: file.name)
def test_promtool_tests(file: Path) -> None:
    """Alerts fire and resolve as in their promtool tests."""
    tool("promtool", "test", "rules", file)


def test_the_alerts_are_those_that_users_know() -> None:
    """Silences and routes of users go by these names; the helper of Alertmanager is in a file of its own."""
    assert list(alerts(RULE_FILES[0])) == ALERTS_IN_ORDER
    assert list(alerts(RULE_FILES[1])) == ["ScheduledEventInhibitor"]


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_a_person_needs(name: str) -> None:
    """Each has a severity, a summary, a description and the address of its runbook."""
    alert = alerts()[name]
    assert all(labels["severity"] for labels in firing(name))
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["description"]
    assert alert["annotations"]["runbook_url"] == f"{RUNBOOKS}{name}.md"


def test_alerts_and_runbooks_belong_together() -> None:
    """No alert is without a runbook, no runbook without an alert, and each answers the four questions."""
    runbooks = {file.stem: file.read_text() for file in (ALERTS / "runbooks").iterdir()}
    assert runbooks.keys() == alerts().keys()
    for name, text in runbooks.items():
        assert text.startswith(f"# {name}\n")
        for heading in ("## What to check\n", "## What to do\n", "## How to silence\n"):
            assert heading in text, name


@pytest.mark.parametrize("name", alerts())
def test_an_alert_is_tested_before_while_and_after(name: str) -> None:
    """In one promtool test at least it is quiet, then fires, then resolves."""
    seen: dict[str, list[tuple[int, bool]]] = {}
    for test, at, alert, fires in moments():
        if alert == name:
            seen.setdefault(test, []).append((at, fires))
    stories = ["".join("F" if fires else "q" for _, fires in sorted(story)) for story in seen.values()]
    assert any(re.search("q.*F.*q", story) for story in stories), stories


def test_the_job_stands_in_one_place() -> None:
    """Whoever calls the job otherwise changes one word."""
    assert rules()[0] == {"record": "azure_scheduled_events:job", "expr": "vector(1)", "labels": {"job": JOB}}
    assert JOB not in json.dumps([rule["expr"] for rule in rules()])


def exposed() -> dict[str, set[str]]:
    """Return the names of all samples that an exporter exposes, with the labels of each."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.notifying(["chat"])
    metrics.approving(["short-freeze"])
    metrics.hooking(["drain"])
    metrics.draining()
    metrics.loaded(None)
    story, clock, families = Story(), HandClock(), [*registry.collect()]
    for event in (scheduled(), started()):
        story.feed(event)
        vm, current = VirtualMachine(name="WestNO_0"), tuple(story.current)
        snapshot = Snapshot(vm=vm, last_success=NOW, incarnation=1, current=current)
        picture = SnapshotCollector(lambda: snapshot, Health(clock), clock, waiting=lambda: {"chat": 0})  # noqa: B023  # called at once
        families += [*picture.collect(), *EventCollector(lambda: snapshot).collect()]  # noqa: B023  # likewise
    found: dict[str, set[str]] = {}
    for sample in (sample for family in families for sample in family.samples):
        found.setdefault(sample.name, set()).update(sample.labels)
    return found


def _each(several: re.Match[str]) -> str:
    """Write a selector of several metrics as one of each, the matchers at the last."""
    return " ".join(several[1] + name for name in several[2].split("|")) + "{"


def used() -> list[tuple[str, set[str]]]:
    """Return every metric that an expression or a template selects, with the labels of its matchers."""
    texts = [rule["expr"] for rule in rules()]
    texts += [text for rule in alerts().values() for text in rule["annotations"].values()]
    plain = _SEVERAL.sub(_each, "\n".join(texts))
    found = _SELECTOR.findall(plain)
    return [(name, set(re.findall(r'(\w+)\s*[!=]~?\\?["%]', matchers))) for name, matchers in found]


def test_every_metric_of_the_rules_is_there() -> None:
    """A rule for a metric or label that the exporter does not expose would never fire."""
    names = exposed() | {"up": {"job"}}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    selected = [(name, labels) for name, labels in used() if name not in recorded]
    assert len(selected) > 20
    for name, labels in selected:
        assert name in names, name
        assert labels <= names[name] | {"vm"}, name  # which targets may have


def test_every_recorded_metric_is_used() -> None:
    """No rule is recorded for nothing."""
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    shown = {metric for name in NAMES for asks in queries(load(name)) for metric in asks.metrics}
    assert recorded <= {name for name, _ in used()} | shown
