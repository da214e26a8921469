"""Events that begin and end at random moments, with the rules and the Alertmanager example as shipped.

Alertmanager may not look at a group between the end of one phase of an event and the beginning of the next.
"""

import contextlib
import http.server
import logging
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.receivers import http_receiver
from tests.slow.fleet.monitoring import example, monitoring

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
        started = announced + dice.uniform(46, 66)
        if dice.random() < 1 / 3:
            return cls(event_id, announced, None, started)
        return cls(event_id, announced, started, started + dice.uniform(26, 46))

    def lines(self, now: float, due: float) -> Iterator[str]:
        """Yield what an exporter exposes of it."""
        if not self.announced <= now < self.over:
            return
        is_started = self.started is not None and now >= self.started
        phase = (
            'phase="started",severity="critical"' if is_started else 'phase="scheduled",severity="warning"'
        )
        labels = f'event_id="{self.event_id}",event_type="Reboot",event_source="Platform",{phase}'
        yield f"azure_scheduled_events_event_phase_timestamp_seconds{{{labels}}} {0 if is_started else due}"

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
            # Not imminent.
            now, due = time.time() - began, began + 3600
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
        configuration = example(receiver)
        # A storm is not what is tested here.
        configuration["inhibit_rules"] = [
            rule for rule in configuration["inhibit_rules"] if "Many" not in str(rule["source_matchers"])
        ]
        with monitoring(tmp_path, configuration, "5s", [{"targets": addresses}]):
            last = max(plan.over for own in plans for plan in own)
            # The longest way of a message: a scrape, an evaluation, an interval of its group; twice that.
            time.sleep(last + 30)
        # The pager gets the critical ones alone.
        sent = [request.json for request in receiver.requests if request.path == "/chat"]
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
