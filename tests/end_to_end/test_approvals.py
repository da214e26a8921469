"""Approvals by the running program: three VMs of a group, and what is shown where nothing is approved."""

import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from exporter.simulator import Fault
from tests.end_to_end.approvals_group import HALL, Group, Vm, approving, plan, scenario, virtual_machines
from tests.end_to_end.program import eventually, get
from tests.end_to_end.test_notifications import metric, told
from tests.end_to_end.test_traces import environment
from tests.notifications.receivers import Receiver, http_receiver
from tests.tracing.receiver import spans

FAILOVER = 4.0
SHORT = {"name": "short", "match": {"event_types": ["Freeze"], "max_duration": "8s"}, "action": "approve"}


def names(vm: Vm, event_id: str) -> list[str]:
    """Return the transitions of an event in a VM's API."""
    return [record["transition"] for record in vm.event(event_id)["transitions"]]


def approved(vm: Vm, event_id: str) -> bool:
    """Return whether a VM has the transition in its API."""
    return "approved" in names(vm, event_id)


def started(vm: Vm, event_id: str) -> bool:
    """Return whether a VM has seen the start."""
    return "started" in names(vm, event_id)


def transitions_told(receiver: Receiver) -> list[tuple[str, str]]:
    """Return the messages of a receiver, in order."""
    return [entry for request in tuple(receiver.requests) for entry in told(request.json)]


def test_three_vms_of_a_group(tmp_path: Path) -> None:
    """The first in Resources approves; once it is dead the second does, in its turn; the third never."""
    group = Group()
    settings = approving(SHORT, failover_after=f"{FAILOVER:g}s")
    with virtual_machines(group, tmp_path, *HALL) as (first, second, third), http_receiver() as chat:
        told_to = ("--notify", f"json://{chat.authority}/")
        with http_receiver() as traces, second.running(settings, *told_to, environ=environment(traces)):
            with third.running(settings), first.running(settings, *told_to, environ=environment(traces)):
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
                waiting = eventually(lambda: second.approval(two))
                assert waiting["state"] == "waiting"
                assert waiting["reason"].endswith("; 1 VM comes before this one")
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
            eventually(lambda: metric(second.url, "notifications_pending", target="notify-1") == 0)
        with second.running(settings, *told_to):
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


def test_an_approval_that_was_taken_becomes_a_transition_after_a_kill(tmp_path: Path) -> None:
    """The process is killed right after Azure's answer: the approval is reported once, and not sent again."""
    group = Group()
    group.starts = False
    with virtual_machines(group, tmp_path, "web_0") as (vm,), http_receiver() as chat:
        flags = ("--notify", f"json://{chat.authority}/")
        with vm.running(approving(), *flags, interval="30s"):
            (event_id,) = group.start_scenario(scenario(plan()))
            eventually(lambda: vm.lines("msg=approved", event_id))
        for _ in range(2):
            with vm.running(approving(), *flags):
                eventually(lambda: approved(vm, event_id))
                eventually(lambda: (event_id, "approved") in transitions_told(chat))
                # What arrived just before a kill comes again.
                eventually(lambda: metric(vm.url, "notifications_pending", target="notify-1") == 0)
                assert vm.approval(event_id)["state"] == "approved"
                assert names(vm, event_id) == ["scheduled", "approved"]
    assert transitions_told(chat).count((event_id, "approved")) == 1
    assert group.posted() == 1


