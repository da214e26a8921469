"""Tests of the Alertmanager example: who gets what, and what may silence what."""

import re

import pytest
import yaml

from tests.alerts.support import ALERTS, alerts, tool

EXAMPLE = ALERTS / "alertmanager.example.yml"


def test_amtool_takes_it() -> None:
    """It is a valid configuration."""
    assert "SUCCESS" in tool("amtool", "check-config", EXAMPLE)


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=ScheduledEventPending severity=critical event_type=Preempt event_id=a", "pager"),
        ("alertname=ScheduledEventPending severity=warning event_type=Reboot event_id=a", "chat"),
        ("alertname=ScheduledEventStarted severity=critical event_type=Reboot event_id=a", "chat"),
        ("alertname=ScheduledEventStarted severity=info event_type=Freeze event_id=a", "log"),
        ("alertname=ScheduledEventOverrun severity=critical event_type=Reboot event_id=a", "pager"),
        ("alertname=ScheduledEventsConcurrent severity=warning", "chat"),
        ("alertname=ScheduledEventHookFailed severity=critical instance=a", "pager"),
        ("alertname=ScheduledEventsBlind severity=critical instance=a", "pager"),
        ("alertname=ScheduledEventsReloadFailed severity=warning instance=a", "chat"),
        ("alertname=ScheduledEventInhibitor severity=none instance=a", "nobody"),
        ("alertname=NodeDown severity=critical", "pager"),
    ],
)
def test_routes(labels: str, receiver: str) -> None:
    """Alerts about events are routed by event type, others by severity; the helper alert is not sent."""
    said = tool(
        "amtool", "config", "routes", "test", f"--config.file={EXAMPLE}", f"--verify.receivers={receiver}",
        *labels.split(),
    )  # fmt: skip
    assert said.splitlines()[0] == receiver


def test_no_inhibition_by_labels_that_are_missing() -> None:
    """Alertmanager takes two missing labels for equal, so what is compared must be there on both sides."""
    sure = {"job", "cluster", "namespace", "event_id", "instance"}
    for rule in yaml.safe_load(EXAMPLE.read_text())["inhibit_rules"]:
        for label in set(rule["equal"]) - sure:
            assert f'{label} =~ ".+"' in rule["source_matchers"]
            assert f'{label} =~ ".+"' in rule["target_matchers"]


def test_it_names_alerts_that_exist() -> None:
    """Every alert that the example speaks of is one of the rules'."""
    patterns = re.findall(r'alertname !?=~? "(.+?)"', EXAMPLE.read_text())
    assert len(patterns) > 8
    for pattern in patterns:
        meant = [name for name in alerts() if re.fullmatch(pattern, name)]
        assert len(meant) == pattern.count("|") + 1, pattern
