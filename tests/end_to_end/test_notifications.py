"""Tests of the running program's notifications, and how to read what receivers got."""

import json
import re
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from exporter.simulator import Simulator, SimulatorServer
from tests.builders import raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.notifications.receivers import Receiver, http_receiver

NAME = "demo_0"

SINGLE = re.compile(r"^\[\w+\] (\w+) (\w+): ")
WATCH = re.compile(r"^\[\w+\] Watch (blind|recovered): ")
WATCH_LINE = re.compile(r"^- .* UTC: Watch (?:blind|recovered): ", re.MULTILINE)
EVENT_ID = re.compile(r"^- Event: \w+ (\S+)$", re.MULTILINE)
LINE = re.compile(r"^- \S+ \S+ UTC (\w+): .*\((\S+)\)$", re.MULTILINE)

Told = tuple[str, str]  # event id, transition


def told(request: Any) -> list[Told]:
    """Return the transitions in a message or a digest; none for messages about the watch."""
    title, body = request["title"], request["message"]
    if WATCH.match(title):
        return []
    if " messages from " in title:
        return [(event_id, transition) for transition, event_id in LINE.findall(body)]
    single, event_id = SINGLE.match(title), EVENT_ID.search(body)
    assert single, title
    assert event_id, body
    return [(event_id[1], single[2])]


def count(receiver: Receiver) -> int:
    """Count the transitions and outages of the watch that a receiver got."""
    watch = sum(
        bool(WATCH.match(request.json["title"])) + len(WATCH_LINE.findall(request.json["message"]))
        for request in receiver.requests
    )
    return watch + sum(len(told(request.json)) for request in receiver.requests)


@dataclass
class Happened:
    """The transitions of this VM by the exporter, in order, with their times."""

    at: dict[Told, list[datetime]] = field(default_factory=dict)

    @classmethod
    def read(cls, url: str) -> "Happened":
        """Ask the API."""
        answer = json.loads(get(f"{url}/api/v1/events"))
        found = cls()
        for event in (*answer["current"], *answer["past"]):
            if event["target"] != "self":
                continue
            for entry in event["transitions"]:
                at = datetime.fromisoformat(entry["at"])
                found.at.setdefault((event["id"], entry["transition"]), []).append(at)
        for times in found.at.values():
            times.sort()
        return found

    def check(self, receiver: Receiver, kills: int, *, refused: Told | None = None) -> None:
        """Check what a receiver got: all of it, nothing else, each event's in order, twice only by a kill.

        ``refused`` is what it did not accept a message about.
        """
        seen: Counter[Told] = Counter()
        moments: dict[str, list[datetime]] = {}
        repeats = 0
        for batch in (told(request.json) for request in receiver.requests):
            # An event that returns has its transitions once in each of its lives; of these nobody outside can
            # tell which one a message is about.
            again = False
            for entry in batch:
                if seen[entry] >= len(self.at[entry]):
                    again = True
                    continue
                seen[entry] += 1
                if len(self.at[entry]) == 1:
                    moments.setdefault(entry[0], []).append(self.at[entry][0])
            repeats += again
        assert seen == {entry: len(times) for entry, times in self.at.items() if entry != refused}
        assert repeats <= kills
        for times in moments.values():
            assert times == sorted(times)


def metric(url: str, name: str, **labels: str) -> float:
    """Read a sample from /metrics."""
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    series = f"azure_scheduled_events_{name}{{{wanted}}}" if labels else f"azure_scheduled_events_{name}"
    line = re.search(rf"^{re.escape(series)} (\S+)$", get(f"{url}/metrics"), re.MULTILINE)
    assert line, f"{name} {wanted}"
    return float(line[1])


def reload(process: "subprocess.Popen[bytes]", url: str) -> None:
    """Make an exporter reload its configuration, and wait until it is applied."""
    name = "config_last_reload_success_timestamp_seconds"
    before = metric(url, name)
    process.send_signal(signal.SIGHUP)
    eventually(lambda: metric(url, name) > before)


def configuration(folder: Path, **receivers: Receiver) -> Path:
    """Write a configuration with these targets, all of which get everything."""
    targets = [
        {"name": name, "url": f"json://{receiver.authority}/{name}"} for name, receiver in receivers.items()
    ]
    file = folder / "exporter.yml"
    file.write_text(json.dumps({"notifications": {"targets": targets}}))
    return file


def test_the_metrics_agree_with_what_arrived(tmp_path: Path) -> None:
    """Deliveries and failed tries are counted as the receiver saw them."""
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(simulator) as imds, http_receiver(500) as receiver:
        file = configuration(tmp_path, oncall=receiver)
        with exporter(
            imds.url, tmp_path / "state", port, "--config.file", str(file), "--poll.interval", "200ms"
        ):
            eventually(lambda: get(f"{url}/-/ready"))
            assert metric(url, "notifications_total", target="oncall", outcome="delivered") == 0
            event = raw_event(Resources=[NAME])
            simulator.set_document({"DocumentIncarnation": 1, "Events": [event]})
            eventually(lambda: metric(url, "notifications_total", target="oncall", outcome="failed") >= 2)
            assert metric(url, "notifications_pending", target="oncall") == 1
            assert metric(url, "degraded", reason="notifications_failing") == 1
            assert "it answered 500" in get(f"{url}/api/v1/status")
            receiver.mood = 200
            eventually(lambda: metric(url, "degraded", reason="notifications_failing") == 0)
            assert metric(url, "notifications_pending", target="oncall") == 0
            assert metric(url, "notifications_total", target="oncall", outcome="delivered") == 1
            assert metric(url, "notification_delay_seconds_count", target="oncall") == 1
    assert len(receiver.requests) == 1
