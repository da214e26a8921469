"""Tests of the texts of Alertmanager's messages: rendered by amtool, and sent to a stand-in for Slack."""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.alerts import ALERTS
from scripts.project import ROOT
from tests.alerts.support import EXAMPLE, alertmanager, tool
from tests.end_to_end.program import eventually
from tests.http_server import Connection, Request, answer, serving

Json = dict[str, Any]
TEMPLATES = ALERTS / "templates"
PHASES = {
    "Pending": "scheduled, not before 2026-03-04 22:15:00 UTC",
    "Started": "started at 2026-03-04 22:15:02 UTC",
}
MEANING = (
    "The VM restarts; its disks survive. Requested by a user. It starts at NotBefore or later, and earlier"
    " only if it is approved. Event A. "
)
RUNBOOK = "https://runbooks.example.com"


def about(vm: str, phase: str = "Pending", status: str = "firing") -> Json:
    """Return an alert about an event, as Alertmanager has it."""
    labels = {"alertname": f"ScheduledEvent{phase}", "event_id": "A", "event_type": "Reboot"}
    labels["event_source"] = "User"
    labels |= {"instance": vm.replace("_", "-"), "instance_name": vm, "severity": "warning", "job": "vms"}
    texts = {
        "summary": f"Reboot of {vm} {PHASES[phase]}",
        "description": "It starts at NotBefore or later, and earlier only if it is approved.",
    }
    return {"status": status, "labels": labels, "annotations": texts | {"runbook_url": RUNBOOK}}


def blind(vm: str, status: str = "firing") -> Json:
    labels = {"alertname": "ScheduledEventsBlind", "instance": vm, "severity": "critical", "job": "vms"}
    texts = {"summary": f"Scheduled events cannot be read on {vm}", "description": "For 5 minutes."}
    return {"status": status, "labels": labels, "annotations": texts | {"runbook_url": RUNBOOK}}


def render(folder: Path, name: str, *alerts: Json) -> str:
    """Return what amtool makes of a template for a group of alerts."""
    common = dict.items(alerts[0]["labels"])
    for alert in alerts[1:]:
        common = common & alert["labels"].items()
    is_firing = any(alert["status"] == "firing" for alert in alerts)
    data = {"status": "firing" if is_firing else "resolved", "alerts": alerts, "commonLabels": dict(common)}
    file = folder / "data.json"
    file.write_text(json.dumps(data))
    text = f'{{{{ template "scheduled_events.{name}" . }}}}'
    glob, given = f"--template.glob={TEMPLATES}/*.tmpl", f"--template.data={file}"
    return tool("amtool", "template", "render", glob, f"--template.text={text}", given).strip()


@pytest.mark.parametrize(
    ("alerts", "title"),
    [
        ([about("web_0")], "[WARNING] Reboot of web_0 scheduled, not before 2026-03-04 22:15:00 UTC"),
        (
            [about("web_0"), about("web_1")],
            "[WARNING] Reboot of web_0, web_1 scheduled, not before 2026-03-04 22:15:00 UTC",
        ),
        (
            [about(f"web_{number}", "Started") for number in range(4)],
            "[WARNING] Reboot of 4 VMs started at 2026-03-04 22:15:02 UTC",
        ),
        ([about("web_0", "Started"), about("web_0", status="resolved")],
         "[WARNING] Reboot of web_0 started at 2026-03-04 22:15:02 UTC"),
        ([about("web_0", "Started", "resolved")], "Reboot of web_0 is over"),
        (
            [about(vm, phase, "resolved") for phase in PHASES for vm in ("web_0", "web_1")],
            "Reboot of web_0, web_1 is over",
        ),
        ([about("web_0", status="resolved")], "Reboot of web_0 is no longer announced"),
        ([blind("web-0"), blind("web-1")], "[CRITICAL] Scheduled events cannot be read on web-0, and 1 more"),
        ([blind("web-0", "resolved")], "Resolved: Scheduled events cannot be read on web-0"),
    ],
)  # fmt: skip
def test_a_title_names_vms_type_and_time(tmp_path: Path, alerts: list[Json], title: str) -> None:
    """It can be understood on a lock screen, also of the exporter's own alerts."""
    assert render(tmp_path, "title", *alerts) == title


