"""Approvals by the running programs of three VMs of a group."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, exporter, free_port, get, metric
from tests.end_to_end.test_approve import HALL, plan, scenario
from tests.end_to_end.test_traces import environment
from tests.notifications.receivers import Receiver, http_receiver
from tests.tracing.receiver import spans

FAILOVER = 4.0
SHORT = {"name": "short", "match": {"event_types": ["Freeze"], "max_duration": "8s"}, "action": "approve"}
SETTINGS = {"approval": {"mode": "on", "rules": [SHORT], "failover_after": f"{FAILOVER:g}s"}}


class Vm:
    def __init__(self, name: str, endpoint: str, folder: Path) -> None:
        self.name = name
        self.endpoint = endpoint
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(
        self, settings: Mapping[str, Any], environ: Mapping[str, str] | None = None
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Run its exporter with a configuration, until the end of the block; it is killed then."""
        file = self.folder / f"{self.name}.yml"
        file.write_text(json.dumps(settings))
        words = ["--config.file", str(file), "--poll.interval", "200ms", "--instance.name", self.name]
        state = self.folder / self.name
        with exporter(self.endpoint, state, self.port, *words, environ=environ) as process:
            yield process

    def event(self, event_id: str) -> Any:
        """Return an event as its API has it; a LookupError becomes an AssertionError, to be waited for."""
        answer = json.loads(get(f"{self.url}/api/v1/events"))
        found = [event for event in (*answer["current"], *answer["past"]) if event_id in event["ids"]]
        assert found, f"{event_id} is not known"
        return found[0]

    def approval(self, event_id: str) -> Any:
        return self.event(event_id)["approval"]


def names(vm: Vm, event_id: str) -> list[str]:
    return [record["transition"] for record in vm.event(event_id)["transitions"]]


def approved(vm: Vm, event_id: str) -> bool:
    return "approved" in names(vm, event_id)


def started(vm: Vm, event_id: str) -> bool:
    return "started" in names(vm, event_id)


def transitions_told(receiver: Receiver) -> list[tuple[str, str]]:
    """Return the events of a webhook's requests, each with its transition."""
    sent = [request.json for request in tuple(receiver.requests)]
    return [(one["subject"], one["type"].removeprefix("scheduled_event.")) for one in sent]


def test_three_vms_of_a_group(tmp_path: Path) -> None:
    """The first in Resources approves; once it is dead the second does, in its turn; the third never."""
    group = Simulator(vm_name=HALL[0], instances=len(HALL), requests_per_second=0)
    with SimulatorServer(group) as imds, http_receiver() as chat:
        first, second, third = (Vm(name, imds.urls[name], tmp_path) for name in HALL)
        chats = [{"name": "chat", "webhook": f"http://{chat.authority}/"}]
        telling = SETTINGS | {"notifications": {"targets": chats}}
        with http_receiver() as traces, second.running(telling, environ=environment(traces)):
            with third.running(SETTINGS), first.running(telling, environ=environment(traces)):
                for vm in (first, second, third):
                    eventually(lambda: get(f"{vm.url}/-/ready"))  # noqa: B023  # called at once
                (one,) = group.start_scenario(scenario(plan()))
                eventually(lambda: approved(first, one))
                for vm in (second, third):
                    eventually(lambda: started(vm, one))  # noqa: B023  # called at once
                    assert vm.approval(one) == {"state": None, "rule": None, "reason": None}
                assert first.approval(one)["state"] == "approved"
                eventually(lambda: any(span.name == "approve short" for span in spans(traces)))
                eventually(lambda: (one, "approved") in transitions_told(chat))
            with third.running(SETTINGS):
                (two,) = group.start_scenario(scenario(plan()))
                eventually(lambda: approved(second, two))
                eventually(lambda: started(third, two))
                assert third.approval(two)["state"] is None
            seen = datetime.fromisoformat(second.event(two)["first_seen"])
            assert (group.approvals[1].at - seen).total_seconds() >= FAILOVER
            eventually(lambda: approvals(second) == (1, 1))
            eventually(lambda: (two, "approved") in transitions_told(chat))
            eventually(lambda: sum(span.name == "approve short" for span in spans(traces)) == 2)
            # What arrived just before a kill comes again.
            eventually(lambda: metric(second.url, "notifications_pending", target="chat") == 0)
        with second.running(telling):
            eventually(lambda: get(f"{second.url}/-/ready"))
            (other,) = group.start_scenario(scenario(plan(vms=("web_1",))))
            eventually(lambda: (other, "approved") in transitions_told(chat))
            assert names(second, two).count("approved") == 1
            eventually(lambda: approvals(second) == (1, 1))
    assert [approval.event_id for approval in group.approvals] == [one, two, other]
    for event_id in (one, two, other):
        assert transitions_told(chat).count((event_id, "approved")) == 1
    by = {span.resource["host.name"]: span for span in spans(traces) if span.name == "approve short"}
    assert set(by) == {"web_0", "web_1"}
    assert by["web_1"].trace_id == two.replace("-", "").lower()


def approvals(vm: Vm) -> tuple[float, float]:
    """Return how many approvals a VM's metrics count, as transitions and as attempts that succeeded."""
    return (
        metric(vm.url, "transitions_total", event_type="Freeze", transition="approved"),
        metric(vm.url, "approvals_total", rule="short", outcome="approved"),
    )
