"""The watch of one VM: polls, its own name, restarts, defects in documents, and outages."""

import getpass
import json
import logging
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.model.events import trace_id
from exporter.model.jobs import HookOutcome
from exporter.model.messages import WatchChange, WatchMessage
from exporter.outputs.hooks.command import CommandResult
from exporter.outputs.notifications.webhook import cloud_event
from exporter.simulator import Fault, Simulator
from exporter.simulator.documents import instance_document
from exporter.watch.watch import Watch
from tests.bench import Bench, Build
from tests.bench.bench import NAMELESS, SUCCEEDED, VM, start_nameless
from tests.builders import ABSENT, FREEZE_ID, NOT_BEFORE, REBOOT_ID, raw_event
from tests.clocks import NOW

STARTED = {"EventStatus": "Started", "NotBefore": ""}
OTHERS = {"Resources": ["WestNO_7"]}
REBOOT = {"EventType": "Reboot", "EventId": REBOOT_ID}
HOOK = "hooks: [{name: a, command: [a]}]"
ONCALL = "notifications: {targets: [{name: oncall, url: 'json://receiver.test'}]}"


def ran(bench: Bench) -> list[tuple[str, str]]:
    names = ("EVENT_ID", "EVENT_TRANSITION")
    return [(env[names[0]], env[names[1]]) for env in (command.environment for command in bench.commands)]


def test_a_life_in_metrics_and_log(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """Transitions, notice and impact are counted once, and each transition is one line with its facts."""
    caplog.set_level(logging.INFO, "exporter")
    bench = build("events: {imminent: []}")
    bench.show(raw_event(DurationInSeconds=9))
    bench.show(raw_event(), wait=900)
    bench.show(raw_event(**STARTED), wait=7)
    bench.show(wait=30)
    assert bench.metric("transitions_total") == 4
    assert bench.metric("notice_seconds_sum") == (NOT_BEFORE - NOW - timedelta(seconds=1)).total_seconds()
    assert bench.metric("impact_seconds_sum") == 7
    assert bench.metric("event_resources") is None
    lines = [record.__dict__ for record in caplog.records if record.getMessage() == "transition"]
    assert [line["transition"] for line in lines] == ["scheduled", "updated", "started", "completed"]
    common = {
        "event_id": FREEZE_ID,
        "trace_id": trace_id(FREEZE_ID),
        "event_source": "Platform",
        "target": "self",
        "instance": "WestNO_0",
        "resources": ("WestNO_0", "WestNO_1"),
        "first_seen": NOW + timedelta(seconds=1),
    }
    assert all(line | common == line for line in lines)
    assert (lines[1]["old_duration_seconds"], lines[1]["duration_seconds"]) == (9, 5)
    assert lines[3]["impact_seconds"] == 7
    assert 'transition="scheduled"} 1.0' in bench.request("/metrics")[1]


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [("error", "http_error"), ("throttle", "throttled"), ("garbage", "invalid_document"),
     ("drop", "connection_error")],
)  # fmt: skip
def test_imds_fails(build: Build, caplog: pytest.LogCaptureFixture, fault: Any, outcome: str) -> None:
    """The exporter is degraded, logs the failure and its end once, and keeps the last known events."""
    bench = build()
    bench.show(raw_event())
    caplog.set_level(logging.INFO, "exporter")
    bench.simulator.set_fault(Fault(fault))
    bench.advance(30)
    assert (bench.metric("up"), bench.request("/-/ready")[0]) == (0, 200)
    assert bench.metric("degraded", reason="imds_failing") == 1
    status = json.loads(bench.request("/api/v1/status")[1])
    assert (status["state"], status["configuration"]["file"]) == ("degraded", str(bench.file))
    assert status["problems"] == [f"imds_failing: {status['last_error']}"]
    assert bench.metric("pending", event_type="Freeze", target="self") == 1
    assert (bench.metric("polls_total", outcome=outcome) or 0) > 3
    bench.simulator.set_fault(None)
    bench.advance(30)
    assert [record.getMessage() for record in caplog.records] == ["poll failed", "IMDS answers"]
    assert bench.metric("transitions_total") == 1
    assert bench.metric("degraded") == 0
    assert json.loads(bench.request("/api/v1/status")[1])["state"] == "ok"


