"""Fifty exporters with the rules and the Alertmanager example, all as shipped: `make test-fleet`.

It measures which messages arrive for one event that hits three VMs and takes one of them down, and when.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.simulator import EventPlan, Scenario, Simulator, SimulatorServer
from tests.end_to_end.program import eventually, exporter, free_port, query
from tests.receivers import Receiver, http_receiver
from tests.slow.fleet.monitoring import Target, example, monitoring

log = logging.getLogger(__name__)

VMS = 50
HIT = ("vm_0", "vm_1", "vm_2")
RULE = {"name": "reboots", "match": {"event_types": ["Reboot"]}, "action": "approve", "delay": "30s"}
PLAN = EventPlan(type="Reboot", vms=HIT, notice=600, impact=60)


@dataclass
class Fleet:
    """What runs; ``machines`` has what takes a VM down, by its name."""

    simulator: Simulator
    machines: dict[str, contextlib.ExitStack]
    receiver: Receiver
    prometheus: str


@contextlib.contextmanager
def fleet(folder: Path, scrape: str) -> Iterator[Fleet]:
    """Run it until the end of the block, with everything up."""
    simulator = Simulator(vm_name="vm_0", instances=VMS)
    file = folder / "exporter.yml"
    file.write_text(yaml.safe_dump({"approval": {"mode": "on", "rules": [RULE]}}))
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(http_receiver())
        imds = stack.enter_context(SimulatorServer(simulator))
        machines: dict[str, contextlib.ExitStack] = {}
        targets: list[Target] = []
        for vm, url in imds.urls.items():
            port, machines[vm] = free_port(), stack.enter_context(contextlib.ExitStack())
            machines[vm].enter_context(exporter(url, folder / vm, port, "--config.file", str(file)))
            targets.append({"targets": [f"127.0.0.1:{port}"], "labels": {"instance": vm}})
        prometheus = stack.enter_context(monitoring(folder, example(receiver), scrape, targets))
        here = Fleet(simulator, machines, receiver, prometheus)
        eventually(
            lambda: query(here.prometheus, f"count(azure_scheduled_events_up == 1) == {VMS}"), within=300
        )
        yield here


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("scrape", "patience"), [("5s", 25), ("15s", 45)])
def test_one_event_is_one_approval_and_a_message_per_phase(
    scrape: str, patience: float, tmp_path: Path
) -> None:
    """It is announced, starts and ends, each reported once; its start in time, though it takes a VM down."""
    with fleet(tmp_path, scrape) as here:
        announced = _mark(lambda: True)
        here.simulator.start_scenario(Scenario("one", "One event", "", HIT, (PLAN,)))
        told = [_mark(lambda: len(_messages(here)) >= 1)]
        started = _mark(lambda: here.simulator.approvals)
        here.machines["vm_1"].close()
        told.append(_mark(lambda: len(_messages(here)) >= 2))
        firing = 'ALERTS{alertname=~"ScheduledEvent(Pending|Imminent|Started)", alertstate="firing"}'
        assert [one["metric"]["alertname"] for one in query(here.prometheus, firing)] == [
            "ScheduledEventStarted"
        ] * len(HIT)
        ended = _mark(lambda: not here.simulator.picture().events)
        told.append(_mark(lambda: len(_messages(here)) >= 3))
        delays = [at - since for at, since in zip(told, (announced, started, ended), strict=True)]
        log.info("scrapes every %s: announced, started, over after %.1f, %.1f, %.1f s", scrape, *delays)
        # What could still come would come within a group_interval and an evaluation.
        time.sleep(30)
        assert len(_messages(here)) == 3
        # Prometheus repeats the end of earlier phases for a while.
        last = [{alert["labels"]["instance"] for alert in told["alerts"]} for told in _messages(here)]
        assert last == [set(HIT)] * 3
        assert delays[1] <= patience
        assert len(here.simulator.approvals) == 1


def _messages(here: Fleet) -> list[dict[str, Any]]:
    # The pager gets the critical ones alone.
    sent = [request.json for request in here.receiver.requests if request.path == "/chat"]
    return [message for message in sent if "event_id" in message["commonLabels"]]


def _mark(condition: Callable[[], object]) -> float:
    """Wait for a condition, and return when it held."""
    eventually(condition, within=150)
    return time.monotonic()
