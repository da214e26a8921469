"""Tests of the running program's notifications: in time, and through a night of outages and kills."""

import itertools
import json
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from exporter.simulator import Simulator, SimulatorServer, load_scenarios
from tests.builders import raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.notifications.receivers import Receiver, http_receiver

NAME = "demo_0"
# How long the night lasts; a longer one for whoever has the time: NIGHT_SECONDS=300 make test
NIGHT_SECONDS = float(os.environ.get("NIGHT_SECONDS", "40"))
KILLS = 10
SPEED = 400.0
MOODS: tuple[int | str, ...] = (200, 200, 500, "hang", 429, 200)

SINGLE = re.compile(r"^\[\w+\] (\w+) (\w+): ")
EVENT_ID = re.compile(r"^- Event: \w+ `([^`]+)`", re.MULTILINE)
LINE = re.compile(r"^- \S+ \S+ UTC (\w+): .*\(`([^`]+)`\)$", re.MULTILINE)

Told = tuple[str, str]  # event id, transition


def told(request: Any) -> list[Told]:
    """Read which transitions a message or a digest tells of."""
    title, body = request["title"], request["message"]
    if " messages: " in title:
        return [(event_id, transition) for transition, event_id in LINE.findall(body)]
    single, event_id = SINGLE.match(title), EVENT_ID.search(body)
    assert single, title
    assert event_id, body
    return [(event_id[1], single[2])]


def count(receiver: Receiver) -> int:
    """Count the transitions that a receiver was told of."""
    return sum(len(told(request.json)) for request in receiver.requests)


@dataclass
class Happened:
    """What the exporter says has happened to this VM: transitions in their order, with their times."""

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

    def check(self, receiver: Receiver, kills: int) -> None:
        """Check what a receiver got: all of it, nothing else, in order, at most one send twice per kill."""
        seen: Counter[Told] = Counter()
        moments: list[datetime] = []
        repeats = 0
        for batch in (told(request.json) for request in receiver.requests):
            # An event that returns has its transitions once in each of its lives; of these nobody outside can
            # tell which one a message is about.
            again = [entry for entry in batch if seen[entry] >= len(self.at[entry])]
            only = [entry for entry in batch if entry not in again and len(self.at[entry]) == 1]
            moments += [self.at[entry][0] for entry in only]
            seen.update(entry for entry in batch if entry not in again)
            repeats += bool(again)
        assert seen == {entry: len(times) for entry, times in self.at.items()}
        assert repeats <= kills
        assert all(earlier <= later for earlier, later in itertools.pairwise(moments))


def metric(url: str, name: str, **labels: str) -> float:
    """Read a sample from /metrics."""
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    series = f"azure_scheduled_events_{name}{{{wanted}}}" if labels else f"azure_scheduled_events_{name}"
    line = re.search(rf"^{re.escape(series)} (\S+)$", get(f"{url}/metrics"), re.MULTILINE)
    assert line, f"{name} {wanted}"
    return float(line[1])


def configuration(folder: Path, **receivers: Receiver) -> Path:
    """Write a configuration with these targets, all of which get everything."""
    targets = [
        {"name": name, "url": f"json://{receiver.authority}/{name}"} for name, receiver in receivers.items()
    ]
    file = folder / "exporter.yml"
    file.write_text(json.dumps({"notifications": {"targets": targets}}))
    return file


@contextmanager
def moody(receiver: Receiver, chance: random.Random) -> Iterator[None]:
    """Change a receiver's mood again and again; it is in a good one at the end."""
    over = threading.Event()

    def change() -> None:
        while not over.wait(chance.uniform(0.5, 2.5)):
            receiver.released.set()
            receiver.released = threading.Event()
            receiver.mood = chance.choice(MOODS)
        receiver.mood = 200
        receiver.released.set()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.timeout(60 + NIGHT_SECONDS * 4)
def test_a_night_at_speed(tmp_path: Path) -> None:
    """Scenarios in a loop, receivers that fail in every way, ten kills: all arrives, in order, and agrees."""
    chance = random.Random(20261121)
    simulator = Simulator(load_scenarios(), speed=SPEED, loop=True, vm_name=NAME, requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(simulator) as imds, http_receiver() as steady, http_receiver() as shaky:
        file = configuration(tmp_path, steady=steady, shaky=shaky)
        flags = ("--config.file", str(file), "--poll.interval", "200ms")
        with moody(shaky, chance):
            for _ in range(KILLS):
                with exporter(imds.url, tmp_path / "state", port, *flags):
                    eventually(lambda: get(f"{url}/-/ready"))
                    time.sleep(chance.uniform(0.2, 2 * NIGHT_SECONDS / KILLS))
        before = {"steady": count(steady), "shaky": count(shaky)}
        with exporter(imds.url, tmp_path / "state", port, *flags):
            eventually(lambda: get(f"{url}/-/ready"))
            simulator.set_document({"DocumentIncarnation": 10**6, "Events": []})
            eventually(lambda: not json.loads(get(f"{url}/api/v1/events"))["current"])
            for target in ("steady", "shaky"):
                eventually(lambda: metric(url, "notifications_pending", target=target) == 0, within=60)  # noqa: B023  # called at once
            happened = Happened.read(url)
            assert len(happened.at) > 10
            happened.check(steady, KILLS)
            happened.check(shaky, KILLS)
            for target, receiver in {"steady": steady, "shaky": shaky}.items():
                delivered = metric(url, "notifications_total", target=target, outcome="delivered")
                # One may have been under way when the process before was killed.
                assert count(receiver) - before[target] - delivered in (0, 1)


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
            eventually(lambda: metric(url, "notifications_pending", target="oncall") == 0)
            assert metric(url, "notifications_total", target="oncall", outcome="delivered") == 1
            assert metric(url, "notification_delay_seconds_count", target="oncall") == 1
            assert metric(url, "degraded", reason="notifications_failing") == 0
    assert len(receiver.requests) == 1
