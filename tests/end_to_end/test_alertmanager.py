"""The shipped rules and the Alertmanager example at work, with real servers and several exporters."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from exporter.simulator import Simulator, SimulatorServer
from tests.alerts.support import write_rules
from tests.builders import raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get, query, running
from tests.fleet.monitoring import example
from tests.notifications.receivers import Receiver, http_receiver

NAMES = [f"vm_{number}" for number in range(6)]
SHARED = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
REBOOT = "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"
NODE_DOWN = {
    "alert": "NodeDown",
    "expr": 'up{job="node"} == 0',
    "for": "5s",  # a busy machine fails a scrape now and then
    "labels": {"severity": "critical"},
}


@dataclass
class Site:
    """Everything that runs; ``processes`` are the exporters, by the VM's name."""

    simulators: Sequence[Simulator]
    processes: "dict[str, subprocess.Popen[bytes]]"
    receiver: Receiver
    prometheus: str
    alertmanager: str

    def announce(self, number: int, *events: dict[str, Any]) -> None:
        """Show a document to both halves of the fleet."""
        for simulator in self.simulators:
            simulator.set_document({"DocumentIncarnation": number, "Events": list(events)})

    def messages(self, path: str = "", **labels: str) -> list[dict[str, Any]]:
        """Return the messages to a receiver (all: "") about alerts that all have these labels."""
        sent = [request.json for request in self.receiver.requests if request.path.endswith(path)]
        return [
            one for one in sent if all(labels.items() <= alert["labels"].items() for alert in one["alerts"])
        ]

    def announced(self, path: str, event_id: str, vms: Sequence[str]) -> list[dict[str, Any]]:
        """Return the alerts of the latest message about an event if they fire for these VMs."""
        for message in self.messages(path, event_id=event_id)[-1:]:
            firing = [one for one in message["alerts"] if one["status"] == "firing"]
            if {one["labels"]["instance_name"] for one in firing} == set(vms):
                return firing
        return []

    def inhibited(self, **labels: str) -> list[list[str]]:
        """Return, for each of Alertmanager's alerts with these labels, the alerts that inhibit it."""
        alerts = json.loads(get(f"{self.alertmanager}/api/v2/alerts"))
        return [one["status"]["inhibitedBy"] for one in alerts if labels.items() <= one["labels"].items()]

    def unwell_rules(self) -> list[str]:
        groups = json.loads(get(f"{self.prometheus}/api/v1/rules"))["data"]["groups"]
        return [rule["name"] for group in groups for rule in group["rules"] if rule["health"] != "ok"]


def event(event_id: str, kind: str, status: str, vms: Sequence[str]) -> dict[str, Any]:
    due = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    not_before = due if status == "Scheduled" else ""
    return raw_event(
        EventId=event_id, EventType=kind, EventStatus=status, Resources=list(vms), NotBefore=not_before
    )


def alertmanager_file(folder: Path, receiver: Receiver) -> Path:
    """Write the example with a test's patience and receivers, and nothing else changed."""
    configuration = example(receiver)
    routes = [configuration["route"]]
    for route in routes:
        route |= {"group_wait": "3s", "group_interval": "1s"}
        routes += route.get("routes", [])
    file = folder / "alertmanager.yml"
    file.write_text(json.dumps(configuration))
    return file


def prometheus_file(folder: Path, ports: dict[str, int], alertmanager: int) -> Path:
    """Write a configuration with the shipped rules, evaluated every second, and one about a VM's node.

    The node's target is the exporter's own, under another job: both go down with the VM.
    """
    write_rules(folder)
    (folder / "node.rules.yml").write_text(json.dumps({"groups": [{"name": "node", "rules": [NODE_DOWN]}]}))
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}} for name, port in ports.items()
    ]
    only_up = [{"source_labels": ["__name__"], "regex": "azure_.*", "action": "drop"}]
    node = {"job_name": "node", "static_configs": targets[:2], "metric_relabel_configs": only_up}
    fleet = {"job_name": "azure-scheduled-events-exporter", "static_configs": targets}
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["*.rules.yml"],
        "scrape_configs": [fleet, node],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]},
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(configuration))
    return file


@contextlib.contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Run two simulators, an exporter for each VM, Prometheus and Alertmanager until the end of the block."""
    simulators = [Simulator(requests_per_second=0) for _ in range(2)]
    ports = {name: free_port() for name in NAMES}
    own, theirs = free_port(), free_port()
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(http_receiver())
        urls = [stack.enter_context(SimulatorServer(simulator)).url for simulator in simulators]
        processes = {
            name: stack.enter_context(
                exporter(urls[index % 2], folder / name, ports[name], "--instance.name", name)
            )
            for index, name in enumerate(NAMES)
        }
        flags = [f"--config.file={alertmanager_file(folder, receiver)}", f"--storage.path={folder / 'am'}"]
        # A scrape that fails for some seconds is an alert.
        for port in ports.values():
            eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))  # noqa: B023  # called at once
        program = running("prometheus-alertmanager", theirs, *flags, "--cluster.listen-address=")
        alertmanager = stack.enter_context(program)
        flags = [f"--config.file={prometheus_file(folder, ports, theirs)}"]
        program = running("prometheus", own, *flags, f"--storage.tsdb.path={folder / 'tsdb'}")
        prometheus = stack.enter_context(program)
        yield Site(simulators, processes, receiver, prometheus, alertmanager)


def test_an_event_of_many_vms_is_one_message_and_explains_what_it_takes_down(tmp_path: Path) -> None:
    """There is one message per event; its VM's other alerts are inhibited, those of other VMs are not."""
    with site(tmp_path) as here:
        ready = "count(azure_scheduled_events_up == 1) == 6 and on () count(up == 1) == 8"
        eventually(lambda: query(here.prometheus, ready), within=60)
        assert not query(here.prometheus, 'ALERTS{alertstate="firing"}')

        shared = event(SHARED, "Redeploy", "Scheduled", NAMES)
        here.announce(1, shared)
        named = eventually(lambda: here.announced("/chat", SHARED, NAMES), within=60)
        assert [alert["labels"]["alertname"] for alert in named] == ["ScheduledEventPending"] * 6
        assert named[0]["annotations"]["summary"].startswith("Redeploy of vm_0 scheduled, not before ")

        here.announce(2, shared, event(REBOOT, "Reboot", "Started", NAMES[:1]))
        eventually(lambda: here.messages("/chat", event_id=REBOOT))
        for name in NAMES[:2]:
            here.processes[name].kill()
        eventually(lambda: here.messages("/pager", alertname="NodeDown", instance="vm_1"))
        (silencers,) = eventually(lambda: here.inhibited(alertname="NodeDown", instance="vm_0"))
        assert silencers
        assert not here.messages(alertname="NodeDown", instance="vm_0")

        # The first two VMs are down, and keep the events until they are scraped again.
        here.announce(3)
        eventually(
            lambda: not query(here.prometheus, "azure_scheduled_events:event and on (instance) up == 1")
        )
        assert len(query(here.prometheus, "azure_scheduled_events:event")) == 3
        assert here.unwell_rules() == []
        assert "error" not in json.dumps([one["alerts"] for one in here.messages()])
