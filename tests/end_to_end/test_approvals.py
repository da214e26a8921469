"""Approvals by the running programs of three VMs of a group."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, get, metric
from tests.end_to_end.test_approve import HALL, plan, scenario
from tests.end_to_end.test_otlp import environment
from tests.end_to_end.vm import Vm
from tests.outputs.otlp.receiver import spans, spans_with_hosts
from tests.receivers import Receiver, http_receiver

FAILOVER = 4.0
SHORT = {"name": "short", "match": {"event_types": ["Freeze"], "max_duration": "8s"}, "action": "approve"}
APPROVAL = {"mode": "on", "rules": [SHORT], "failover_after": f"{FAILOVER:g}s"}


def event(vm: Vm, event_id: str) -> Any:
    """Return an event as the API of a VM has it; one that is not known is to be waited for."""
    answer = json.loads(get(f"{vm.url}/api/v1/events"))
    found = [one for one in (*answer["current"], *answer["past"]) if event_id in one["ids"]]
    assert found, f"{event_id} is not known"
    return found[0]


def names(vm: Vm, event_id: str) -> list[str]:
    return [record["transition"] for record in event(vm, event_id)["transitions"]]


def transitions_told(receiver: Receiver) -> list[tuple[str, str]]:
    """Return the events of a webhook's requests, each with its transition."""
    sent = [request.json for request in tuple(receiver.requests)]
    return [(one["subject"], one["type"].removeprefix("scheduled_event.")) for one in sent]


def test_three_vms_of_a_group(tmp_path: Path) -> None:
    """The first in Resources approves; once it is dead the second does, in its turn; the third never."""
    group = Simulator(vm_name=HALL[0], instances=len(HALL), requests_per_second=0)
    with SimulatorServer(group) as imds, http_receiver() as chat:
        first, second, third = (Vm(tmp_path / name, imds, name=name) for name in HALL)
        third.configure(approval=APPROVAL)
        for vm in (first, second):
            chats = [{"name": "chat", "webhook": f"http://{chat.authority}/"}]
            vm.configure(approval=APPROVAL, notifications={"targets": chats})
        with http_receiver() as traces, second.running(**environment(traces)):
            with third.running(), first.running(**environment(traces)):
                (one,) = group.start_scenario(scenario(plan()))
                eventually(lambda: "approved" in names(first, one))
                for vm in (second, third):
                    eventually(lambda: "started" in names(vm, one))  # noqa: B023  # called at once
                    assert event(vm, one)["approval"] == {"state": None, "rule": None, "reason": None}
                assert event(first, one)["approval"]["state"] == "approved"
                eventually(lambda: any(span.name == "approve short" for span in spans(traces)))
                eventually(lambda: (one, "approved") in transitions_told(chat))
            with third.running():
                (two,) = group.start_scenario(scenario(plan()))
                eventually(lambda: "approved" in names(second, two))
                eventually(lambda: "started" in names(third, two))
                assert event(third, two)["approval"]["state"] is None
            seen = datetime.fromisoformat(event(second, two)["first_seen"])
            assert (group.approvals[1].at - seen).total_seconds() >= FAILOVER
            eventually(lambda: approvals(second) == (1, 1))
            eventually(lambda: (two, "approved") in transitions_told(chat))
            eventually(lambda: sum(span.name == "approve short" for span in spans(traces)) == 2)
            # What arrived just before a kill comes again.
            eventually(lambda: metric(second.url, "notifications_pending", target="chat") == 0)
        with second.running():
            (other,) = group.start_scenario(scenario(plan(vms=("web_1",))))
            eventually(lambda: (other, "approved") in transitions_told(chat))
            assert names(second, two).count("approved") == 1
            eventually(lambda: approvals(second) == (1, 1))
    assert [approval.event_id for approval in group.approvals] == [one, two, other]
    for event_id in (one, two, other):
        assert transitions_told(chat).count((event_id, "approved")) == 1
    by = {host: span for host, span in spans_with_hosts(traces) if span.name == "approve short"}
    assert set(by) == {"web_0", "web_1"}
    assert by["web_1"].trace_id == two.replace("-", "").lower()


def approvals(vm: Vm) -> tuple[float, float]:
    """Return how many approvals a VM's metrics count, as transitions and as attempts that succeeded."""
    return (
        metric(vm.url, "transitions_total", event_type="Freeze", transition="approved"),
        metric(vm.url, "approvals_total", rule="short", outcome="approved"),
    )