def test_a_program_that_no_allowlist_names(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """Log, status, page, metric and message say what to allow, until IMDS answers."""
    bench = build(f"{ONCALL[:-1]}, watch: {{after: 1m}}}}")
    bench.show(raw_event())
    caplog.set_level(logging.INFO, "exporter")
    bench.simulator.set_fault(Fault("forbidden"))
    bench.advance(90)
    paths, executable = "/metadata/scheduledevents and /metadata/instance", Path(sys.executable).resolve()
    remedy = f"allow {paths} to the executable {executable} of the user {getpass.getuser()}"
    (line,) = (record.__dict__ for record in caplog.records if record.getMessage() == "poll failed")
    assert remedy in line["error"]
    assert bench.api("problems") == [f"imds_forbidden: {line['error']}"]
    assert remedy in bench.request("/")[1]
    assert "Blind" in bench.request("/")[1]
    assert remedy in bench.sent()[-1].body
    for reason, value in (("imds_forbidden", 1), ("imds_failing", 0), ("instance_unknown", 0)):
        assert bench.metric("degraded", reason=reason) == value
    bench.simulator.set_fault(None)
    bench.advance(30)
    assert (bench.api("problems"), bench.metric("degraded")) == ([], 0)


def test_only_the_facts_are_forbidden(build: Build) -> None:
    """An allowlist without /metadata/instance hides the VM's name, for which there are two problems."""
    bench = build("imds: {poll_interval: 1h}")
    bench.simulator.set_fault(Fault("forbidden", endpoint="instance"))
    bench.forget("")
    assert [one.partition(":")[0] for one in bench.api("problems")] == ["imds_forbidden", "instance_unknown"]
    assert bench.metric("degraded", reason="imds_forbidden") == 1
    bench.simulator.set_fault(None)
    bench.advance(15)
    assert bench.api("problems") == []


def test_an_imds_with_older_versions(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The VM learns its name, so that its events are its own and its hooks run; the versions are shown."""
    versions = {"scheduledevents": ("2017-08-01", "2019-01-01"), "instance": ("2017-12-01", "2018-10-01")}
    monkeypatch.setattr("exporter.simulator.server._VERSIONS", versions)
    bench = build(HOOK)
    bench.show(raw_event(), raw_event(EventId="b", **OTHERS), wait=5)
    status = json.loads(bench.request("/api/v1/status")[1])
    names = ("api_version", "instance_api_version", "instance", "problems")
    assert [status[name] for name in names] == ["2019-01-01", "2018-10-01", VM, []]
    assert ran(bench) == [(FREEZE_ID, "scheduled")]
    assert bench.metric("pending", target="other") == 1


@pytest.mark.parametrize(("minutes", "words"), [(-15, "15m behind"), (90, "1h30m ahead of")])
def test_a_clock_that_differs_from_that_of_imds(
    build: Build, monkeypatch: pytest.MonkeyPatch, minutes: int, words: str
) -> None:
    """By over a minute it is a problem, until the clock is right; polls go on."""
    bench = build("")
    now, off = Simulator.now, timedelta(minutes=minutes)
    with monkeypatch.context() as patch:
        patch.setattr(Simulator, "now", lambda simulator: now(simulator) - off)
        bench.advance(60)
        (problem,) = bench.api("problems")
        assert problem.startswith(f"clock_skew: the clock of this VM is {words} that of IMDS: ")
        assert (bench.metric("degraded", reason="clock_skew"), bench.metric("up")) == (1, 1)
    bench.advance(2)
    assert bench.api("problems") == []


def test_a_name_that_imds_does_not_know(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """A configured name that is not the VM's wins, but is reported, once, until it is corrected."""
    bench = build("instance: {name: westno-0.internal}")
    bench.show(raw_event(**REBOOT, Resources=[VM]), wait=400)
    assert bench.metric("pending", target="other", event_type="Reboot") == 1
    problem = (
        "instance_name_differs: instance.name is westno-0.internal, but IMDS calls this VM WestNO_0: "
        "events that name WestNO_0 count as those of another VM; remove instance.name"
    )
    assert bench.api("problems") == [problem]
    assert bench.metric("degraded", reason="instance_name_differs") == 1
    assert [r.__dict__["reason"] for r in caplog.records] == ["instance_name_differs"]
    bench.reload("instance: {name: _westNO_0}")
    bench.advance(5)
    assert bench.metric("pending", target="self", event_type="Reboot") == 1
    assert (bench.api("problems"), bench.metric("degraded")) == ([], 0)


@pytest.mark.parametrize("fault", [Fault("throttle", retry_after=120), Fault("error", 503, 120)])
def test_imds_asks_for_a_pause(build: Build, fault: Fault) -> None:
    """It gets no request for that long, also with an approval due, and answers the next one."""
    bench = build("approval: {mode: on, rules: [{name: a, match: {}, action: approve}]}")
    bench.advance(5)
    bench.show(raw_event(), wait=0)
    bench.simulator.set_fault(fault)
    before = len(bench.asked)
    bench.advance(1.5)
    assert len(bench.asked) == before + 1
    bench.simulator.set_fault(None)
    bench.advance(118)
    assert len(bench.asked) == before + 1
    bench.advance(3)
    assert bench.approved == [FREEZE_ID]


def test_not_ready_without_a_document(build: Build) -> None:
    """Readiness comes with the first valid document, and nothing takes the VM out of service before.

    Both say why not; the process is healthy.
    """
    bench = build()
    bench.show(raw_event(**REBOOT, NotBefore="Wed, 04 Mar 2026 22:01:00 GMT"))
    status, text = bench.request("/-/in-service")
    assert (status, text.partition(": Reboot ")[0]) == (503, "Out of service")
    bench.simulator.set_fault(Fault("error"))
    bench.restart()
    status, text = bench.request("/-/ready")
    assert (status, bench.request("/-/in-service")[0], bench.request("/-/healthy")[0]) == (503, 200, 200)
    error = json.loads(bench.request("/api/v1/status")[1])["last_error"]
    assert text == f"Not ready: no valid document from {bench.imds.url} yet: {error}\n"
    assert bench.metric("up") == 0
    assert bench.metric("event_first_seen_timestamp_seconds") == (NOW + timedelta(seconds=1)).timestamp()
    bench.simulator.set_fault(None)
    bench.advance(30)
    assert (bench.request("/-/ready")[0], bench.request("/-/in-service")[0]) == (200, 503)
    bench.simulator.set_fault(Fault("error"))
    bench.advance(30)
    assert bench.request("/-/in-service")[0] == 503


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"NotBefore": "Wed, 04 Mar 2026 22:05:00 GMT"}, 200),
        (REBOOT | {"NotBefore": "Wed, 04 Mar 2026 22:05:01 GMT"}, 503),
        (REBOOT | {"NotBefore": "Wed, 04 Mar 2026 22:05:02 GMT"}, 200),
        (REBOOT | STARTED, 503),
        (REBOOT | STARTED | OTHERS, 200),
        ({"EventType": "Levitate", "NotBefore": "Wed, 04 Mar 2026 22:05:00 GMT"}, 200),
    ],
)
def test_in_service_by_default(build: Build, fields: dict[str, Any], status: int) -> None:
    """What ends what the VM does takes it out 5 minutes before; a Freeze, and others' events, do not."""
    bench = build()
    bench.show(raw_event(**fields))
    assert bench.request("/-/in-service")[0] == status
    bench.show()
    assert bench.request("/-/in-service")[0] == 200