@pytest.mark.parametrize("mode", ["off", "dry_run"])
def test_without_mode_on_nothing_is_sent(tmp_path: Path, mode: str) -> None:
    """A dry run is in log, metric, page and API, off is not; neither approves or sends messages."""
    group = Group()
    with virtual_machines(group, tmp_path, "web_0") as (vm,), http_receiver() as chat:
        flags = ("--notify", f"json://{chat.authority}/")
        with vm.running(approving(SHORT, mode=mode), *flags):
            ids = group.start_scenario(scenario(plan(), plan("Reboot")))
            eventually(lambda: set(transitions_told(chat)) == {(one, "scheduled") for one in ids})
            if mode == "dry_run":
                eventually(lambda: vm.approval(ids[0])["state"] == "dry_run")
                eventually(lambda: metric(vm.url, "approvals_total", rule="short", outcome="dry_run") == 1)
                reason = "it would be approved now; approval.mode is dry_run"
                assert vm.approval(ids[0]) == {"state": "dry_run", "rule": "short", "reason": reason}
                assert reason in get(vm.url)
                assert len(vm.lines("msg=approval", "state=dry_run", f"event_id={ids[0]}")) == 1
                assert vm.approval(ids[1]) == {"state": "hold", "rule": None, "reason": "no rule matches"}
            else:
                assert vm.approval(ids[0])["state"] is None
                assert vm.lines("msg=approval") == []
            group.approve([ids[0]])
            eventually(lambda: started(vm, ids[0]))
            assert not approved(vm, ids[0])
            assert metric(vm.url, "approvals_total", rule="short", outcome="approved") == 0
    assert group.received == []
    assert "approved" not in {transition for _, transition in transitions_told(chat)}


