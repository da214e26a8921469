"""Exporters that are killed around a POST: what is allowed after the restart is all that is ever sent."""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.approvals_group import Group, Vm, approving, plan, scenario, virtual_machines
from tests.end_to_end.program import eventually
from tests.end_to_end.test_approvals import approved, names
from tests.end_to_end.test_notifications import metric

HOOKS = [
    {"name": "well", "command": ["true"], "match": {"event_types": ["Freeze"]}},
    {"name": "bad", "command": ["false"], "match": {"event_types": ["Freeze"]}},
    {"name": "absent", "command": ["true"], "match": {"event_types": ["Preempt"]}},
]
BAD_RULE = {"name": "x", "action": "approve", "require_hooks": ["bad"]}


def settings(*rules: dict[str, Any], **approval: Any) -> dict[str, Any]:
    """Return a configuration with all the hooks; without rules, one that approves what hits this VM."""
    return approving(*rules, **approval) | {"hooks": HOOKS}


ALLOWED = settings({"name": "x", "action": "approve", "require_hooks": ["well"]})
# What an administrator may have changed while the exporter was down, and the reason that is shown then.
FORBIDDEN = {
    "the rule": (settings({"name": "x", "action": "hold"}), "the rule holds it"),
    "its match": (settings({"name": "x", "action": "approve", "match": {"max_duration": "1s"}}), "no rule"),
    "a failed hook": (settings(BAD_RULE), "the hook bad failed"),
    "an absent hook": (settings(BAD_RULE | {"require_hooks": ["absent"]}), "the hook absent did not run"),
    "the delay": (settings({"name": "x", "action": "approve", "delay": "1h"}), "not before"),
    "the mode": (settings(mode="dry_run"), "approval.mode is dry_run"),
}


@contextlib.contextmanager
def one_vm(group: Group, folder: Path) -> Iterator[Vm]:
    """Open the only VM's door."""
    with virtual_machines(group, folder, "web_0") as (vm,):
        yield vm


@pytest.mark.parametrize("moment", ["before", "during"])
def test_what_is_forbidden_after_a_kill_is_not_sent(tmp_path: Path, moment: str) -> None:
    """Whatever of rules, delays, hooks and mode changes holds for what was half sent; else it goes on."""
    group = Group()
    group.answers.clear()
    with one_vm(group, tmp_path) as vm:
        with vm.running(ALLOWED):
            (event_id,) = group.start_scenario(scenario(plan()))
            if moment == "during":
                eventually(lambda: group.posted(event_id))
            # The hooks are to have run, for what comes.
            eventually(lambda: metric(vm.url, "hooks_total", hook="bad", outcome="failed") == 1)
        vm.settle()
        before = group.posted()
        group.answers.set()
        for forbidden, reason in FORBIDDEN.values():
            with vm.running(forbidden):
                eventually(lambda: reason in (vm.approval(event_id)["reason"] or ""))  # noqa: B023
                eventually(lambda: vm.lines("msg=approval", reason))  # noqa: B023  # called at once
                assert not approved(vm, event_id)
        assert group.posted() == before
        with vm.running(settings(mode="off")):
            polls = group.picture().polls
            eventually(lambda: group.picture().polls > polls + 4)
            assert vm.approval(event_id)["state"] is None
        assert group.posted() == before
        with vm.running(ALLOWED):
            eventually(lambda: approved(vm, event_id))
            eventually(lambda: "started" in names(vm, event_id))
        with vm.running(ALLOWED):
            eventually(lambda: "started" in names(vm, event_id))
            assert names(vm, event_id).count("approved") == 1
        assert group.posted() == before + 1


def test_a_limit_counts_what_was_half_sent(tmp_path: Path) -> None:
    """What Azure may have taken counts: after a kill in its midst the same event may go on, no other."""
    group = Group()
    group.answers.clear()
    with one_vm(group, tmp_path) as vm:
        with vm.running(settings()):
            (sent,) = group.start_scenario(scenario(plan()))
            eventually(lambda: group.received)
        vm.settle()
        group.answers.set()
        (other,) = group.start_scenario(scenario(plan()))
        for _ in range(2):
            with vm.running(settings(max_per_hour=1)):
                eventually(lambda: approved(vm, sent))
                eventually(lambda: vm.approval(other)["state"] == "limited")
                eventually(lambda: metric(vm.url, "approvals_total", rule="all", outcome="limited") == 1)
        assert group.posted(sent) == 2
        assert group.posted(other) == 0
        with vm.running(settings(max_per_hour=2)):
            eventually(lambda: approved(vm, other))
    assert (group.posted(sent), group.posted(other)) == (2, 1)


def test_a_hook_that_was_killed_with_the_exporter_holds_back(tmp_path: Path) -> None:
    """A required hook runs again after a kill, and nothing is sent before it has succeeded."""
    group = Group()
    gate = tmp_path / "gate"
    wait = ["sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done"]
    rule = {"name": "x", "action": "approve", "require_hooks": ["drain"]}
    given = approving(rule) | {"hooks": [{"name": "drain", "command": wait}]}
    with one_vm(group, tmp_path) as vm, contextlib.ExitStack() as stack:
        # What a killed exporter leaves behind waits for it too.
        stack.callback(gate.touch)
        (event_id,) = group.start_scenario(scenario(plan()))
        for attempt in (1, 2):
            with vm.running(given):
                eventually(lambda: vm.approval(event_id)["reason"] == "the hook drain has not ended yet")
                eventually(lambda: vm.lines('msg="hook started"', f"attempt={attempt}"))  # noqa: B023
                assert group.received == []
        with vm.running(given):
            eventually(lambda: vm.lines('msg="hook started"', "attempt=3"))
            gate.touch()
            eventually(lambda: approved(vm, event_id))
    assert group.posted() == 1


LIMITS = (1, 2, 4)
NEVER = [forbidden for forbidden, _ in FORBIDDEN.values()] + [settings(mode="off")]
ROUNDS = 10


def test_kills_at_random_moments(tmp_path: Path) -> None:
    """No killed exporter sends what its own configuration forbids; in the end all is approved once."""
    chance = random.Random(20261121)
    group = Group()
    group.starts = False
    ids: list[str] = []
    done: set[str] = set()
    with one_vm(group, tmp_path) as vm:
        for number in range(ROUNDS):
            ids += group.start_scenario(scenario(plan()))
            group.delays = (chance.uniform(0, 0.3), chance.uniform(0, 0.3))
            limit = chance.choice(LIMITS) if number % 3 else 0
            given = settings(max_per_hour=limit) if limit else chance.choice(NEVER)
            before = len(group.received)
            with vm.running(given):
                eventually(lambda: vm.event(ids[-1]))  # noqa: B023  # called at once
                time.sleep(chance.uniform(0, 0.8))
            vm.settle()
            check_round([event_id for _, event_id in group.received], before, limit, done)
            done |= {event_id for event_id in ids if vm.lines("msg=approved", event_id)}
        group.delays = (0.0, 0.0)
        before = len(group.received)
        with vm.running(settings()):
            for event_id in ids:
                eventually(lambda: approved(vm, event_id))  # noqa: B023  # called at once
                assert names(vm, event_id).count("approved") == 1
    check_round([event_id for _, event_id in group.received], before, 1000, done)


def check_round(sent: list[str], before: int, limit: int, done: set[str]) -> None:
    """Check what one exporter sent: nothing twice, beyond the limit, or approved before."""
    for number in range(before, len(sent)):
        event_id = sent[number]
        assert event_id not in sent[before:number]
        assert event_id not in done
        assert len({*sent[:number]} - {event_id}) < limit