@pytest.mark.parametrize("kill", [False, True])
def test_a_start_during_a_restart(build: Build, kill: bool) -> None:
    """It counts as observed if the polls around it are at most 30 s apart, also across a kill."""
    bench = build("imds: {poll_interval: 5s}")
    bench.show(raw_event(NotBefore="Wed, 04 Mar 2026 23:00:00 GMT"), wait=200)
    bench.announce(raw_event(**STARTED))
    bench.kill() if kill else bench.restart(after=5)
    assert bench.api("current")[0]["started"] is not None


@pytest.mark.parametrize(("events", "counted"), [("self", 0), ("all", 1)])
def test_events_of_other_vms(build: Build, events: str, counted: int) -> None:
    """They are pending always, also in the first document, and counted only where all are wanted."""
    bench = build("imds: {poll_interval: 1h}")
    bench.show(raw_event(**OTHERS))
    bench.restart(f"metrics: {{events: {events}}}")
    bench.show(raw_event(**OTHERS), raw_event(**REBOOT))
    assert bench.metric("transitions_total", event_type="Freeze") == counted
    assert bench.metric("transitions_total", event_type="Reboot") == 1
    assert bench.metric("pending", target="other") == 1
    assert bench.reload("metrics: {events: all}") == 200
    assert bench.metric("event_resources", event_type="Freeze") == 1


