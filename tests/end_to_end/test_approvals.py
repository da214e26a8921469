"""Approvals by the running programs of three VMs of a group."""

from datetime import datetime
from pathlib import Path

from tests.end_to_end.approvals_group import HALL, Group, Vm, approving, plan, scenario, virtual_machines
from tests.end_to_end.program import eventually, get, metric
from tests.end_to_end.test_traces import environment
from tests.notifications.receivers import Receiver, http_receiver
from tests.tracing.receiver import spans

FAILOVER = 4.0
SHORT = {"name": "short", "match": {"event_types": ["Freeze"], "max_duration": "8s"}, "action": "approve"}


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
    group = Group()
    settings = approving(SHORT, failover_after=f"{FAILOVER:g}s")
    with virtual_machines(group, tmp_path, *HALL) as (first, second, third), http_receiver() as chat:
        chats = [{"name": "chat", "webhook": f"http://{chat.authority}/"}]
        telling = settings | {"notifications": {"targets": chats}}
        with http_receiver() as traces, second.running(telling, environ=environment(traces)):
            with third.running(settings), first.running(telling, environ=environment(traces)):
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
            with third.running(settings):
                (two,) = group.start_scenario(scenario(plan()))
                eventually(lambda: approved(second, two))
                eventually(lambda: started(third, two))
                assert third.approval(two)["state"] is None
            assert [(post.vm, post.event_id) for post in group.posts] == [("web_0", one), ("web_1", two)]
            seen = _seconds(second.event(two)["first_seen"])
            assert group.posts[1].at - seen >= FAILOVER
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
    for event_id in (one, two, other):
        assert transitions_told(chat).count((event_id, "approved")) == 1
        assert sum(post.event_id == event_id for post in group.posts) == 1
    by = {span.resource["host.name"]: span for span in spans(traces) if span.name == "approve short"}
    assert set(by) == {"web_0", "web_1"}
    assert by["web_1"].trace_id == two.replace("-", "").lower()


def approvals(vm: Vm) -> tuple[float, float]:
    """Return how many approvals a VM's metrics count, as transitions and as attempts that succeeded."""
    return (
        metric(vm.url, "transitions_total", event_type="Freeze", transition="approved"),
        metric(vm.url, "approvals_total", rule="short", outcome="approved"),
    )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