CASES: dict[str, tuple[dict[str, Any], Any, str | None, str]] = {
    "no rule": (approving(SHORT), plan("Reboot"), None, "no rule matches"),
    "a hold": (approving({"name": "no", "action": "hold"}), plan(), "no", "the rule holds it"),
    "no names": (approving(), plan(vms=()), None, "Azure does not say which VMs it affects"),
    "others": (
        approving({"name": "x", "action": "approve", "match": {"target": "any"}}),
        plan(vms=("web_1",)),
        None,
        "it does not affect this VM; those that it affects decide",
    ),
    "a delay": (
        approving({"name": "late", "action": "approve", "delay": "1h"}),
        plan(),
        "late",
        "not before 20",
    ),
    "a hook that did not run": (
        approving({"name": "x", "action": "approve", "require_hooks": ["h"]})
        | {"hooks": [{"name": "h", "command": ["true"], "match": {"event_types": ["Preempt"]}}]},
        plan(),
        "x",
        "the hook h did not run for it",
    ),
    "a hook that failed": (
        approving({"name": "x", "action": "approve", "require_hooks": ["h"]})
        | {"hooks": [{"name": "h", "command": ["false"]}]},
        plan(),
        "x",
        "the hook h failed",
    ),
    "a hook that is not there": (
        approving({"name": "x", "action": "approve", "require_hooks": ["h"]})
        | {"hooks": [{"name": "h", "command": ["/nonexistent"]}]},
        plan(),
        "x",
        "the hook h failed",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reason_is_always_visible(tmp_path: Path, case: str) -> None:
    """Whatever holds an approval is in the API, on the page, and in the log once."""
    settings, event, rule, reason = CASES[case]
    group = Group()
    with virtual_machines(group, tmp_path, "web_0") as (vm,), vm.running(settings):
        (event_id,) = group.start_scenario(scenario(event))
        eventually(lambda: vm.approval(event_id)["reason"].startswith(reason))
        assert vm.approval(event_id)["rule"] == rule
        assert reason in get(vm.url)
        eventually(lambda: vm.lines("msg=approval", reason))
        looks = group.picture().polls
        eventually(lambda: group.picture().polls > looks + 3)
        assert len(vm.lines("msg=approval", reason)) == 1
        assert len(vm.lines("msg=approval", "own name")) == 0
        group.cancel(event_id)
        eventually(lambda: vm.event(event_id)["outcome"] == "cancelled")
        assert vm.approval(event_id) == {"state": None, "rule": None, "reason": None}
    assert group.received == []


@pytest.mark.parametrize("leader", ["first", "any"])
def test_a_vm_without_a_name_approves_nothing(tmp_path: Path, leader: str) -> None:
    """While the VM's name is unknown nothing is approved, and the reason is shown; then it is."""
    group = Group()
    group.set_fault(Fault("error", endpoint="instance"))
    settings = approving(leader=leader)
    with virtual_machines(group, tmp_path, "web_0") as (vm,):
        with vm.running(settings, named=False):
            (event_id,) = group.start_scenario(scenario(plan()))
            reason = "this VM does not know its own name"
            eventually(lambda: vm.approval(event_id)["reason"] == reason)
            assert reason in get(vm.url)
            eventually(lambda: vm.lines("msg=approval", reason))
            looks = group.picture().polls
            eventually(lambda: group.picture().polls > looks + 3)
            assert len(vm.lines("msg=approval")) == 1
            assert group.received == []
        group.set_fault(None)
        with vm.running(settings, named=False):
            eventually(lambda: approved(vm, event_id))
        assert len(vm.lines("msg=approval")) == 1
    assert group.posted() == 1


def test_a_restart_gives_no_wrong_reason(tmp_path: Path) -> None:
    """Events from before the start wait for the first document, without a log message."""
    group = Group()
    settings = approving({"name": "no", "action": "hold"})
    with virtual_machines(group, tmp_path, "web_0") as (vm,):
        with vm.running(settings):
            (event_id,) = group.start_scenario(scenario(plan()))
            eventually(lambda: vm.lines("msg=approval", event_id))
        with vm.running(settings):
            eventually(lambda: len(vm.lines("msg=approval", "the rule holds it")) == 2)
        assert len(vm.lines("msg=approval")) == 2


def test_an_approval_after_a_restart_is_in_the_event_s_trace(tmp_path: Path) -> None:
    """If the name is from IMDS, an approval's span has the same parent as the spans from before a kill."""
    group = Group()
    with (
        virtual_machines(group, tmp_path, "web_0") as (vm,),
        http_receiver() as traces,
        http_receiver() as chat,
    ):
        flags = ("--notify", f"json://{chat.authority}/")
        hold = approving({"name": "no", "action": "hold"})
        with vm.running(hold, *flags, environ=environment(traces), named=False):
            group.start_scenario(scenario(plan()))
            eventually(lambda: spans(traces))
        with vm.running(approving(), environ=environment(traces), named=False):
            eventually(lambda: any(span.name == "approve all" for span in spans(traces)))
    by = {span.name: span for span in spans(traces)}
    assert by["approve all"].parent_id == by["notify notify-1"].parent_id


def test_the_limit_holds_across_restarts(tmp_path: Path) -> None:
    """max_per_hour counts what was approved before a restart; what it stops is counted and shown."""
    group = Group()
    settings = approving(max_per_hour=2)
    reason = "2 events were approved within 1h; approval.max_per_hour is 2"
    with virtual_machines(group, tmp_path, "web_0") as (vm,):
        with vm.running(settings) as process:
            (one,) = group.start_scenario(scenario(plan()))
            eventually(lambda: approved(vm, one))
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        with vm.running(settings):
            (two,) = group.start_scenario(scenario(plan()))
            eventually(lambda: approved(vm, two))
        (three,) = group.start_scenario(scenario(plan()))
        for _ in range(2):
            with vm.running(settings):
                eventually(lambda: metric(vm.url, "approvals_total", rule="all", outcome="limited") == 1)
                assert vm.approval(three) == {"state": "limited", "rule": "all", "reason": reason}
        assert len(vm.lines("msg=approval", reason)) == 2
    assert [event_id for _, event_id in group.received] == [one, two]


def test_errors_are_retried_and_shown(tmp_path: Path) -> None:
    """A refused POST is retried until it succeeds; meanwhile API, page, log and metric show it."""
    group = Group()
    group.set_fault(Fault("error", method="POST"))
    with virtual_machines(group, tmp_path, "web_0") as (vm,), vm.running(approving()):
        (event_id,) = group.start_scenario(scenario(plan()))
        eventually(lambda: metric(vm.url, "approvals_total", rule="all", outcome="failed") >= 2)
        assert vm.approval(event_id)["state"] == "failed"
        assert "status 500" in vm.approval(event_id)["reason"]
        assert "status 500" in get(vm.url)
        assert len(vm.lines('msg="approval failed; trying again"')) == 1
        group.set_fault(None)
        eventually(lambda: approved(vm, event_id))
        assert metric(vm.url, "approvals_total", rule="all", outcome="approved") == 1