def test_the_name_is_unknown(build: Build) -> None:
    """Every event is this VM's until IMDS tells the name, which it is asked for every 10 s."""
    bench = start_nameless(build, HOOK)
    bench.show(raw_event(**OTHERS), wait=60)
    assert bench.metric("pending", target="self") == 1
    assert bench.metric("degraded", reason="instance_unknown") == 1
    assert ran(bench) == []
    bench.simulator.set_fault(None)
    bench.advance(9)
    assert bench.metric("pending", target="other") == 0
    bench.advance(1)
    assert bench.metric("pending", target="other") == 1
    assert bench.api("problems") == []
    assert ran(bench) == []


@pytest.mark.parametrize("reboots", [False, True])
def test_a_name_is_remembered(build: Build, *, reboots: bool) -> None:
    """After a restart the VM goes by its name, and acts; on another boot the state may be another VM's."""
    bench = build(HOOK)
    bench.simulator.set_fault(NAMELESS)
    if reboots:
        bench.clock.reboot()
    bench.restart()
    bench.show(raw_event(**OTHERS), raw_event(**REBOOT))
    assert (bench.metric("pending", target="other"), len(ran(bench))) == ((0, 0) if reboots else (1, 1))
    assert [one.partition(":")[0] for one in bench.api("problems")] == ["instance_unknown"] * reboots
    bench.simulator.set_fault(None)
    bench.advance(10)
    assert (bench.metric("pending", target="other"), len(ran(bench)), bench.api("problems")) == (1, 1, [])


def test_the_series_of_an_event_keep_the_name(build: Build) -> None:
    """After a reboot they have the name with which the event began, although nothing acts without one."""
    bench = build()
    bench.show(raw_event())
    bench.simulator.set_fault(NAMELESS)
    bench.clock.reboot()
    bench.restart()
    assert bench.metric("event_info", instance_name=VM) == 1
    assert bench.metric("event_phase_timestamp_seconds", instance_name=VM) == NOT_BEFORE.timestamp()
    assert [one.partition(":")[0] for one in bench.api("problems")] == ["instance_unknown"]


def test_only_the_name_that_imds_told_is_remembered(build: Build) -> None:
    """A configured name is not this VM's any more once it is no longer configured."""
    bench = build("imds: {poll_interval: 1h}")
    bench.simulator.set_fault(NAMELESS)
    bench.forget("instance: {name: WestNO_7}")
    bench.show(raw_event(**OTHERS))
    bench.restart(HOOK)
    bench.advance(2)
    assert [one.partition(":")[0] for one in bench.api("problems")] == ["instance_unknown"]


def test_hooks_wait_for_the_name(build: Build) -> None:
    """They run for the phase that each event of this VM is in then, unless it is gone."""
    bench = start_nameless(build, HOOK)
    a, b, gone = (raw_event(EventId=name) for name in ("a", "b", "gone"))
    other = raw_event(EventId="other", **OTHERS)
    bench.show(a, b, gone, other)
    bench.show(a | STARTED, b | {"DurationInSeconds": 7}, other)
    bench.restart()
    bench.simulator.set_fault(None)
    bench.advance(70)
    assert sorted(ran(bench)) == [("a", "started"), ("b", "scheduled")]


@pytest.mark.parametrize(("reboots", "outcome"), [(True, "vanished"), (False, "cancelled")])
def test_gone_while_the_exporter_was_down(build: Build, *, reboots: bool, outcome: str) -> None:
    """On another boot, after NotBefore, messages, hooks and metrics do not deny that it may have happened."""
    bench = build(f"{HOOK}\n{ONCALL}")
    bench.show(raw_event(**REBOOT))
    bench.announce()
    if reboots:
        bench.clock.reboot()
    bench.restart(after=1200)
    bench.advance(5)
    assert bench.api("past")[0]["outcome"] == outcome
    assert f"Reboot {outcome}" in bench.sent()[-1].title
    assert [transition for _, transition in ran(bench)] == ["scheduled", outcome]
    assert bench.metric("transitions_total", event_type="Reboot", transition=outcome) == 1


