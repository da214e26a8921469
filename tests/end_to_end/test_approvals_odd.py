"""Approvals under odd circumstances: reloads, a state that cannot be written, hooks, an IMDS that hangs."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from exporter.simulator import Fault
from tests.end_to_end import test_notifications
from tests.end_to_end.approvals_group import Group, Vm, approving, plan, scenario, virtual_machines
from tests.end_to_end.program import eventually, get
from tests.end_to_end.test_approvals import approved, names
from tests.end_to_end.test_notifications import metric

HOLD = approving({"name": "x", "action": "hold"})


def reload(vm: Vm, process: Any, settings: dict[str, Any]) -> None:
    """Reload the running exporter with a configuration."""
    (vm.folder / f"{vm.name}.yml").write_text(json.dumps(settings))
    test_notifications.reload(process, vm.url)


def test_a_reload_counts_from_then_on(tmp_path: Path) -> None:
    """A rule that comes with a reload approves what is pending; one that goes approves nothing more."""
    group = Group()
    with virtual_machines(group, tmp_path, "web_0") as (vm,), vm.running(HOLD) as process:
        (one,) = group.start_scenario(scenario(plan()))
        eventually(lambda: vm.approval(one)["state"] == "hold")
        reload(vm, process, approving())
        eventually(lambda: approved(vm, one))
        reload(vm, process, approving(mode="off"))
        (two,) = group.start_scenario(scenario(plan()))
        eventually(lambda: names(vm, two))
        reload(vm, process, approving(mode="dry_run"))
        eventually(lambda: vm.approval(two)["state"] == "dry_run")
        assert vm.approval(one)["state"] == "approved"
        assert group.posted(two) == 0
        reload(vm, process, approving())
        eventually(lambda: approved(vm, two))


def test_a_reload_stops_an_approval_that_fails(tmp_path: Path) -> None:
    """What is being tried again is not, once the rule has gone."""
    group = Group()
    group.set_fault(Fault("error", endpoint="scheduledevents", method="POST"))
    with virtual_machines(group, tmp_path, "web_0") as (vm,), vm.running(approving()) as process:
        (event_id,) = group.start_scenario(scenario(plan()))
        eventually(lambda: group.posted(event_id) >= 2)
        reload(vm, process, HOLD)
        eventually(lambda: vm.approval(event_id)["reason"] == "the rule holds it")
        # One may have been under way.
        eventually(lambda: vm.lines("msg=approval ", "state=hold"))
        posted = group.posted(event_id)
        polls = group.picture().polls
        eventually(lambda: group.picture().polls > polls + 8)
        assert group.posted(event_id) == posted


def test_what_could_not_be_remembered_is_not_sent(tmp_path: Path) -> None:
    """If the state cannot be written nothing is approved, and that is the reason."""
    group = Group()
    (tmp_path / "web_0").write_text("in the way of the directory")
    with virtual_machines(group, tmp_path, "web_0") as (vm,), vm.running(approving()):
        (event_id,) = group.start_scenario(scenario(plan()))
        eventually(lambda: vm.approval(event_id)["state"] == "failed")
        reason = "the state cannot be written, so nothing would remember it"
        assert vm.approval(event_id)["reason"] == reason
        assert reason in get(vm.url)
        assert group.received == []


def test_an_approval_waits_for_its_hooks(tmp_path: Path) -> None:
    """Only what is required has to succeed; hooks for the approval itself run after it."""
    group = Group()
    # A poll may see the start before the approval is recorded, and so would the hook.
    group.starts = False
    said = tmp_path / "said"
    hook = {"name": "drain", "command": ["true"], "match": {"transitions": ["scheduled"]}}
    telling = ["sh", "-c", f"echo $EVENT_TRANSITION $EVENT_STATUS >> {said}"]
    after = {"name": "after", "command": telling, "match": {"transitions": ["approved"]}}
    rule = {"name": "x", "action": "approve", "require_hooks": ["drain"]}
    given = approving(rule) | {"hooks": [hook, after, {"name": "bad", "command": ["false"]}]}
    with virtual_machines(group, tmp_path, "web_0") as (vm,), vm.running(given):
        (event_id,) = group.start_scenario(scenario(plan()))
        eventually(lambda: approved(vm, event_id))
        eventually(lambda: said.read_text() == "approved Scheduled\n")
        ended = vm.lines('msg="hook ended"', "hook=drain")
        assert len(ended) == 1
        log = vm.log.read_text()
        assert log.index(ended[0]) < log.index("msg=approved")


@pytest.mark.parametrize("mode", ["delay", "drop", "garbage", "throttle", "error"])
def test_an_imds_that_fails_gets_no_post_unseen(tmp_path: Path, mode: Any) -> None:
    """Without a document fetched just before, nothing is sent; once there is one, it is."""
    group = Group()
    with virtual_machines(group, tmp_path, "web_0") as (vm,):
        settings = approving({"name": "x", "action": "approve", "delay": "4s"})
        with vm.running(settings | {"imds": {"timeout": "1s"}}):
            (event_id,) = group.start_scenario(scenario(plan()))
            eventually(lambda: vm.approval(event_id)["state"] == "waiting")
            group.set_fault(Fault(mode, endpoint="scheduledevents", method="GET", seconds=3))
            eventually(lambda: metric(vm.url, "approvals_total", rule="x", outcome="failed") >= 1)
            assert vm.approval(event_id)["state"] == "failed"
            assert group.received == []
            group.set_fault(None)
            eventually(lambda: approved(vm, event_id))
        assert group.posted() == 1


def test_any_vm_that_is_hit_approves(tmp_path: Path) -> None:
    """With leader any, whatever the order of Resources; a VM that is not hit never does; one takes effect."""
    group = Group()
    settings = approving(leader="any", failover_after="1h")
    with (
        virtual_machines(group, tmp_path, "web_0", "web_2") as vms,
        vms[0].running(settings),
        vms[1].running(settings),
    ):
        for vm in vms:
            eventually(lambda: get(f"{vm.url}/-/ready"))  # noqa: B023  # called at once
        first, second = group.start_scenario(
            scenario(plan(vms=("web_1", "web_2")), plan(vms=("web_1", "web_2", "web_0")))
        )
        eventually(lambda: {post.event_id for post in group.posts if post.effective} == {first, second})
        for vm in vms:
            for event_id in (first, second):
                eventually(lambda: "started" in names(vm, event_id))  # noqa: B023  # called at once
    assert sorted(post.event_id for post in group.posts if post.effective) == sorted((first, second))
    assert {post.vm for post in group.posts if post.event_id == first} == {"web_2"}
    assert all(post.listed for post in group.posts)


def test_a_stop_does_not_wait_for_a_post(tmp_path: Path) -> None:
    """SIGTERM ends the exporter in time while IMDS keeps a POST waiting; the next start approves."""
    group = Group()
    group.answers.clear()
    with virtual_machines(group, tmp_path, "web_0") as (vm,):
        with vm.running(approving()) as process:
            (event_id,) = group.start_scenario(scenario(plan()))
            eventually(lambda: group.received)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        assert "Traceback" not in vm.log.read_text()
        group.answers.set()
        with vm.running(approving()):
            eventually(lambda: approved(vm, event_id))
    assert group.posted() == 2


def test_an_answer_that_comes_after_the_start(tmp_path: Path) -> None:
    """If the event starts before Azure's answer, the approval is still reported once."""
    group = Group()
    group.delays = (0.0, 2.0)
    with virtual_machines(group, tmp_path, "web_0") as (vm,), vm.running(approving()):
        (event_id,) = group.start_scenario(scenario(plan()))
        eventually(lambda: "started" in names(vm, event_id))
        eventually(lambda: approved(vm, event_id))
        assert sorted(names(vm, event_id)) == ["approved", "scheduled", "started"]
        assert vm.approval(event_id)["state"] == "approved"
    assert group.posted() == 1
