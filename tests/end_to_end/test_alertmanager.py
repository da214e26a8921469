"""Alerts at a real Alertmanager: of Prometheus with the shipped rules, and those that exporters post."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from exporter.simulator import Simulator, SimulatorServer
from tests.alerts.support import alertmanager, prometheus
from tests.builders import REBOOT_ID, raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.receivers import Receiver, http_receiver

TRIO = ["vm_0", "vm_1", "vm_2"]
PENDING, STARTED = "ScheduledEventPending", "ScheduledEventStarted"


def event(event_id: str, kind: str, status: str, vms: Sequence[str], *, timed: bool = True) -> dict[str, Any]:
    """Return an event of these VMs, an hour ahead where it has a time."""
    due = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    not_before = due if timed and status == "Scheduled" else ""
    return raw_event(
        EventId=event_id, EventType=kind, EventStatus=status, Resources=list(vms), NotBefore=not_before
    )


def show(simulator: Simulator, number: int, *events: dict[str, Any]) -> None:
    simulator.set_document({"DocumentIncarnation": number, "Events": list(events)})


@contextlib.contextmanager
def for_each_event(folder: Path, receiver: Receiver | None = None) -> Iterator[str]:
    """Run an Alertmanager that sends one message for each event; yield its URL."""
    folder.mkdir()
    hooks = [{"url": f"http://{receiver.authority}/"}] if receiver else []
    route = {"receiver": "hook", "group_by": ["event_id"], "group_wait": "2s", "group_interval": "1s"}
    configuration = {"route": route, "receivers": [{"name": "hook", "webhook_configs": hooks}]}
    (folder / "alertmanager.yml").write_text(json.dumps(configuration))
    with alertmanager(folder / "data", folder / "alertmanager.yml") as url:
        yield url


@contextlib.contextmanager
def posting(imds: str, folder: Path, name: str, port: int, url: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run an exporter that posts to an Alertmanager, and wait until it has a document."""
    file = folder / f"{name}.yml"
    file.write_text(f"alertmanager: {{urls: ['{url}']}}")
    flags = "--instance.name", name, "--config.file", str(file)
    with exporter(imds, folder / name, port, *flags) as process:
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
        yield process


def updated(url: str) -> str:
    """Return when the first VM's alert was posted last."""
    found = json.loads(get(f"{url}/api/v2/alerts"))
    return next(str(one["updatedAt"]) for one in found if one["labels"]["instance_name"] == TRIO[0])


def test_three_vms_are_one_message_also_across_a_kill(tmp_path: Path) -> None:
    """A kill repeats nothing, and an end that it hides is told."""
    simulator = Simulator(requests_per_second=0, idle=True)
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(http_receiver())
        url = stack.enter_context(for_each_event(tmp_path / "am", receiver))
        imds = stack.enter_context(SimulatorServer(simulator)).url
        ports = {name: free_port() for name in TRIO}
        show(simulator, 1)
        processes = {
            name: stack.enter_context(posting(imds, tmp_path, name, port, url))
            for name, port in ports.items()
        }

        def states(at: int) -> set[tuple[str, str, str]]:
            """Return the alerts of a message, each with its VM, name and status."""
            return {
                (one["labels"]["instance_name"], one["labels"]["alertname"], one["status"])
                for one in receiver.requests[at].json["alerts"]
            }

        def all_are(name: str, status: str) -> set[tuple[str, str, str]]:
            return {(vm, name, status) for vm in TRIO}

        show(simulator, 2, event(REBOOT_ID, "Reboot", "Scheduled", TRIO))
        eventually(lambda: receiver.requests)
        assert states(0) == all_are(PENDING, "firing")

        show(simulator, 3, event(REBOOT_ID, "Reboot", "Started", TRIO))
        eventually(lambda: states(-1) >= all_are(STARTED, "firing"))
        known, before = len(receiver.requests), updated(url)
        processes["vm_0"].kill()
        processes["vm_0"].wait()
        again = stack.enter_context(posting(imds, tmp_path, "vm_0", ports["vm_0"], url))
        eventually(lambda: updated(url) > before)

        again.kill()
        again.wait()
        show(simulator, 4)
        stack.enter_context(posting(imds, tmp_path, "vm_0", ports["vm_0"], url))
        eventually(lambda: receiver.requests[-1].json["status"] == "resolved")
        assert json.loads(get(f"{url}/api/v2/alerts")) == []
        since = [states(number) for number in range(known, len(receiver.requests))]
        assert set.union(*since) >= all_are(STARTED, "resolved")
        # Since the first kill each message is about an end.
        assert all("resolved" in {status for *_, status in found} for found in since)


def alerts(url: str) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Return labels and annotations of the alerts that are posted, without what belongs to a target."""
    shown = [
        ({k: v for k, v in one["labels"].items() if k not in ("job", "instance")}, one["annotations"])
        for one in json.loads(get(f"{url}/api/v2/alerts"))
        if one["labels"]["alertname"] in (PENDING, STARTED)
    ]
    return sorted(shown, key=lambda one: (one[0]["event_id"], one[0]["alertname"]))


KINDS: Sequence[tuple[str, str, bool]] = (
    ("Reboot", "Scheduled", True),
    ("Preempt", "Scheduled", True),
    ("Terminate", "Scheduled", False),
    ("Freeze", "Scheduled", True),
    ("Preempt", "Advisory", True),
    ("Freeze", "Advisory", True),
    ("SpotRebalanceRecommendation", "Started", True),
    ("Redeploy", "Started", True),
)


def test_alerts_are_those_of_prometheus_with_the_shipped_rules(tmp_path: Path) -> None:
    """For the same events both ways give the same names, labels but for those of targets, and texts.

    Every rule can be evaluated.
    """
    simulator = Simulator(requests_per_second=0, idle=True)
    events = [
        event(f"{number}{REBOOT_ID[1:]}", kind, status, TRIO, timed=timed)
        for number, (kind, status, timed) in enumerate(KINDS)
    ]
    with contextlib.ExitStack() as stack:
        own, theirs = (stack.enter_context(for_each_event(tmp_path / name)) for name in ("own", "theirs"))
        imds = stack.enter_context(SimulatorServer(simulator)).url
        port = free_port()
        show(simulator, 1)
        stack.enter_context(posting(imds, tmp_path, "vm_0", port, own))
        server = stack.enter_context(prometheus(tmp_path, {"vm_0": port}, alertmanager=theirs))
        show(simulator, 2, *events)

        def agree() -> bool:
            assert alerts(own) == alerts(theirs)
            return len(alerts(own)) == len(KINDS)

        eventually(agree)
        begun = [one | {"EventStatus": "Started", "NotBefore": ""} for one in events[:4]]
        show(simulator, 3, *begun, *events[4:])

        def started() -> list[str]:
            return [labels["event_type"] for labels, _ in alerts(own) if labels["alertname"] == STARTED]

        eventually(lambda: len(started()) == 5)
        eventually(agree, within=90)
        groups = json.loads(get(f"{server}/api/v1/rules"))["data"]["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