@pytest.mark.parametrize(
    ("severity", "status", "color"),
    [
        ("critical", "firing", "danger"),
        ("warning", "firing", "warning"),
        ("info", "firing", "#3274d9"),
        ("critical", "resolved", "good"),
    ],
)
def test_slacks_colour_follows_the_severity(tmp_path: Path, severity: str, status: str, color: str) -> None:
    """A Freeze is not as red as a Reboot, and an end is green."""
    alert = about("web_0", "Started", status)
    alert["labels"]["severity"] = severity
    assert render(tmp_path, "color", alert) == color


@pytest.mark.parametrize(
    ("name", "link", "vms"),
    [
        ("slack", f"<{RUNBOOK}|Runbook>", "VMs: web_0, web_1"),
        ("teams", f"[Runbook]({RUNBOOK})", "VMs: web_0, web_1"),
        ("mail", f'<a href="{RUNBOOK}">Runbook</a>', "<li>web_0 (web-0)</li><li>web_1 (web-1)</li>"),
    ],
)
def test_a_text_lists_the_vms(tmp_path: Path, name: str, link: str, vms: str) -> None:
    """Each says what happens to the VMs, lists them, and leads to the runbook, in its service's markup."""
    text = render(tmp_path, name, about("web_0"), about("web_1"))
    assert all(part in text for part in (MEANING, link, vms))
    over = render(tmp_path, name, about("web_0", "Started", "resolved"))
    assert "web_0" in over
    assert "Runbook" not in over
    assert "Scheduled events cannot be read on web-0" in render(tmp_path, name, blind("web-0"))


def test_what_slack_gets(tmp_path: Path) -> None:
    """With the receivers of the README, a message names the VMs and the time, and the end is told."""
    text = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"^```yaml\n(receivers:\n.*?)^```", text, re.DOTALL | re.MULTILINE)
    configuration: Json = yaml.safe_load(EXAMPLE.read_text())
    configuration |= json.loads(json.dumps(yaml.safe_load(block)))
    configuration["templates"] = [str(TEMPLATES / "*.tmpl")]
    for route in configuration["route"]["routes"]:
        route |= {"group_wait": "500ms", "group_interval": "1s"}
    sent: list[Request] = []

    def slack(connection: Connection, request: Request) -> None:
        sent.append(request)
        connection.send(answer(b"ok", headers="Content-Type: text/plain\r\n"))

    with serving(slack) as server:
        for receiver in configuration["receivers"]:
            (one,) = receiver["slack_configs"]
            del one["api_url_file"]
            one["api_url"] = f"{server.url}/{receiver['name']}"
        file = tmp_path / "alertmanager.yml"
        file.write_text(json.dumps(configuration))
        with alertmanager(tmp_path, file) as url:
            pair = [about("web_0"), about("web_1")]
            _post(url, [{**alert, "endsAt": "2100-01-01T00:00:00Z"} for alert in pair])
            eventually(lambda: sent)
            _post(url, [{**alert, "endsAt": "2020-01-01T00:00:00Z"} for alert in pair])
            eventually(lambda: len(sent) > 1)
    assert sent[0].path == "/chat"
    (shown,), (over,) = (json.loads(request.body)["attachments"] for request in sent)
    assert shown["title"] == "[WARNING] Reboot of web_0, web_1 scheduled, not before 2026-03-04 22:15:00 UTC"
    assert shown["text"].splitlines()[1] == "VMs: web_0, web_1"
    assert over["title"] == "Reboot of web_0, web_1 is no longer announced"
    assert (shown["color"], over["color"]) == ("warning", "good")


def _post(url: str, alerts: list[Json]) -> None:
    told = [{key: value for key, value in alert.items() if key != "status"} for alert in alerts]
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/v2/alerts", json.dumps(told).encode(), headers)
    urllib.request.urlopen(request).close()


def test_the_other_receivers_of_the_example(tmp_path: Path) -> None:
    """Those that stand in comments are YAML, and use templates that exist."""
    text = EXAMPLE.read_text()
    commented = re.findall(r"^  # - name: chat\n(?:^  # .*\n)+", text, re.MULTILINE)
    receivers = [one for block in commented for one in yaml.safe_load(re.sub(r"(?m)^  # ", "", block))]
    assert [list(one) for one in receivers] == [["name", "slack_configs"], ["name", "msteamsv2_configs"]]
    assert receivers[0]["slack_configs"][0]["update_message"] is True
    for name in re.findall(r'template "scheduled_events\.(\w+)"', text):
        assert render(tmp_path, name, about("web_0"))
