"""Three exporters and hundreds of random events, checked by a model that shares no code with them."""

import contextlib
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from exporter.simulator import EventPlan
from tests.end_to_end import approvals_model as model
from tests.end_to_end.approvals_group import Group, Vm, approving, scenario, virtual_machines
from tests.end_to_end.program import eventually, get
from tests.end_to_end.test_notifications import metric

# The last two have no exporter: where they come first others stand in for them.
VMS = ("web_0", "web_1", "web_2", "web_3", "web_4")
# Other spellings of the same VM names, for the exporters' configurations.
WATCHED = {"web_0": "web_0", "web_1": "WEB_1", "web_2": "_web_2"}
COUNT = 250
FAILOVER = 3.0
# Nothing that is due later than that is due in this test, and nothing at all soon after it.
HORIZON = 60.0
SEEDS = (20261121,)


def shown(vm: Vm) -> dict[str, Any]:
    """Return each pending event from a VM's API, by its id."""
    return {event["id"]: event for event in json.loads(get(f"{vm.url}/api/v1/events"))["current"]}


class Outcome:
    """The model's expectations of a group's events."""

    def __init__(self, rules: list[dict[str, Any]], events: dict[str, EventPlan], now: datetime) -> None:
        self.events = events
        self.rules = rules
        self.now = now
        self.due = {
            event_id: {vm: at for vm, at in model.due(rules, event, now, FAILOVER).items() if vm in WATCHED}
            for event_id, event in events.items()
        }
        self.covered = {key for key, due in self.due.items() if due and min(due.values()) < HORIZON}

    def check_posts(self, group: Group) -> None:
        """Check every POST: who, what, when; and that each covered event was approved to effect once."""
        effective = [post.event_id for post in group.posts if post.effective]
        assert sorted(effective) == sorted(self.covered)
        appeared = {event.event_id: group.wall(event.appears) for event in group.picture().events}
        for post in group.posts:
            assert post.event_id in self.covered
            assert post.vm in self.due[post.event_id]
            assert post.listed
            waited = post.at - appeared[post.event_id].timestamp()
            assert waited >= self.due[post.event_id][post.vm]

    def check_view(self, vm: Vm) -> bool:
        """Check the state and the rule of every event's approval in a VM's API; return True."""
        found = shown(vm)
        assert set(found) == set(self.events)
        for event_id, event in self.events.items():
            said = found[event_id]["approval"]
            own = next((name for name in event.vms if name == vm.name), None)
            rule = model.deciding(self.rules, event, self.now)
            if said["state"] == "approved":
                assert event_id in self.covered
            elif float(event.notice) <= 0 or event_id in self.covered:
                assert said["state"] is None
            elif own is None or rule is None:
                assert (said["state"], said["rule"]) == ("hold", None)
                assert said["reason"]
            else:
                state = "hold" if rule["action"] == "hold" else "waiting"
                assert (said["state"], said["rule"]) == (state, rule["name"])
                assert said["reason"]
        return True


@pytest.mark.parametrize("seed", SEEDS)
def test_random_events(tmp_path: Path, seed: int) -> None:
    """Each event that a rule covers is approved to effect exactly once, in time, by a VM that it affects."""
    chance = random.Random(seed)
    now = datetime.now(UTC)
    rules = model.rules(now)
    settings = approving(*rules, failover_after=f"{FAILOVER:g}s")
    plans = tuple(model.events(chance, COUNT, VMS))
    group = Group()
    with virtual_machines(group, tmp_path, *WATCHED) as vms, contextlib.ExitStack() as running:
        for vm in vms:
            flags = ("--instance.name", WATCHED[vm.name])
            running.enter_context(vm.running(settings, *flags, named=False, interval="1s"))
        for vm in vms:
            eventually(lambda: get(f"{vm.url}/-/ready"))  # noqa: B023  # called at once
        ids = group.start_scenario(scenario(*plans, vms=VMS))
        outcome = Outcome(rules, dict(zip(ids, plans, strict=True)), now)
        covered = len(outcome.covered)
        assert COUNT / 6 < covered < COUNT / 2
        eventually(lambda: sum(post.effective for post in group.posts) >= covered, within=60)
        for vm in vms:
            eventually(lambda: outcome.check_view(vm))  # noqa: B023  # called at once
        outcome.check_posts(group)

        def approvals() -> float:
            counted = (
                metric(vm.url, "approvals_total", rule=rule["name"], outcome="approved")
                for vm in vms
                for rule in rules
            )
            return sum(counted)

        eventually(lambda: approvals() == len(group.posts))
    assert {post.vm for post in group.posts} == set(WATCHED)