def test_hooks_wait_for_the_name_on_another_boot(build: Build) -> None:
    """Those that have run do not run again, and those for a phase that began meanwhile run once."""
    bench = build(HOOK)
    a, b = (raw_event(EventId=name) for name in ("a", "b"))
    bench.show(a, b)
    bench.simulator.set_fault(NAMELESS)
    bench.clock.reboot()
    bench.restart()
    bench.show(a | STARTED, b)
    assert sorted(ran(bench)) == [("a", "scheduled"), ("b", "scheduled")]
    bench.simulator.set_fault(None)
    bench.advance(70)
    assert sorted(ran(bench)) == [("a", "scheduled"), ("a", "started"), ("b", "scheduled")]


def test_a_reload_may_name_the_vm(build: Build) -> None:
    """A configured name precedes that of IMDS; without it the name is unknown again until IMDS tells it."""
    bench = start_nameless(build, "")
    bench.show(raw_event(**OTHERS))
    for name in ("WestNO_7", ""):
        bench.reload(f"instance: {{name: '{name}'}}")
        bench.advance(400)
        assert bench.metric("degraded", reason="instance_unknown") == (0 if name else 1)
        assert bench.metric("pending", target="self") == 1
        assert bench.metric("event_info", instance_name=name) == 1
    bench.simulator.set_fault(None)
    bench.advance(10)
    assert (bench.api("problems"), bench.metric("pending", target="other")) == ([], 1)


