"""Events that begin and end at random moments, with the rules and the Alertmanager example as shipped.

Alertmanager may not look at a group between the end of one phase of an event and the beginning of the next.
"""

import contextlib
import http.server
import json
import logging
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.alerts.support import ALERTS, RULE_FILES
from tests.end_to_end.program import free_port, running
from tests.notifications.receivers import http_receiver

log = logging.getLogger(__name__)

TARGETS, EVENTS = 8, 10
SPREAD = 40.0
"""Over how many seconds events are announced."""


@dataclass(frozen=True)
class Plan:
    """When an event is announced, starts (never: cancelled) and ends, in seconds."""

    event_id: str
    announced: float
    started: float | None
    over: float

    @classmethod
    def draw(cls, event_id: str, dice: random.Random) -> "Plan":
        """Choose the moments at random; a third of the events is cancelled."""
        announced = dice.uniform(10, 10 + SPREAD)
        started = announced + dice.uniform(16, 26)
        if dice.random() < 1 / 3:
            return cls(event_id, announced, None, started)
        return cls(event_id, announced, started, started + dice.uniform(16, 26))

    def lines(self, now: float, due: float) -> Iterator[str]:
        """Yield what an exporter exposes of it."""
        if not self.announced <= now < self.over:
            return
        is_started = self.started is not None and now >= self.started
        labels = f'event_id="{self.event_id}",event_type="Reboot"'
        status = "Started" if is_started else "Scheduled"
        info = f'{labels},event_status="{status}",event_source="Platform",target="self"'
        yield f"azure_scheduled_events_event_info{{{info}}} 1"
        if not is_started:
            yield f"azure_scheduled_events_event_not_before_timestamp_seconds{{{labels}}} {due}"

    @property
    def messages(self) -> list[tuple[str, ...]]:
        """What Alertmanager is to send: the names of the alerts that fire, message by message."""
        started = [("ScheduledEventStarted",)] if self.started else []
        return [("ScheduledEventPending",), *started, ()]


@contextlib.contextmanager
def exporters(plans: list[list[Plan]]) -> Iterator[list[str]]:
    """Serve the metrics of a VM for each list of plans; return their addresses."""
    began = time.time()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            now, due = time.time() - began, began + 120
            own = plans[addresses.index(f"127.0.0.1:{self.server.server_port}")]  # type: ignore[attr-defined] # HTTPServer
            lines = ["azure_scheduled_events_up 1", *(line for plan in own for line in plan.lines(now, due))]
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(f"{line}\n" for line in lines).encode())

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in plans]
    addresses = [f"127.0.0.1:{server.server_port}" for server in servers]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield addresses
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


@pytest.mark.timeout(300)
def test_no_event_is_told_in_the_wrong_order(tmp_path: Path) -> None:
    """Each event is announced, starts and is over, or is announced and cancelled, and nothing else."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    plans = [[Plan.draw(f"{vm}-{event}", dice) for event in range(EVENTS)] for vm in range(TARGETS)]
    with http_receiver() as receiver, exporters(plans) as addresses:
        configuration = yaml.safe_load((ALERTS / "alertmanager.example.yml").read_text())
        # A storm is not what is tested here.
        configuration["inhibit_rules"] = [
            rule for rule in configuration["inhibit_rules"] if "Many" not in str(rule["source_matchers"])
        ]
        for one in configuration["receivers"]:
            for webhook in one.get("webhook_configs", []):
                webhook["url"] = f"http://{receiver.authority}/{one['name']}"
        (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(configuration))
        port = free_port()
        job = {"job_name": "azure-scheduled-events-exporter", "static_configs": [{"targets": addresses}]}
        files = {
            "global": {"scrape_interval": "5s", "scrape_timeout": "5s"},
            "rule_files": [str(file) for file in RULE_FILES],
            "scrape_configs": [job],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]},
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(files))
        flags = [f"--config.file={tmp_path / 'alertmanager.yml'}", f"--storage.path={tmp_path / 'am'}"]
        own = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
        with (
            running("prometheus-alertmanager", port, *flags, "--cluster.listen-address="),
            running("prometheus", free_port(), *own),
        ):
            last = max(plan.over for own in plans for plan in own)
            # The longest way of a message: a scrape, an evaluation, an interval of its group; twice that.
            time.sleep(last + 30)
        sent = [request.json for request in receiver.requests]
    told: dict[str, list[tuple[str, ...]]] = {}
    for message in sent:
        firing = {one["labels"]["alertname"] for one in message["alerts"] if one["status"] == "firing"}
        told.setdefault(message["groupLabels"].get("event_id", ""), []).append(tuple(sorted(firing)))
    wrong = {
        plan.event_id: told.get(plan.event_id)
        for own in plans
        for plan in own
        if told.get(plan.event_id) != plan.messages
    }
    log.info("seed %d: %d of %d events told wrongly", seed, len(wrong), TARGETS * EVENTS)
    assert not wrong, f"seed {seed}: {wrong}"
