"""The whole program beside an API server with one Node, with a clock that is moved by hand."""

import contextlib
import itertools
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from msgspec import inspect

from exporter.config.kubernetes import Drain, Kubernetes
from exporter.outputs.kubernetes.client import MOST_AT_ONCE, Client, KubernetesError, Pod
from exporter.outputs.kubernetes.drain import grace
from exporter.simulator import Fault
from tests.bench import Bench, Build
from tests.bench.test_keys import keys
from tests.builders import FREEZE_ID, REBOOT_ID, raw_event
from tests.docs.pages import blocks
from tests.outputs.kubernetes.api import NODE, Api, served

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
TAINT = "scheduled-events-exporter/pending"
APPROVE = "approval: {mode: 'on', rules: [{name: r, action: approve, require_hooks: [kubernetes.drain]}]}\n"
SUCCEEDED = {"hook": "kubernetes.drain", "outcome": "succeeded"}
FAILED = {"hook": "kubernetes.drain", "outcome": "failed"}

Start = Callable[..., tuple[Bench, Api]]


@pytest.fixture
def start(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts the program for a Node with two pods, from the keys of `drain`."""
    with contextlib.ExitStack() as stack:

        def begin(
            drain: str | None = "",
            more: str = "",
            *,
            prepare: Callable[[Api], object] = lambda _: None,
            conditions: bool = True,
        ) -> tuple[Bench, Api]:
            folder = tmp_path / f"account{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            api = Api()
            for name, value in stack.enter_context(served(api, folder)).items():
                monkeypatch.setenv(name, value)
            monkeypatch.setenv("NODE_NAME", NODE)
            api.pod("web")
            api.pod("agent", "DaemonSet")
            api.pod("static", "", annotations={"kubernetes.io/config.mirror": "it"})
            prepare(api)
            enabled = {} if drain is None else {"enabled": True} | yaml.safe_load(f"{{{drain}}}")
            section = {"service_account": str(folder), "drain": enabled, "conditions": conditions}
            bench = build(f"kubernetes: {json.dumps(section)}\n{more}")
            api.clock = bench.clock
            bench.advance(5)
            return bench, api

        yield begin


def reboot(bench: Bench, seconds: float = 900, **fields: Any) -> dict[str, Any]:
    at = (bench.clock.now() + timedelta(seconds=seconds)).replace(microsecond=0)
    usual = {"EventId": REBOOT_ID, "EventType": "Reboot", "NotBefore": format_datetime(at, usegmt=True)}
    return raw_event(**(usual | fields))


def reasons(api: Api, kind: str = "Node") -> list[str]:
    """Return the reasons of the Events about the Node, or about pods, in the order in which they came."""
    found = [event for event in api.events.values() if event["involvedObject"]["kind"] == kind]
    return [event["reason"].removeprefix("ScheduledEvent") for event in found]


def draining(api: Api) -> tuple[str, str]:
    """Return the states of `DrainInProgress` and `Drained`."""
    first, second = (api.condition(kind) for kind in ("DrainInProgress", "Drained"))
    return (first or ("absent",))[0], (second or ("absent",))[0]


def test_conditions_annotations_and_events(start: Start) -> None:
    """They say what is planned and what is in progress, and nothing is cordoned without `drain`."""
    bench, api = start(None)
    nothing = ("False", "NoScheduledEvent", "no scheduled event of this VM")
    assert api.condition("MaintenancePlanned") == api.condition("MaintenanceInProgress") == nothing
    bench.show(reboot(bench, DurationInSeconds=540), raw_event(EventId=FREEZE_ID), wait=2)
    at = api.annotations()["not-before"]
    assert api.annotations() == {"type": "Reboot", "event-id": REBOOT_ID, "not-before": at, "duration": "9m"}
    planned = ("True", "Reboot", f"Reboot {REBOOT_ID}, not before {at}, duration 9m")
    assert (api.condition("MaintenancePlanned"), api.condition("MaintenanceInProgress")) == (planned, nothing)
    told = {event["message"]: (event["type"], event["count"]) for event in api.events.values()}
    assert told.pop(f"scheduled: {planned[2]}") == ("Warning", 1)
    assert [*told.values()] == [("Normal", 1)]
    assert all(re.fullmatch("scheduled-event-[0-9a-f]{20}", name) for name in api.events)
    bench.show(reboot(bench, EventStatus="Started", NotBefore="", DurationInSeconds=-1), wait=2)
    assert api.condition("MaintenancePlanned") == nothing
    going = ("True", "Reboot", f"Reboot {REBOOT_ID}, not before {at}, duration unknown")
    assert api.condition("MaintenanceInProgress") == going
    bench.show(wait=2)
    assert (api.annotations(), api.condition("MaintenanceInProgress")) == ({}, nothing)
    assert sorted(reasons(api)) == ["Cancelled", "Completed", "Scheduled", "Scheduled", "Started"]
    assert {"list pods", "create pods/eviction"}.isdisjoint(api.calls)
    assert api.calls.count("create events") == 5
    bench.restart()
    read = api.calls.count("get nodes")
    bench.advance(95.5)
    # Every 30 s.
    assert (len(api.events), api.calls.count("get nodes") - read) == (5, 4)


@pytest.mark.parametrize(
    ("kind", "reason", "count", "more"),
    [
        ("2nd re-boot", "ndreboot", 1, ""),
        ("x" * 64, "x" * 63, 2, " (and 1 more)"),
        ("42", "Unknown", 3, " (and 2 more)"),
    ],
)
def test_a_condition_names_one_event(start: Start, kind: str, reason: str, count: int, more: str) -> None:
    """The most urgent one, by a word, with the number of the others; a change of that is no transition."""
    bench, api = start(None)
    events = [reboot(bench, EventId=name, EventType=kind) for name in "abc"[:count]]
    for number in (1, count):
        bench.show(*events[:number], wait=2)
        (planned,) = (one for one in api.node["status"]["conditions"] if one["type"] == "MaintenancePlanned")
        assert ("lastTransitionTime" in planned) is (number == 1)
    assert (planned["status"], planned["reason"]) == ("True", reason)
    assert planned["message"].startswith(f"{kind} a, not before 2026-03-04T22:15:")
    assert planned["message"].endswith(f"duration 5s{more}")


def test_a_drain(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """All pods but those of DaemonSets and mirrors are evicted; once they are gone the event is approved."""
    caplog.set_level(logging.INFO, "exporter.outputs.kubernetes")
    bench, api = start("exclude_from_load_balancers: true", APPROVE)
    bench.show(reboot(bench), wait=3)
    assert EXCLUDED in api.node["metadata"]["labels"]
    assert api.node["spec"]["unschedulable"]
    assert api.annotations()["cordoned"] == REBOOT_ID
    assert api.taints() == {TAINT: "Reboot"}
    assert (api.graces, bench.metric("pod_evictions_total", outcome="evicted")) == ({"web": None}, 1)
    assert reasons(api, "Pod") == ["Eviction"]
    (view,) = (bench.api("kubernetes"),)
    assert view == {"name": NODE, "cordoned": True, "drain": "1 pod is left: default/web (terminating)"}
    assert draining(api) == ("True", "False")
    assert "1 pod is left: default/web (terminating)" in bench.request("/")[1]
    assert (bench.approved, bench.metric("hooks_total", **SUCCEEDED)) == ([], 0)
    api.end()
    bench.advance(5)
    assert (bench.approved, bench.metric("hooks_total", **SUCCEEDED)) == ([REBOOT_ID], 1)
    at = api.annotations()["not-before"]
    drained = ("True", "Reboot", f"Reboot {REBOOT_ID}, not before {at}, duration 5s")
    assert (draining(api), api.condition("Drained")) == (("False", "True"), drained)
    bench.show(wait=10)
    assert draining(api) == ("False", "False")
    assert (api.annotations(), api.taints(), api.node["spec"].get("unschedulable")) == ({}, {}, None)
    assert EXCLUDED not in api.node["metadata"]["labels"]
    assert bench.api("kubernetes")["drain"] == ""
    assert caplog.messages == ["node changed", "pod evicted", "drain ended", "node changed"]


def test_no_drain_begins_before_the_first_document(start: Start) -> None:
    """An event that was pending when the exporter stopped may be over."""
    bench, api = start("before: 5m")
    bench.show(reboot(bench, 900), wait=2)
    bench.simulator.set_fault(Fault("error"))
    bench.restart(after=800)
    bench.advance(10)
    assert (api.annotations().get("cordoned"), api.taints(), api.graces) == (None, {}, {})
    bench.simulator.set_fault(None)
    bench.advance(40)
    assert (api.taints(), api.graces) == ({TAINT: "Reboot"}, {"web": None})


def test_a_dry_run(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """What would be done is logged once, and not done."""
    caplog.set_level(logging.INFO, "exporter.outputs.kubernetes")
    bench, api = start("mode: dry_run, force: false", prepare=lambda api: api.pod("bare", ""))
    bench.show(reboot(bench), wait=70)
    assert (api.taints(), api.graces, bench.metric("pod_evictions_total", outcome="dry_run")) == ({}, {}, 1)
    assert draining(api) == ("False", "False")
    would = [text for text in caplog.messages if "would" in text]
    assert would == ["dry run: node would be changed", "dry run: pod would be evicted"]
    assert caplog.messages.count("pods without a controller are not evicted") == 1


def test_the_conditions_of_a_drain(start: Start) -> None:
    """They tell a drain in progress from one that is done, also after a restart and after the start."""
    bench, api = start("before: 10m", prepare=lambda api: api.protected.add("web"))
    bench.show(reboot(bench, 3600), wait=2)
    assert draining(api) == ("False", "False")
    event = reboot(bench, 60)
    bench.show(event, wait=2)
    assert draining(api) == ("True", "False")
    bench.restart()
    bench.advance(2)
    assert draining(api) == ("True", "False")
    bench.advance(60)
    # It has failed.
    assert draining(api) == ("False", "False")
    api.protected.clear()
    bench.show(reboot(bench, 60), wait=2)
    api.end()
    bench.advance(5)
    assert draining(api) == ("False", "True")
    bench.show(reboot(bench, EventStatus="Started", NotBefore=""), wait=2)
    bench.restart()
    bench.advance(40)
    assert draining(api) == ("False", "True")
    api.pod("late")
    bench.show(reboot(bench, 60), wait=2)
    assert draining(api) == ("True", "False")
    bench.show(reboot(bench, 3600), wait=2)
    assert draining(api) == ("False", "False")


def test_what_others_say_about_a_drain(start: Start) -> None:
    """Conditions of `kubectl drain` stay until the exporter drains; a drain by AKS is not one by it."""
    theirs = {"type": "DrainInProgress", "status": "True", "reason": "KubectlDrain", "message": "it"}
    bench, api = start(prepare=lambda api: api.node["status"]["conditions"].append(theirs))
    assert (api.condition("DrainInProgress"), draining(api)[1]) == (("True", "KubectlDrain", "it"), "False")
    key = "remediator.kubernetes.azure.com/unschedulable"
    api.node["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"}]
    bench.show(reboot(bench), wait=2)
    assert api.condition("DrainInProgress") == ("True", "KubectlDrain", "it")
    api.node["spec"]["taints"] = []
    bench.advance(31)
    assert (api.condition("DrainInProgress") or ("", ""))[1] == "Reboot"
    bench.show(wait=2)
    assert draining(api) == ("False", "False")


def test_the_sample_of_a_selector(start: Start) -> None:
    """The documented one for a Freeze evicts pods with AKS' label only, and counts no others as left."""
    (sample,) = (block.text for block in blocks("yaml") if "pod_selector: remediator" in block.text)
    drain = yaml.safe_load(sample)["kubernetes"]["drain"]
    label = {"remediator.kubernetes.azure.com/onFreeze": "true"}
    bench, api = start(json.dumps(drain)[1:-1], prepare=lambda api: api.pod("quorum", labels=label))
    bench.show(reboot(bench, EventType="Freeze"), wait=2)
    assert (set(api.graces), api.taints()) == ({"quorum"}, {TAINT: "Freeze"})
    assert bench.api("kubernetes")["drain"] == "1 selected pod is left: default/quorum (terminating)"
    assert draining(api) == ("True", "False")
    api.end()
    bench.advance(5)
    assert bench.api("kubernetes")["drain"] == "no selected pod is left"
    assert (bench.metric("hooks_total", **SUCCEEDED), draining(api)) == (1, ("False", "True"))
    bench.show(wait=2)
    assert (api.taints(), {*api.pods}) == ({}, {"agent", "static", "web"})


def test_a_drain_before_the_type_changed(start: Start) -> None:
    """It is not one for the new type, also while that change waits to be reported after another one."""
    bench, api = start("", APPROVE.replace("approve,", "approve, match: {event_types: [Redeploy]},"))
    event = reboot(bench)
    bench.show(event, wait=3)
    api.end()
    bench.advance(5)
    assert bench.metric("hooks_total", **SUCCEEDED) == 1
    api.pod("late")
    bench.show(event | {"Description": "other"}, wait=1)
    bench.show(event | {"EventType": "Redeploy"}, wait=65)
    assert (bench.approved, api.taints()) == ([], {TAINT: "Redeploy"})
    api.end()
    bench.advance(35)
    assert (bench.approved, bench.metric("hooks_total", **SUCCEEDED)) == ([REBOOT_ID], 2)


def test_a_budget_until_not_before(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried every 5 s, but never after NotBefore; then the drain has failed, until it is postponed."""
    oncall = "notifications: {targets: [{name: oncall, url: 'json://receiver.test'}]}"
    bench, api = start("", f"{oncall}\ntracing: {{enabled: true}}")
    api.protected = {"web"}
    api.pod("long", grace=3600)
    event = reboot(bench, 60)
    bench.show(event, wait=58)
    tried = api.calls.count("create pods/eviction")
    assert tried == 13
    assert caplog.text.count("pod not evicted; trying again") == 1
    not_before = datetime.fromisoformat(api.annotations()["not-before"])
    assert not_before - timedelta(seconds=6) <= api.deletion("long") < not_before
    assert bench.metric("hooks_total", **FAILED) == 0
    assert (bench.metric("pod_evictions_total", outcome="refused"), bench.api("problems")) == (tried - 1, [])
    bench.advance(3)
    assert bench.metric("hooks_total", **FAILED) == 1
    failed = next(sent for sent in bench.sent() if "hook" in sent.title.lower())
    assert "2 pods are left: default/web (status 429: Cannot evict pod" in failed.body
    tried = api.calls.count("create pods/eviction")
    bench.advance(60)
    assert api.calls.count("create pods/eviction") == tried
    # It continues once the event is postponed.
    api.protected = set()
    bench.show(reboot(bench, 120), wait=70)
    api.end()
    bench.advance(5)
    assert bench.metric("hooks_total", **SUCCEEDED) == 1
    spans = [span for span in bench.receiver.spans if span.name == "hook kubernetes.drain"]
    told = [span.attributes["azure.scheduled_event.transition"] for span in spans]
    assert (told, len({span.parent_id for span in bench.receiver.spans})) == (["scheduled", "updated"], 1)


def test_a_budget_until_delete_before(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """What it still keeps then is deleted: counted, logged, and told as an Event; all others are evicted.

    If that is forbidden, it is a problem, and is tried again.
    """
    bench, api = start("delete_before: 20s", prepare=lambda api: api.protected.add("web"))
    api.pod("free")
    bench.show(reboot(bench, 60), wait=38)
    assert (set(api.graces), "delete pods" in api.calls) == ({"free"}, False)
    api.refused = {"delete pods": 403}
    bench.advance(4)
    assert bench.api("problems") == [
        "kubernetes_failing: delete pods: status 403: forbidden: cannot delete pods"
    ]
    api.refused = {}
    bench.advance(6)
    assert set(api.graces) == {"free", "web"}
    assert 1 <= (api.graces["web"] or 0) <= 16
    assert [bench.metric("pod_evictions_total", outcome=name) for name in ("evicted", "deleted")] == [1, 1]
    assert caplog.messages.count("pod deleted in spite of its disruption budget") == 1
    assert sorted(reasons(api, "Pod")) == ["Deletion", "Eviction"]
    (told,) = (one for one in api.events.values() if one["reason"] == "ScheduledEventDeletion")
    assert (told["type"], told["involvedObject"]["name"]) == ("Warning", "web")
    assert told["message"].startswith(
        f"deleted in spite of its disruption budget from Node {NODE} before Reboot "
    )
    api.end()
    bench.advance(5)
    assert (bench.metric("hooks_total", **SUCCEEDED), bench.api("problems")) == (1, [])


@pytest.mark.parametrize(
    ("event", "graces"),
    [({"NotBefore": "", "EventStatus": "Started"}, {"web": 25}), ({"NotBefore": "soon"}, {"web": None})],
    ids=["started without notice", "unreadable"],
)
def test_no_deadline(start: Start, event: dict[str, Any], graces: dict[str, int | None]) -> None:
    """Without any notice there are 30 s; where NotBefore is not known, pods keep their grace periods."""
    bench, api = start()
    bench.show(reboot(bench, **event), wait=2)
    assert api.graces == graces
    assert api.node["spec"]["unschedulable"]


def test_the_last_second(start: Start) -> None:
    """Nothing is evicted so shortly before NotBefore that it might arrive after it."""
    bench, api = start(conditions=False)
    bench.show(reboot(bench, 2), wait=5)
    assert api.node["spec"]["unschedulable"]
    assert (api.graces, api.events) == ({}, {})


@pytest.mark.parametrize(("left", "seconds"), [(None, None), (0.5, 1), (2.5, 2), (24, 19), (35, None)])
def test_a_grace_period_ends_before_not_before(left: float | None, seconds: int | None) -> None:
    """It leaves 5 s, or a fifth of the time if that is less; 1 s is the least, and 30 s are the pod's own."""
    assert grace(Pod("default", "web", "it"), Drain(), left) == seconds


def test_an_api_server_that_cannot_be_reached(start: Start) -> None:
    """That is a problem, with its cause; everything is done soon after, also when it happens again."""
    bench, api = start()
    api.down = True
    bench.show(reboot(bench), wait=25)
    (problem,) = bench.api("problems")
    assert problem.startswith("kubernetes_failing: get nodes: ")
    api.down = False
    bench.advance(5)
    assert api.graces == {"web": None}
    assert bench.api("problems") == []
    api.down = True
    bench.show()
    assert api.taints() == {TAINT: "Reboot"}
    api.down = False
    bench.advance(1)
    assert api.taints() == {}


@pytest.mark.parametrize(
    ("seen", "drain", "failed"),
    [(True, "skip_node_labels: {a: b}", 1), (False, "", 1), (False, "skip_node_labels: {a: b}", 0)],
)
def test_one_that_is_down_until_not_before(
    start: Start, caplog: pytest.LogCaptureFixture, drain: str, *, seen: bool, failed: int
) -> None:
    """The drain failed, for that reason, unless labels may exempt a Node that was never seen."""
    bench, api = start(drain, prepare=lambda api: setattr(api, "down", not seen))
    api.down = True
    bench.show(reboot(bench, 20), wait=30)
    assert bench.metric("hooks_total", **FAILED) == failed
    ended = [one.__dict__["reason"] for one in caplog.records if one.getMessage() == "drain ended"]
    assert [reason.partition(":")[0] for reason in ended] == ["get nodes"] * failed
    api.down = False
    bench.advance(10)
    assert "create pods/eviction" not in api.calls


@pytest.mark.parametrize("call", ["patch nodes/status", "create events", "list pods", "create pods/eviction"])
def test_what_is_forbidden(start: Start, call: str) -> None:
    """It is a problem with verb and resource, and what is not forbidden is done."""
    bench, api = start()
    api.refused = {call: 403}
    bench.show(reboot(bench), wait=10)
    assert bench.api("problems") == [f"kubernetes_failing: {call}: status 403: forbidden: cannot {call}"]
    assert api.node["spec"]["unschedulable"]
    assert (api.condition("MaintenancePlanned") or [""])[0] == ("False" if "status" in call else "True")
    assert bool(api.graces) is ("pods" not in call)
    assert bool(reasons(api)) is ("events" not in call)
    api.refused = {}
    bench.advance(10)
    assert bench.api("problems") == []
    assert api.graces == {"web": None}


ALWAYS = ["get nodes", "patch nodes"]
OF_CONDITIONS = ["patch nodes/status", "create events in default"]
OF_DRAIN = ["list pods", "create pods/eviction", "create events"]


@pytest.mark.parametrize(
    ("drain", "conditions", "asked"),
    [
        (None, True, ALWAYS + OF_CONDITIONS),
        ("", True, ALWAYS + OF_CONDITIONS + OF_DRAIN),
        ("delete_before: 1m", False, [*ALWAYS, *OF_DRAIN, "delete pods"]),
        ("mode: cordon", False, ALWAYS),
        ("mode: dry_run", False, [*ALWAYS, "list pods"]),
        (None, False, []),
    ],
)
def test_rights_that_are_there(
    start: Start, drain: str | None, asked: list[str], *, conditions: bool
) -> None:
    """Each that the configuration needs is asked for once, without any event, and no other."""
    bench, api = start(drain, conditions=conditions)
    bench.advance(120)
    assert (api.reviewed, bench.api("problems")) == (asked, [])


def test_rights_that_are_missing(start: Start) -> None:
    """They are one problem, before an event needs them, until the service account has them."""
    lacked = {"patch nodes/status", "create pods/eviction", "create events", "create events in default"}
    bench, api = start(prepare=lambda api: api.lacked.update(lacked))
    lacks = "kubernetes_failing: access: the service account lacks the rights"
    words = f"{lacks}: {{}}; bind it to a role that has them"
    missing = "patch nodes/status, create events, create pods/eviction"
    assert bench.api("problems") == [words.format(missing)]
    api.lacked = {"create events"}
    bench.advance(31)
    assert bench.api("problems") == [words.format("create events")]
    api.lacked.clear()
    bench.advance(31)
    asked = len(api.reviewed)
    bench.advance(31)
    assert (len(api.reviewed), bench.api("problems")) == (asked, [])


@pytest.mark.parametrize("status", [403, 404])
def test_rights_that_nobody_may_ask_for(start: Start, status: int) -> None:
    """Where reviews are refused, that is no problem, and they are not repeated."""

    def prepare(api: Api) -> None:
        api.refused["create selfsubjectaccessreviews"] = status

    bench, api = start(prepare=prepare)
    bench.advance(60)
    assert (api.calls.count("create selfsubjectaccessreviews"), bench.api("problems")) == (1, [])


def test_an_event_that_comes_closer(start: Start) -> None:
    """Pods are evicted again, with less time, and what kept them before is not shown any more."""
    bench, api = start()
    api.protected = {"web"}
    bench.show(reboot(bench), wait=3)
    assert "(status 429: " in bench.api("kubernetes")["drain"]
    bench.restart()
    api.protected = set()
    bench.advance(5)
    assert api.graces == {"web": None}
    bench.show(reboot(bench, 20))
    assert api.graces["web"] in range(10, 20)
    assert bench.api("kubernetes")["drain"] == "1 pod is left: default/web"


def test_a_postponement(start: Start) -> None:
    """The Node is uncordoned until the new NotBefore is near, or an earlier start, and is drained anew."""
    bench, api = start("before: 10m", APPROVE.replace("approve,", "approve, delay: 1m,"))
    bench.show(reboot(bench, 300), wait=3)
    assert (TAINT in api.taints(), set(api.graces)) == (True, {"web"})
    api.end()
    bench.advance(5)
    assert bench.metric("hooks_total", **SUCCEEDED) == 1
    api.pod("new")
    bench.show(reboot(bench, 3600), wait=90)
    assert (TAINT in api.taints(), set(api.graces), bench.approved) == (False, {"web"}, [])
    bench.show(reboot(bench, 300), wait=3)
    assert (TAINT in api.taints(), set(api.graces), bench.approved) == (True, {"web", "new"}, [])
    api.end()
    bench.advance(5)
    assert (bench.metric("hooks_total", **SUCCEEDED), bench.approved) == (2, [REBOOT_ID])
    bench.show(reboot(bench, 3600), wait=2)
    assert TAINT not in api.taints()
    bench.show(reboot(bench, 620), wait=18)
    assert TAINT not in api.taints()
    bench.advance(3)
    assert TAINT in api.taints()
    bench.show(reboot(bench, 3600), wait=2)
    assert TAINT not in api.taints()
    bench.show(reboot(bench, 3600, EventStatus="Started"), wait=3)
    assert TAINT in api.taints()


def test_time_does_not_end_a_drain(start: Start) -> None:
    """What has begun with the notice that its match asks for continues."""
    bench, api = start("match: {min_notice: 5m}")
    bench.show(reboot(bench, 310), wait=60)
    assert api.annotations()["cordoned"] == REBOOT_ID


@pytest.mark.parametrize(
    ("call", "status"), [("create events", 409), ("create pods/eviction", 404), ("create pods/eviction", 409)]
)
def test_what_others_have_done(
    start: Start, caplog: pytest.LogCaptureFixture, call: str, status: int
) -> None:
    """An Event that a former process has created, or a pod that is gone, is never reported as a problem."""
    bench, api = start()
    api.refused = {call: status}
    bench.show(reboot(bench), wait=3)
    assert bool(api.graces) is (call == "create events")
    assert bench.metric("pod_evictions_total", outcome="failed") == 0
    assert "degraded" not in caplog.text


def test_evictions_that_end_early(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many pods, no more than are evicted at once follow a request without an answer; five are named."""
    asked = Mock(side_effect=KubernetesError("create it", None, "no answer within 4 s"))
    monkeypatch.setattr(Client, "evict", asked)
    bench, _ = start(prepare=lambda api: [api.pod(f"web-{number}") for number in range(30)], conditions=False)
    bench.show(reboot(bench))
    assert 1 <= asked.call_count <= MOST_AT_ONCE
    drain = bench.api("kubernetes")["drain"]
    assert (drain.count("default/"), drain.rpartition(" and ")[2]) == (5, "26 more")


def test_a_node_that_cannot_be_cordoned(start: Start) -> None:
    """Nothing is evicted, because pods would come back."""
    bench, api = start()
    api.refused = {"patch nodes": 403}
    bench.show(reboot(bench), wait=10)
    assert "waiting until the Node is cordoned" in bench.api("kubernetes")["drain"]
    assert api.graces == {}


def test_others_change_the_node_meanwhile(start: Start) -> None:
    """A change between reading and writing is not lost: the Node is read again."""
    bench, api = start()

    def taint() -> None:
        api.node["spec"]["taints"] = [{"key": "theirs", "effect": "NoSchedule"}]
        api.node["metadata"]["resourceVersion"] = "77"
        api.meanwhile = lambda: None

    api.meanwhile = taint
    bench.show(reboot(bench), wait=2)
    assert api.taints() == {"theirs": "", TAINT: "Reboot"}
    bench.show(wait=2)
    assert api.taints() == {"theirs": ""}


@pytest.mark.parametrize("key", ["remediator.kubernetes.azure.com/unschedulable", "karpenter.sh/disrupted"])
def test_what_others_drain(start: Start, key: str) -> None:
    """Nothing is done here; the drain succeeds only when they have emptied the Node."""
    bench, api = start("", APPROVE)
    api.node["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"}]
    bench.show(reboot(bench), wait=10)
    assert (api.graces, api.taints(), bench.approved) == ({}, {key: ""}, [])
    assert f"the taint {key}" in bench.api("kubernetes")["drain"]
    api.pods.pop("web")
    bench.advance(5)
    assert bench.approved == [REBOOT_ID]


def cordoned_by_an_administrator(api: Api) -> None:
    api.node["spec"]["unschedulable"] = True


def cordoned_again(api: Api) -> None:
    """Uncordon and cordon the Node during the event, as `managedFields` show."""
    fields = {"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    api.node["metadata"]["managedFields"] = [fields]


@pytest.mark.parametrize("change", [cordoned_by_an_administrator, cordoned_again])
def test_the_cordon_of_others_stays(start: Start, change: Callable[[Api], None]) -> None:
    """Only our marks are removed; so does the label by which others keep load balancers away."""
    bench, api = start("exclude_from_load_balancers: true", prepare=change)
    api.node["metadata"]["labels"] = {EXCLUDED: "true"}
    bench.show(reboot(bench), wait=2)
    assert TAINT in api.taints()
    bench.show(wait=2)
    assert (api.node["spec"]["unschedulable"], api.annotations(), api.taints()) == (True, {}, {})
    assert api.node["metadata"]["labels"] == {EXCLUDED: "true"}


def marked(api: Api) -> None:
    """Mark the Node as a drain does."""
    api.node["spec"] |= {"unschedulable": True, "taints": [{"key": TAINT, "effect": "NoSchedule"}]}
    api.node["metadata"]["annotations"] = {"scheduled-events-exporter/cordoned": REBOOT_ID}


def test_the_state_was_lost(start: Start) -> None:
    """What the Node says suffices to undo it, but not before the first document, and the name of this VM."""
    bench, api = start(prepare=marked)
    assert (api.annotations(), api.taints(), api.node["spec"].get("unschedulable")) == ({}, {}, None)
    bench.simulator.set_fault(Fault("error", endpoint="instance"))
    bench.app.stop()
    (bench.state / "state.db").unlink()
    marked(api)
    bench.start()
    bench.advance(60)
    assert api.taints() == {TAINT: ""}
    bench.simulator.set_fault(None)
    bench.advance(60)
    assert api.taints() == {}


def test_two_events(start: Start) -> None:
    """The Node stays cordoned until the last is over, with the mark of one that lasts; no pod is no delay."""
    bench, api = start("", APPROVE, prepare=lambda api: api.pods.pop("web"))
    first, second = reboot(bench), reboot(bench, 1800, EventId=FREEZE_ID, EventType="Redeploy")
    bench.show(first, second)
    assert (api.annotations()["cordoned"], api.taints()) == (REBOOT_ID, {TAINT: "Reboot"})
    assert sorted(bench.approved) == sorted((REBOOT_ID, FREEZE_ID))
    assert (bench.metric("hooks_total", **SUCCEEDED), bench.metric("hook_duration_seconds_sum")) == (2, 0)
    bench.show(second, wait=2)
    assert (api.annotations()["cordoned"], api.taints()) == (FREEZE_ID, {TAINT: "Redeploy"})
    bench.show({**second, "EventType": "Freeze"}, wait=2)
    assert api.taints() == {}


CONDITIONS = ("MaintenancePlanned", "MaintenanceInProgress", "DrainInProgress", "Drained")


def marks(api: Api) -> object:
    """Return all that this program has marked on the Node."""
    conditions = [kind for kind in CONDITIONS if api.condition(kind)]
    label = api.node["metadata"].get("labels", {}).get(EXCLUDED)
    return conditions, api.annotations(), api.taints(), api.node["spec"].get("unschedulable"), label


UNMARKED: object = ([], {}, {}, None, None)


@pytest.mark.parametrize("restarts", [False, True], ids=["reload", "restart"])
def test_marks_that_are_no_longer_wanted(start: Start, *, restarts: bool) -> None:
    """They are taken back, each by the key that does not want it any more, also by a new process."""
    bench, api = start("exclude_from_load_balancers: true")

    def configure(**keys: Any) -> None:
        section = yaml.safe_load(bench.file.read_text())["kubernetes"]
        drain = section["drain"] | keys.pop("drain", {})
        text = json.dumps({"kubernetes": section | keys | {"drain": drain}})
        if restarts:
            bench.restart(text)
        else:
            bench.reload(text)
        bench.advance(2)

    bench.show(reboot(bench), wait=2)
    assert api.node["metadata"]["labels"] == {EXCLUDED: "scheduled-events-exporter"}
    configure(drain={"exclude_from_load_balancers": False})
    assert api.node["metadata"]["labels"] == {}
    theirs = {"type": "MaintenancePlanned", "status": "True", "reason": "it", "message": "by others"}
    api.node["status"]["conditions"].append({"type": "Theirs", "status": "True"})
    configure(conditions=False)
    assert ([*api.annotations()], [*api.taints()]) == (["cordoned"], [TAINT])
    assert [api.condition(kind) for kind in CONDITIONS] == [None] * 4
    api.node["status"]["conditions"].append(theirs)
    configure(drain={"mode": "dry_run"})
    assert (api.annotations(), api.taints(), api.node["spec"].get("unschedulable")) == ({}, {}, None)
    assert theirs in api.node["status"]["conditions"]
    configure(conditions=True, drain={"mode": "drain"})
    assert api.taints() == {TAINT: "Reboot"}
    assert api.condition("DrainInProgress") is not None
    configure(drain={"enabled": False})
    assert [kind for kind in CONDITIONS if api.condition(kind)] == [*CONDITIONS[:2]]
    configure(drain={"enabled": True})
    assert api.condition("DrainInProgress") is not None
    configure(conditions=False, drain={"enabled": False})
    assert marks(api) == UNMARKED
    asked = len(api.calls)
    bench.advance(120)
    assert (len(api.calls), bench.api("problems"), bench.api("kubernetes")) == (asked, [], None)
    assert {one["type"] for one in api.node["status"]["conditions"]} == {"Ready", "Theirs"}


@pytest.mark.parametrize("name", ["", "other"])
def test_a_node_that_is_left(start: Start, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Where a reload names no Node or another one, the marks of the old one are taken back."""
    bench, api = start()
    monkeypatch.delenv("NODE_NAME")
    section = yaml.safe_load(bench.file.read_text())["kubernetes"]

    def named(node: str) -> str:
        return json.dumps({"kubernetes": section | {"node": node}})

    bench.restart(named(NODE))
    bench.show(reboot(bench), wait=2)
    assert api.taints() == {TAINT: "Reboot"}
    api.down = True
    bench.reload(named(name))
    bench.advance(2)
    assert bench.api("problems")[0].startswith("kubernetes_failing: get nodes: ")
    bench.reload()
    api.down = False
    bench.advance(6)
    assert marks(api) == UNMARKED
    others = ["kubernetes_failing: get nodes: status 404: other not found"]
    assert bench.api("problems") == (others if name else [])
    bench.reload(named(NODE))
    bench.advance(2)
    assert (api.taints(), bench.api("problems")) == ({TAINT: "Reboot"}, [])


@pytest.mark.parametrize("status", [401, 403])
def test_a_node_that_may_not_be_read(start: Start, caplog: pytest.LogCaptureFixture, status: int) -> None:
    """Where nothing is wanted of it, that is no problem: a pod may have NODE_NAME for its messages alone."""
    bench, api = start(None, prepare=lambda api: api.refused.update({"get nodes": status}), conditions=False)
    bench.advance(60)
    assert (api.calls, bench.api("problems")) == (["get nodes"], [])
    assert caplog.messages.count("cannot look for marks of an earlier configuration") == 1


def started(bench: Bench) -> list[dict[str, Any]]:
    return [reboot(bench, EventStatus="Started", NotBefore="")]


@pytest.mark.parametrize("change", [lambda _: [], started], ids=["over", "started"])
def test_an_event_that_changes_during_evictions(
    start: Start, change: Callable[[Bench], list[dict[str, Any]]]
) -> None:
    """No eviction follows the new document, and the Node does not wait for those in progress."""
    many = [f"web-{number:02}" for number in range(60)]
    bench, api = start("before: 10m", prepare=lambda api: [*map(api.pod, many)])
    lock, seen = threading.Lock(), threading.Event()
    marked: list[tuple[dict[str, str], object]] = []

    def evicting() -> None:
        with lock:
            if not marked:
                bench.announce(*change(bench))
                bench.clock.pass_seconds(1)
                bench.loops.turn("poller")
                bench.loops.turn("kubernetes")
                marked.append((api.taints(), (api.condition("MaintenanceInProgress") or [""])[0]))
                seen.set()
        seen.wait(30)

    api.evicting = evicting
    bench.show(reboot(bench, 590), wait=3)
    is_started = change is started
    assert marked == [({TAINT: "Reboot"} if is_started else {}, str(is_started))]
    assert 1 <= len(api.graces) <= MOST_AT_ONCE
    assert bench.metric("hooks_total", **SUCCEEDED) == 0


def test_a_stop_during_evictions(start: Start) -> None:
    """No eviction follows it; the next process requests the others."""
    many = [f"web-{number:02}" for number in range(60)]
    bench, api = start(prepare=lambda api: [*map(api.pod, many)])
    stop, stopped = threading.Lock(), threading.Event()

    def evicting() -> None:
        if stop.acquire(blocking=False):
            bench.app.stop()
            stopped.set()
        stopped.wait(30)

    api.evicting = evicting
    bench.show(reboot(bench), wait=3)
    assert 1 <= len(api.graces) <= MOST_AT_ONCE
    bench.start()
    bench.advance(5)
    assert api.graces.keys() >= {*many}


LARGE = 1_700_000


def test_pods_that_are_large(start: Start) -> None:
    """Smaller pages are asked for until they fit, and all are evicted; the next drain begins as usual."""
    large = [f"large-{number}" for number in range(5)]

    def prepare(api: Api) -> None:
        api.page = 20
        for name in large:
            api.pod(name, size=LARGE)

    bench, api = start(prepare=prepare, conditions=False)
    bench.show(reboot(bench), wait=1)
    assert (set(api.graces), bench.api("problems")) == ({*large, "web"}, [])
    assert [size for size, _ in itertools.groupby(api.limits)] == [20, 5, 1]
    api.end()
    bench.advance(5)
    assert bench.metric("hooks_total", **SUCCEEDED) == 1
    bench.show(wait=2)
    bench.show(reboot(bench), wait=2)
    assert api.limits[-1] == 20


@pytest.mark.parametrize(("seconds", "grace"), [(20, 15), (900, 30)])
def test_a_pod_that_alone_is_too_large(start: Start, seconds: float, grace: int) -> None:
    """Its metadata suffices to evict it, with a grace period as its own is not known; so are all others."""
    bench, api = start(prepare=lambda api: api.pod("huge", size=5_000_000, managedFields=[]))
    api.pods["huge"]["metadata"].pop("managedFields")
    api.pods["huge"]["spec"]["containers"] *= 3
    bench.show(reboot(bench, seconds), wait=1)
    assert set(api.graces) == {"huge", "web"}
    assert grace - 2 <= (api.graces["huge"] or 0) <= grace
    assert "default/huge (terminating)" in bench.api("kubernetes")["drain"]
    assert bench.api("problems") == []


def test_a_node_that_is_too_large(start: Start) -> None:
    """It is not read, which is a problem; it is marked once it is smaller."""

    def prepare(api: Api) -> None:
        api.node["metadata"]["annotations"] = {"it": "x" * 1_600_000}

    bench, api = start(prepare=prepare)
    bench.show(reboot(bench), wait=2)
    large = "kubernetes_failing: get nodes: the answer is over 1.5 MiB"
    assert (bench.api("problems"), api.taints()) == ([large], {})
    api.node["metadata"]["annotations"] = {}
    bench.advance(6)
    assert (bench.api("problems"), api.taints()) == ([], {TAINT: "Reboot"})


def test_names_of_pods_that_are_too_long(start: Start) -> None:
    """They are not all kept: those before are evicted, and the drain does not succeed."""
    bench, api = start(prepare=lambda api: [api.pod(f"zz-{number}-{'x' * 400_000}") for number in range(3)])
    bench.show(reboot(bench), wait=2)
    large = "list pods: the names of the pods take over 1 MiB"
    assert f"kubernetes_failing: {large}" in bench.api("problems")
    assert "web" in api.graces
    api.end()
    bench.advance(6)
    assert large in bench.api("kubernetes")["drain"]
    assert bench.metric("hooks_total", **SUCCEEDED) == 0


def test_a_list_without_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a problem, but the pods that it has are evicted; the drain does not succeed."""
    monkeypatch.setattr("exporter.outputs.kubernetes.client._MOST_PAGES", 10)
    bench, api = start("", APPROVE, prepare=lambda api: setattr(api, "endless", True))
    bench.show(reboot(bench), wait=2)
    endless = "list pods: the list has no end within 10 pages and 30 s"
    assert bench.api("problems") == [f"kubernetes_failing: {endless}"]
    assert bench.api("kubernetes")["drain"] == f"at least 1 pod is left: default/web (terminating); {endless}"
    assert set(api.graces) == {"web"}
    api.pods.clear()
    bench.advance(6)
    assert (bench.api("kubernetes")["drain"], bench.approved) == (endless, [])
    api.endless = False
    bench.advance(6)
    assert (bench.api("problems"), bench.approved) == ([], [REBOOT_ID])


def test_events_of_others(start: Start) -> None:
    """Nothing is done for another VM."""
    bench, api = start()
    bench.show(reboot(bench, Resources=["WestNO_7"]), wait=2)
    assert (api.taints(), api.annotations(), api.events) == ({}, {}, {})
    assert "patch nodes" not in api.calls


def test_without_a_service_account(build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The problem says what is missing and how to mend it; without a Node there is none."""
    file = f"kubernetes: {{node: vmss000046, service_account: '{tmp_path}'}}"
    missing = f"{tmp_path}/token cannot be read: No such file or directory; mount a service account"
    bench = build(file)
    bench.advance(5)
    assert bench.api("problems") == [f"kubernetes_failing: get nodes: {missing}"]
    (tmp_path / "token").write_text("it")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    bench.advance(5)
    remedy = "KUBERNETES_SERVICE_HOST and _PORT are not set; run the exporter in a pod"
    assert bench.api("problems") == [f"kubernetes_failing: get nodes: {remedy}"]
    bench.reload("")
    assert (bench.api("problems"), bench.api("kubernetes")) == ([], None)


def test_the_name_of_the_node(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages and `instance_info` have that of the file, by default that of the environment."""
    oncall = "notifications: {targets: [{name: oncall, url: 'json://receiver.test'}]}"
    text = f"{oncall}\nkubernetes: {{conditions: false%s}}"
    monkeypatch.setenv("NODE_NAME", "from-environment")
    bench = build(text % "")
    bench.show(raw_event())
    bench.reload(text % ", node: from-file")
    bench.show()
    found = [name for one in bench.sent() for name in re.findall("Node: (.*)", one.body)]
    assert found == ["from-environment", "from-file"]
    assert bench.metric("instance_info", node="from-file") == 1


def seen(bench: Bench, api: Api) -> dict[str, object]:
    """Return what keys of the configuration change."""
    return {
        "cordoned": TAINT in api.taints(),
        "evicted": sorted(api.graces.keys() - {"guarded"}),
        "deleted": sorted(api.graces.keys() & {"guarded"}),
        "kept": "without a controller, not evicted: default/bare" in bench.api("kubernetes")["drain"],
        "grace": api.graces.get("web"),
        "label": EXCLUDED in api.node["metadata"].get("labels", {}),
        "condition": api.condition("MaintenancePlanned") is not None,
    }


USUAL: dict[str, object] = {"cordoned": True, "condition": True, "label": False, "kept": False}
USUAL |= {"deleted": [], "evicted": ["bare", "web"], "grace": None}
NOTHING = {"cordoned": False, "evicted": []}
ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "drain.mode": ("mode: cordon", {"evicted": []}),
    "drain.match": ("match: {event_types: [Redeploy]}", NOTHING),
    "drain.before": ("before: 10m", NOTHING),
    "drain.exclude_from_load_balancers": ("exclude_from_load_balancers: true", {"label": True}),
    "drain.force": ("force: false", {"evicted": ["web"], "kept": True}),
    "drain.pod_grace_period": ("pod_grace_period: 1s", {"grace": 1}),
    "drain.pod_selector": ("pod_selector: tier", {"evicted": ["bare"], "grace": None}),
    "drain.delete_before": ("delete_before: 1h", {"deleted": ["guarded"]}),
    "drain.skip_node_labels": ("skip_node_labels: {team: data}", NOTHING),
    "drain.enabled": ("enabled: false", NOTHING),
    "conditions": ("", {"condition": False}),
}


@pytest.mark.parametrize("key", sorted({*keys(inspect.type_info(Kubernetes))} - {"node", "service_account"}))
def test_a_key(start: Start, key: str) -> None:
    """A file with the key has another effect than one without it; the other two keys lead here."""
    text, difference = ROWS[key]

    def prepare(api: Api) -> None:
        api.pod("bare", "", labels={"tier": "data"})
        api.pod("guarded")
        api.protected.add("guarded")
        api.node["metadata"]["labels"] = {"team": "data"}

    bench, api = start(text, prepare=prepare, conditions=key != "conditions")
    bench.show(reboot(bench), wait=5)
    assert seen(bench, api) == USUAL | difference