@pytest.mark.parametrize("how", ["reload", "restart", "imds"])
def test_an_event_ends_under_the_name_that_was_told(
    build: Build, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A VM that gets another name ends its events under the old one, so that incidents are closed."""
    caplog.set_level(logging.INFO, "exporter")
    bench = build(f"{ONCALL}\n{HOOK}")
    ours, both = raw_event(EventId="a", Resources=[VM]), raw_event(EventId="b", Resources=[VM, "other_1"])
    bench.show(ours, both)
    named = f"{ONCALL}\n{HOOK}\ninstance: {{name: other_1}}"
    if how == "reload":
        assert bench.reload(named) == 200
        bench.advance(5)
    else:
        document = instance_document("other_1")
        monkeypatch.setattr("exporter.simulator.server.instance_document", lambda *_: document)
        bench.restart(named if how == "restart" else None)
        bench.advance(5)
    bench.show(ours, both, wait=5)
    assert [one["id"] for one in bench.api("current") if one["target"] == "self"] == ["b"]
    bench.show(raw_event(EventId="c", Resources=["other_1"]), wait=5)
    told = [(message.incident, message.resolves, message.source) for message in bench.sent()]
    assert told[:2] == [(f"{name}/{VM}", False, VM) for name in "ab"]
    assert told[2:] == [(f"{name}/{VM}", True, VM) for name in "ab"] + [("c/other_1", False, "other_1")]
    names = [command.environment["INSTANCE_NAME"] for command in bench.commands]
    assert names == [VM] * 4 + ["other_1"]
    lines = [record.__dict__ for record in caplog.records if record.getMessage() == "transition"]
    assert [line["instance"] for line in lines if line["event_id"] == "b"] == [VM, VM]


def test_defects(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """Each is one count and, but for ten in a document, one line; the problem ends with them."""
    bench = build()
    bad, vague = raw_event(EventType=ABSENT), raw_event(EventId=REBOOT_ID, NotBefore="soon")
    bench.show(bad, vague, wait=5)
    bench.show(vague, raw_event(EventId="new"), bad)
    lines = [r.__dict__ for r in caplog.records if r.getMessage() == "event could not be decoded"]
    assert [(line["problem"], line["lost"]) for line in lines] == [
        (f"event {FREEZE_ID}: EventType: it is missing", False),
        (f"event {REBOOT_ID}: NotBefore: 'soon' is not an RFC 1123 or ISO 8601 time", False),
    ]
    assert bench.metric("invalid_events_total") == 2
    assert bench.api("problems") == [f"invalid_event: {lines[1]['problem']} (and 1 more)"]
    for numbers in (range(10), range(10, 22)):
        bench.show(*(raw_event(EventId=str(number), EventType=ABSENT) for number in numbers))
    assert caplog.messages.count("event could not be decoded") == 2 + 10 + 10
    assert [record.__dict__["count"] for record in caplog.records if "more" in record.getMessage()] == [2]
    bench.show(raw_event(EventId="new"))
    assert bench.api("problems") == []


def test_an_uneventful_poll_logs_nothing(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """The same document changes nothing, also with another number; a reset is not reported."""
    bench = build()
    bench.show(raw_event())
    caplog.set_level(logging.INFO, "exporter")
    bench.show(raw_event(), wait=60)
    bench.simulator.set_document({"DocumentIncarnation": 0, "Events": [raw_event()]})
    bench.advance(60)
    assert caplog.records == []
    assert (bench.metric("document_incarnation"), bench.metric("transitions_total")) == (0, 1)


def test_this_vm_joins_leaves_and_returns(build: Build) -> None:
    """Hooks, messages and traces follow this VM, not the event: each life has a beginning and an end."""
    bench = build(f"{ONCALL}\n{HOOK}\ntracing: {{enabled: true}}")
    theirs, ours = raw_event(**OTHERS), raw_event()
    bench.show(theirs)
    assert (bench.sent(), ran(bench)) == ([], [])
    for event in (ours, theirs, ours, ours | STARTED):
        bench.show(event, wait=5)
    bench.show(wait=5)
    bench.show(ours, wait=60)
    expected = ["scheduled", "cancelled", "scheduled", "started", "completed", "scheduled"]
    assert [transition for _, transition in ran(bench)] == expected
    assert [message.title.split()[2].rstrip(":") for message in bench.sent()] == expected
    past = [(one["outcome"], one["left"]) for one in bench.api("past") if one["target"] == "self"]
    assert past == [("completed", False), ("cancelled", True)]
    assert "The event is not for this VM: Azure lists it for other VMs only." in bench.sent()[1].body
    assert "Azure lists it for other VMs only" in bench.request("/")[1]
    roots = [span for span in bench.receiver.spans if not span.parent_id]
    assert (len({span.trace_id for span in roots}), len({span.span_id for span in roots})) == (1, 2)
    assert [one["transition"] for one in bench.api("current")[0]["transitions"]] == ["scheduled"]


def test_another_configured_name_ends_no_event(build: Build) -> None:
    """What was this VM's event is still listed: how it ends will not be seen, and a message says so."""
    bench = build(ONCALL)
    bench.show(raw_event(**STARTED), wait=5)
    bench.reload(f"{ONCALL}\ninstance: {{name: WestNO_7}}")
    bench.advance(5)
    assert "Freeze vanished" in bench.sent()[-1].title
    assert "If instance.name is wrong, correct it." in bench.sent()[-1].body


def test_a_failed_hook_is_told_while_imds_is_silent(build: Build) -> None:
    """It is a transition at once, also without a document, and once, also across a kill."""
    bench = build(f"{ONCALL}\n{HOOK}")
    bench.command_result = lambda _: CommandResult(HookOutcome.FAILED, 3, 0.0, "exit status 3")
    bench.loops.idle.add("hooks")
    bench.show(raw_event())
    bench.simulator.set_fault(Fault("error"))
    bench.advance(5)
    bench.loops.idle.clear()
    bench.kill()
    bench.advance(5)
    bench.kill()
    bench.advance(30)
    assert bench.metric("up") == 0
    failed = ["hook a failed: exit status 3" in message.body for message in bench.sent()]
    assert failed == [False, True]


def test_a_flaw_ends_the_process(
    build: Build, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error of the poller is logged, and ends the process, so that it is started again."""
    bench = build()
    monkeypatch.setattr(Watch, "poll", lambda *_: 1 / 0)
    bench.advance(5)
    assert bench.app.wait() is False
    assert "poller failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_who_was_told_and_which_hooks_ran(build: Build) -> None:
    """The page has the state of each message and hook of an event, also after a restart."""
    bench = build(f"{ONCALL}\n{HOOK}")
    shown = []

    def look() -> CommandResult:
        shown.append(re.findall(r">(\w+)</span> <bdi>(\w+)</bdi>, scheduled", bench.request("/")[1]))
        return SUCCEEDED

    bench.command_result = lambda _: look()
    bench.loops.idle.add("hooks")
    bench.show(raw_event())
    look()
    bench.loops.idle.clear()
    bench.restart()
    look()
    states = ("pending", "running", "succeeded")
    assert shown == [[(state, "a"), ("delivered", "oncall")] for state in states]


def test_an_event_under_a_new_id(build: Build) -> None:
    """API, messages and hooks go on with its first id, metrics with the newest; the API lists both."""
    bench = build(f"{HOOK}\n{ONCALL}")
    bench.show(raw_event())
    bench.show(raw_event(EventId="new", **STARTED))
    (event,) = bench.api("current")
    assert (event["id"], event["ids"]) == (FREEZE_ID, [FREEZE_ID, "new"])
    assert ran(bench) == [(FREEZE_ID, "scheduled"), (FREEZE_ID, "started")]
    assert all(FREEZE_ID in message.body and "new" not in message.body for message in bench.sent())
    assert bench.metric("event_info", event_id="new") == 1


@pytest.mark.parametrize(("step", "impact"), [(3600, None), (-3600, None), (20, 21.0)])
def test_the_clock_is_set_during_an_event(build: Build, step: int, impact: float | None) -> None:
    """How long the event took is not known then, except for a step that a pause of the VM can cause."""
    bench = build()
    bench.show(raw_event())
    bench.show(raw_event(**STARTED))
    bench.clock.set_wall(bench.clock.now() + timedelta(seconds=step))
    bench.show()
    (past,) = bench.api("past")
    assert (past["outcome"], past["impact_seconds"]) == ("completed", impact)
    assert (past["started"] is None) is (impact is None)
    assert bench.metric("impact_seconds_count", event_type="Freeze") == (impact is not None)


@pytest.mark.parametrize("kill", [False, True])
def test_an_outage_over_restarts(build: Build, caplog: pytest.LogCaptureFixture, kill: bool) -> None:
    """It is told after 5 minutes, with the time of the last valid answer and this VM's name, once each.

    A step of the clock is no outage.
    """
    targets = "[{name: oncall, url: 'json://receiver.test'}, {name: hook, webhook: 'http://hook.test'}]"
    bench = build(f"notifications: {{targets: {targets}}}")
    bench.advance(620)
    last = bench.clock.now()
    bench.simulator.set_fault(Fault("error"))
    bench.clock.set_wall(last + timedelta(hours=1))
    for minute in range(10):
        bench.advance(40)
        assert len(bench.sent()) == (minute >= 5), minute
        bench.clock.pass_seconds(20)
        bench.kill() if kill else bench.restart()
    bench.simulator.set_fault(None)
    bench.advance(60)
    events = [json.loads(cloud_event(one.message)) for one in bench.sender("hook").requests]
    assert [event["type"].split(".")[1] for event in events] == ["blind", "recovered"]
    assert {event["subject"] for event in events} == {VM}
    assert {event["data"]["since"] for event in events} == {events[0]["data"]["since"]}
    since = datetime.fromisoformat(events[0]["data"]["since"])
    assert abs((since - last).total_seconds()) <= 1
    assert "after 1 h 10 min" in bench.sent()[1].body
    assert [text for text in caplog.messages if text in list(WatchChange)] == ["blind", "recovered"]


def test_an_outage_of_another_boot(build: Build) -> None:
    """After a reboot the five minutes begin anew; the time of the last valid answer is the true one."""
    bench = build(ONCALL)
    bench.outage(200)
    last = bench.clock.now() - timedelta(seconds=200)
    bench.simulator.set_fault(Fault("error"))
    bench.clock.reboot()
    bench.restart(after=3600)
    bench.advance(290)
    assert bench.sent() == []
    bench.advance(60)
    message = bench.sender().requests[0].message
    assert isinstance(message, WatchMessage)
    assert abs((message.since - last).total_seconds()) <= 1


def test_an_outage_from_the_beginning(build: Build) -> None:
    """Where there was never a valid answer, no message claims one."""
    bench = build()
    bench.simulator.set_fault(Fault("error"))
    bench.forget(ONCALL)
    bench.advance(200)
    bench.kill()
    bench.advance(120)
    (sent,) = bench.sent()
    assert "Last valid answer" not in sent.body
    assert "No valid answer since: 2026-03-04 " in sent.body
