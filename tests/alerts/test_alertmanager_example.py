"""Tests of the Alertmanager example: who gets what, and what may silence what."""

import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest
import yaml

from scripts.alerts import alerts
from tests.alerts.support import EXAMPLE, alertmanager, tool
from tests.end_to_end.program import eventually, get


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=ScheduledEventPending severity=critical event_type=Preempt event_id=a", "pager,chat"),
        ("alertname=ScheduledEventPending severity=warning event_type=Preempt event_id=a", "chat"),
        ("alertname=ScheduledEventStarted severity=critical event_type=Reboot event_id=a", "pager,chat"),
        ("alertname=ScheduledEventStarted severity=info event_type=Freeze event_id=a", "log"),
        ("alertname=ScheduledEventOverrun severity=critical event_type=Reboot event_id=a", "pager"),
        ("alertname=ScheduledEventsConcurrent severity=warning", "chat"),
        ("alertname=ScheduledEventsMany severity=critical", "pager"),
        ("alertname=ScheduledEventHookFailed severity=critical instance=a", "pager"),
        ("alertname=ScheduledEventsReloadFailed severity=warning instance=a", "chat"),
        ("alertname=NodeDown severity=critical", "pager"),
    ],
)
def test_routes(labels: str, receiver: str) -> None:
    """Critical pages, warning is for chat, info for the log; chat has the whole story of an event."""
    said = tool(
        "amtool", "config", "routes", "test", f"--config.file={EXAMPLE}", f"--verify.receivers={receiver}",
        *labels.split(),
    )  # fmt: skip
    assert said.splitlines()[0] == receiver


SINGLE = (
    ("ScheduledEventPending", "Freeze", "info", True),
    ("ScheduledEventPending", "Reboot", "warning", True),
    ("ScheduledEventImminent", "Redeploy", "warning", True),
    ("ScheduledEventPending", "Preempt", "critical", False),
    ("ScheduledEventStarted", "Freeze", "info", True),
    ("ScheduledEventStarted", "Reboot", "critical", False),
    ("ScheduledEventOverrun", "Freeze", "warning", False),
)


def test_a_storm_inhibits_what_is_not_critical(tmp_path: Path) -> None:
    """With ScheduledEventsMany, single events of its job are reported only if they are critical."""
    sent = [{"alertname": "ScheduledEventsMany", "job": "vms", "severity": "critical"}]
    for job in ("vms", "spot"):
        for number, (name, kind, severity, _) in enumerate(SINGLE):
            event = {"event_id": f"{job}-{number}", "event_type": kind, "instance": str(number)}
            sent.append({"alertname": name, "job": job, "severity": severity, **event})
    wanted = {("vms", *single[:3]) for single in SINGLE if single[3]}
    _inhibits(tmp_path, sent, wanted, "job", "alertname", "event_type", "severity")


def test_what_an_event_takes_down_is_inhibited(tmp_path: Path) -> None:
    """All alerts of a VM that is rebooted, and of one that is paused those that are not critical.

    Alerts about what the exporter does for the event, and those of other VMs, are reported.
    """
    about = {"alertname": "ScheduledEventStarted", "job": "vms", "severity": "info"}
    sent = [about | {"event_id": kind, "event_type": kind, "instance": kind} for kind in ("Reboot", "Freeze")]
    others = (("NodeDown", "critical"), ("NodeSlow", "warning"), ("ScheduledEventHookFailed", "critical"))
    for vm in ("Reboot", "Freeze", "another"):
        sent += [{"alertname": name, "severity": how, "instance": vm} for name, how in others]
    wanted = {("Reboot", "NodeDown"), ("Reboot", "NodeSlow"), ("Freeze", "NodeSlow")}
    _inhibits(tmp_path, sent, wanted, "instance", "alertname")


def test_alerts_that_name_the_node_are_inhibited(tmp_path: Path) -> None:
    """Those of Kubernetes have no instance that is the VM's; those of other Nodes are reported."""
    event = {
        "alertname": "ScheduledEventStarted",
        "event_type": "Reboot",
        "event_id": "a",
        "instance": "aks-0",
    }
    sent = [event | {"job": "vms", "severity": "critical", "node": "aks-0"}]
    names = ("KubeNodeNotReady", "KubeNodeUnreachable", "KubeletDown")
    for node in ("aks-0", "aks-1"):
        sent += [{"alertname": name, "node": node, "instance": "kube-state-metrics:8080"} for name in names]
    sent.append({"alertname": "KubePodCrashLooping", "severity": "warning"})
    _inhibits(tmp_path, sent, {("aks-0", name) for name in names}, "node", "alertname")


def _inhibits(
    folder: Path, sent: Sequence[Mapping[str, str]], wanted: AbstractSet[tuple[str, ...]], *names: str
) -> None:
    """Post alerts, and wait until exactly those that are wanted are inhibited; these are told by labels."""

    def inhibited() -> set[tuple[str, ...]]:
        return {
            tuple(one["labels"][name] for name in names)
            for one in json.loads(get(f"{url}/api/v2/alerts"))
            if one["status"]["inhibitedBy"]
        }

    with alertmanager(folder) as url:
        body = json.dumps([{"labels": labels} for labels in sent]).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{url}/api/v2/alerts", body, headers)).close()
        # Alertmanager answers before it has looked for what each alert inhibits.
        eventually(lambda: inhibited() == wanted)


def test_no_inhibition_by_labels_that_are_missing() -> None:
    """Alertmanager takes two missing labels for equal, so what is compared must be there on both sides."""
    sure = {"job", "event_id"}
    for rule in yaml.safe_load(EXAMPLE.read_text())["inhibit_rules"]:
        # PollStale and Blind are of one target.
        for label in set(rule["equal"]) - (sure if "job" not in rule["equal"] else sure | {"instance"}):
            assert f'{label} =~ ".+"' in rule["source_matchers"]
            assert f'{label} =~ ".+"' in rule["target_matchers"]


def test_it_names_alerts_that_exist() -> None:
    """Every alert that the example speaks of is one of the rules'."""
    patterns = re.findall(r'alertname !?=~? "(.+?)"', EXAMPLE.read_text())
    assert len(patterns) > 8
    for pattern in patterns:
        meant = [name for name in alerts() if re.fullmatch(pattern, name)]
        assert len(meant) == pattern.count("|") + 1, pattern
