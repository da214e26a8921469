"""Metrics and log records over OTLP, on the bench; spans wait like records."""

import logging
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client import Metric

from exporter.model.events import trace_id
from exporter.outputs.otlp.telemetry import LogRecord, Signal
from exporter.outputs.otlp.worker import FACTS_SECONDS, LONGEST_WAIT, ExportOutcome
from exporter.simulator import Fault
from tests.bench import VM, Bench, Build
from tests.bench.bench import NAMELESS
from tests.builders import FREEZE_ID, raw_event

METRICS = "otlp: {metrics: true}"
LOGS = "otlp: {logs: true}"
STARTED = raw_event(EventStatus="Started", NotBefore="")
PREFIX = "azure.scheduled_event."
REFUSED = ExportOutcome(problem="status 400", refused=True)
DOWN = ExportOutcome(problem="Connection refused")


def pushed(bench: Bench) -> list[float]:
    """Return the seconds since the bench's start at which metrics were pushed."""
    begun = bench.clock.now().timestamp() - bench.clock.monotonic()
    return [at.timestamp() - begun for at, _ in bench.receivers[Signal.METRICS].pushes]


def newest(bench: Bench) -> dict[str, Metric]:
    return bench.receivers[Signal.METRICS].pushes[-1][1]


def sample(bench: Bench, family: str, **labels: str) -> float:
    (found,) = (
        one.value
        for one in newest(bench)[f"azure_scheduled_events_{family}"].samples
        if one.labels == labels and not one.name.endswith("_created")
    )
    return found


def told(bench: Bench) -> list[LogRecord]:
    return bench.receivers[Signal.LOGS].records


def names(bench: Bench) -> list[str]:
    return [one.name.removeprefix(PREFIX) for one in told(bench)]


def show(bench: Bench, *ids: str, wait: float = 1.0) -> None:
    """List events, of each of which there is one record."""
    bench.show(*(raw_event(EventId=one, Resources=["WestNO_0"]) for one in ids), wait=wait)


def ids(bench: Bench) -> list[Any]:
    """Return the events of the records about transitions that arrived."""
    return [one.attributes[f"{PREFIX}id"] for one in told(bench) if f"{PREFIX}id" in one.attributes]


def counted(bench: Bench) -> tuple[float | None, float | None]:
    found = (bench.metric("log_records_total", outcome=name) for name in ("exported", "dropped"))
    return next(found), next(found)


def test_when_metrics_are_pushed(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go every interval, within 2 s of a transition, and once more at the stop."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "30000")
    bench = build(METRICS)
    begun = bench.clock.monotonic()
    bench.advance(70)
    assert [round(at - begun) for at in pushed(bench)] == [0, 30, 60]
    bench.show(raw_event(), wait=0)
    shown = bench.clock.monotonic()
    bench.advance(3)
    assert pushed(bench)[-1] - shown <= 2
    assert sample(bench, "transitions", event_type="Freeze", transition="scheduled") == 1
    assert sample(bench, "event_resources", event_id=FREEZE_ID, event_type="Freeze") == 2
    pushes = len(pushed(bench))
    bench.advance(25)
    assert len(pushed(bench)) == pushes
    bench.restart()
    assert len(pushed(bench)) == pushes + 1


def test_a_receiver_of_metrics_that_is_down(build: Build) -> None:
    """It is asked with back-off, also during a storm of transitions; once it is back it has everything."""
    bench = build(f"{METRICS}\nimds: {{poll_interval: 2s}}")
    receiver = bench.receivers[Signal.METRICS]
    receiver.problem, receiver.tries = "down", 0
    for number in range(60):
        bench.show(raw_event(EventId=f"event-{number}"), wait=2)
    assert 6 <= receiver.tries <= 25
    assert bench.api("problems") == ["otlp_failing: metrics to http://localhost:4318: down"]
    assert bench.metric("degraded", reason="otlp_failing") == 1
    bench.advance(1200)
    receiver.tries = 0
    bench.advance(1200)
    assert receiver.tries <= 10
    receiver.problem = ""
    bench.advance(300)
    assert bench.api("problems") == []
    assert sample(bench, "transitions", event_type="Freeze", transition="scheduled") == 60
    assert sample(bench, "metric_pushes", outcome="failed") > 20


@pytest.mark.parametrize("signal", [Signal.METRICS, Signal.LOGS])
def test_a_receiver_that_wants_to_be_left_alone(build: Build, signal: Signal) -> None:
    """Its Retry-After is honoured."""
    bench = build(f"otlp: {{{signal}: true}}")
    receiver = bench.receivers[signal]
    receiver.answer = lambda _: ExportOutcome(problem="status 429", retry_after=100)
    bench.show(raw_event(), wait=5)
    receiver.tries = 0
    bench.advance(90)
    assert receiver.tries == 0
    receiver.answer = lambda _: ExportOutcome()
    bench.advance(20)
    assert receiver.tries > 0


def test_a_variable_that_is_not_valid(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a problem until a reload finds it valid; other signals go on."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "soon")
    bench = build("otlp: {metrics: true, logs: true}")
    (problem,) = bench.api("problems")
    assert problem.startswith("otlp_failing: no metrics are sent: OTEL_METRIC_EXPORT_INTERVAL: is not a")
    bench.show(raw_event(), wait=10)
    assert names(bench) == ["degraded", "scheduled"]
    monkeypatch.delenv("OTEL_METRIC_EXPORT_INTERVAL")
    assert (bench.reload(), bench.api("problems")) == (200, [])
    assert pushed(bench)


def test_each_transition_is_a_record(build: Build) -> None:
    """It has severity, ids and attributes of the root span of its life."""
    bench = build(f"{LOGS}\ntracing: {{enabled: true}}")
    bench.show(raw_event(EventType="Reboot"))
    bench.show(raw_event(EventType="Reboot", DurationInSeconds=9))
    bench.show(STARTED | {"EventType": "Reboot", "DurationInSeconds": 9})
    bench.show(wait=10)
    assert names(bench) == ["scheduled", "updated", "started", "completed"]
    assert [one.severity for one in told(bench)] == ["warning", "warning", "critical", "success"]
    (root,) = (span for span in bench.receiver.spans if not span.parent_id)
    assert {(one.trace_id, one.span_id, one.sampled) for one in told(bench)} == {
        (trace_id(FREEZE_ID), root.span_id, True)
    }
    scheduled, updated, _, completed = told(bench)
    assert scheduled.body == (
        "Reboot scheduled: WestNO_0, not before 2026-03-04T22:15:00Z, "
        f"event {FREEZE_ID}, Virtual machine is being paused."
    )
    assert updated.attributes[f"{PREFIX}duration_seconds.new"] == 9
    assert dict(root.attributes).items() <= dict(completed.attributes).items()
    assert len({one.uid for one in told(bench)}) == 4
    bench.show(raw_event(EventId="other") | {"Resources": ["WestNO_7"]}, wait=10)
    assert len(told(bench)) == 4


def test_records_are_sent_until_accepted(build: Build) -> None:
    """A record survives a kill."""
    bench = build(LOGS)
    receiver = bench.receivers[Signal.LOGS]
    receiver.problem = "down"
    bench.show(raw_event())
    bench.show(STARTED)
    assert bench.metric("log_records_total", outcome="exported") == 0
    bench.kill()
    receiver.problem = ""
    bench.advance(300)
    assert {"scheduled", "started"} <= {*names(bench)}


def test_the_same_record_twice(build: Build) -> None:
    """A record whose acceptance a kill makes unknown is sent again with the same uid."""
    bench = build(LOGS)
    receiver = bench.receivers[Signal.LOGS]
    receiver.problem = "down"
    bench.show(raw_event())
    killed = bench.state
    bench.kill()
    receiver.problem = ""
    bench.advance(60)
    bench.app.stop()
    bench.state = killed
    bench.start()
    bench.advance(60)
    first, second = (one for one in told(bench) if one.name.endswith("event.scheduled"))
    assert first == second


def test_a_state_that_cannot_be_read_at_the_start(build: Build) -> None:
    """Once it can be, records from before the start are sent, and those since then, each of them once."""
    bench = build(f"{LOGS}\nevents: {{imminent: []}}")
    receiver = bench.receivers[Signal.LOGS]
    show(bench, "sent")
    receiver.problem = "down"
    show(bench, "sent", "a", "b")
    bench.app.stop()
    readable = bench.state.rename(bench.folder / "readable")
    bench.state.touch()
    bench.announce(raw_event(EventId="c", Resources=["WestNO_0"]))
    bench.start()
    bench.advance(5)
    bench.state.unlink()
    readable.rename(bench.state)
    bench.advance(15)
    assert bench.metric("degraded", reason="state_unwritable") == 0
    receiver.problem = ""
    bench.advance(300)
    assert sorted(ids(bench)) == ["a", "b", "c", "sent"]


def test_the_watch_and_the_exporter(build: Build) -> None:
    """Outages of the watch, problems of the exporter, and pauses that nothing announced are records, too."""
    bench = build(LOGS)
    bench.advance(5)
    bench.outage(400)
    bench.advance(20)
    assert names(bench) == ["blind", "recovered"]
    blind, recovered = told(bench)
    assert (blind.severity, recovered.severity) == ("critical", "success")
    assert "no valid document from IMDS since 20" in blind.body
    assert bench.reload("nonsense: 1") != 200
    bench.advance(5)
    assert bench.reload(LOGS) == 200
    bench.advance(5)
    assert names(bench)[2:] == ["degraded", "recovered"]
    assert told(bench)[2].attributes["azure.scheduled_event.reason"] == "reload_failed"
    bench.loops.turn("poller")
    bench.clock.pass_seconds(7)
    bench.advance(5)
    assert names(bench)[4:] == ["unannounced_pause"]


@pytest.mark.parametrize("is_over", [True, False])
def test_a_problem_that_a_former_process_told(build: Build, is_over: bool) -> None:
    """What it told as degraded ends as recovered, once it is over; it is not told again while it goes on."""
    bench = build(LOGS)
    unreadable = raw_event(NotBefore="soon")
    bench.show(unreadable, wait=10)
    assert names(bench).count("degraded") == 1
    bench.announce(*([] if is_over else [unreadable]))
    bench.restart()
    bench.advance(120)
    assert (names(bench).count("degraded"), names(bench).count("recovered")) == (1, int(is_over))
    bench.restart()
    bench.show(wait=120)
    assert (names(bench).count("degraded"), names(bench).count("recovered")) == (1, 1)


@pytest.mark.parametrize("before", ["", "tracing: {enabled: true}"])
def test_a_problem_from_before_the_log_records(build: Build, before: str) -> None:
    """It is told once they are switched on, with the time at which it began, however long ago that is."""
    slow = "imds: {poll_interval: 1h}"
    bench = build(f"{slow}\n{before}")
    begun = bench.clock.now()
    bench.show(raw_event(NotBefore="soon"), wait=2 * LONGEST_WAIT.total_seconds())
    assert bench.reload(f"{slow}\n{before}\n{LOGS}") == 200
    bench.advance(2 * 3600)
    (degraded,) = told(bench)
    assert degraded.name.endswith("degraded")
    assert begun <= degraded.end <= begun + timedelta(hours=1)
    bench.show(wait=3600)
    assert names(bench) == ["degraded", "cancelled", "recovered"]


def test_a_problem_that_is_over_with_a_new_receiver(build: Build) -> None:
    """The reload that adds a receiver may end a problem: the others are told."""
    bench = build(LOGS)
    assert bench.reload("nonsense: 1") != 200
    bench.advance(5)
    assert bench.reload(f"{LOGS}\ntracing: {{enabled: true}}") == 200
    bench.advance(5)
    assert names(bench) == ["degraded", "recovered"]


@pytest.mark.parametrize("signal", [Signal.LOGS, Signal.TRACES])
def test_a_receiver_that_fails(build: Build, caplog: pytest.LogCaptureFixture, signal: Signal) -> None:
    """It is a problem of its own, logged once; the next failure begins with short pauses again."""
    bench = build(f"{LOGS}\ntracing: {{enabled: true}}")
    receiver = bench.receivers[signal]
    receiver.answer = lambda _: DOWN
    bench.show(STARTED)
    bench.show(wait=120)
    reason = "tracing_failing" if signal is Signal.TRACES else "otlp_failing"
    assert bench.api("problems") == [f"{reason}: {signal} to http://localhost:4318: Connection refused"]
    assert caplog.text.count("degraded") == 1
    receiver.answer = lambda _: ExportOutcome()
    bench.advance(60)
    assert bench.api("problems") == []
    assert sorted(names(bench)) == ["completed", "degraded", "recovered", "started"]
    assert sorted(one.name for one in bench.receiver.spans) == ["scheduled_event Freeze", "started"]
    receiver.answer = answer = Mock(return_value=DOWN)
    bench.show(STARTED)
    bench.show(wait=5)
    assert answer.call_count >= 3


def test_the_queue_is_bounded(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """While a receiver is down for long the oldest records are dropped, which is counted and logged."""
    bench = build(LOGS)
    receiver = bench.receivers[Signal.LOGS]
    receiver.problem = "down"
    every = [f"x{number}" for number in range(2000)]
    for start in range(0, len(every), 500):
        show(bench, *every[start : start + 500])
    assert "log records dropped" in caplog.text
    receiver.problem = ""
    bench.advance(300)
    assert {*every[-500:]} < {*ids(bench)}
    assert not {*every[:500]} & {*ids(bench)}
    # Of each transition there is one, and of the problem there are two.
    assert sum(one or 0 for one in counted(bench)) == (bench.metric("transitions_total") or 0) + 2


def test_events_of_other_vms_displace_nothing(build: Build) -> None:
    """While a receiver is down, records about this VM stay, however many events other VMs have."""
    bench = build(LOGS)
    receiver = bench.receivers[Signal.LOGS]
    receiver.problem = "down"
    own = [f"own{number}" for number in range(12)]
    shown = [raw_event(EventId=event_id, Resources=["WestNO_0"]) for event_id in own]
    bench.show(*shown)
    for start in range(0, 1500, 500):
        others = [f"x{number}" for number in range(start, start + 500)]
        bench.show(*shown, *(raw_event(EventId=other, Resources=["WestNO_7"]) for other in others))
    receiver.problem = ""
    bench.advance(60)
    assert (sorted(ids(bench)), counted(bench)[1]) == (sorted(own), 0)


def test_records_that_are_too_old(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """What no receiver has accepted for a day is dropped, and what is newer is not."""
    bench = build(f"{LOGS}\nevents: {{imminent: []}}")
    receiver = bench.receivers[Signal.LOGS]
    receiver.problem = "down"
    show(bench, "old")
    bench.clock.pass_seconds(LONGEST_WAIT.total_seconds() - 10)
    show(bench, "old", "new")
    bench.clock.pass_seconds(20)
    receiver.problem = ""
    bench.advance(1)
    assert ids(bench) == ["new"]
    assert "log records dropped" in caplog.text


def test_a_receiver_that_is_down_for_hours(build: Build) -> None:
    """It gets all records once it is back, however often a single one has failed meanwhile."""
    bench = build(f"{LOGS}\nimds: {{poll_interval: 1h}}\nevents: {{imminent: []}}")
    receiver = bench.receivers[Signal.LOGS]
    receiver.problem = "down"
    many = [f"x{number}" for number in range(130)]
    show(bench, *many, wait=12 * 3600)
    assert receiver.tries > len(many)
    receiver.problem = ""
    bench.advance(3600)
    assert (sorted(ids(bench)), counted(bench)[1]) == (sorted(many), 0)


@pytest.mark.parametrize("outcome", [REFUSED, DOWN])
def test_a_record_that_the_receiver_does_not_take(build: Build, outcome: ExportOutcome) -> None:
    """It costs no other: one that is refused for good is dropped, one that fails is exported in the end."""
    bench = build(LOGS)
    receiver = bench.receivers[Signal.LOGS]

    def answer(records: Sequence[LogRecord]) -> ExportOutcome:
        bad = any(one.attributes.get(f"{PREFIX}id") == "bad" for one in records)
        return outcome if bad else ExportOutcome()

    receiver.answer = answer
    show(bench, "a", "bad", "b", "c", wait=120)
    assert sorted(ids(bench)) == ["a", "b", "c"]
    show(bench, "a", "bad", "b", "c", "d", wait=120)
    assert sorted(ids(bench)) == ["a", "b", "c", "d"]
    receiver.answer = lambda _: ExportOutcome()
    bench.advance(300)
    assert counted(bench)[1] == outcome.refused
    assert sorted(ids(bench)) == ["a", "b", *["bad"] * (not outcome.refused), "c", "d"]


def test_a_receiver_that_rejects_some(build: Build) -> None:
    """Records that a receiver rejects in a successful answer are counted as dropped."""
    bench = build(LOGS)
    bench.receivers[Signal.LOGS].answer = lambda _: ExportOutcome(rejected=2)
    show(bench, "a", "b", "c")
    assert counted(bench) == (1, 2)


def test_switched_off(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is stored, sent or left as a problem; what waited is counted as dropped, once, and logged."""
    caplog.set_level(logging.INFO)
    text = "otlp: {metrics: %s, logs: %s}\ntracing: {enabled: %s}"
    bench = build(text.replace("%s", "true"))
    for receiver in bench.receivers.values():
        receiver.problem = "down"
    bench.show(STARTED)
    bench.show(wait=10)
    assert len(bench.api("problems")) == 3
    assert bench.reload(text.replace("%s", "false")) == 200
    assert bench.api("problems") == []
    assert bench.metric("spans_total", outcome="dropped") == 2
    # Of two transitions and three problems.
    assert bench.metric("log_records_total", outcome="dropped") == 5
    for receiver in bench.receivers.values():
        receiver.problem = ""
    bench.show(STARTED, wait=120)
    bench.outage(1)
    assert bench.reload(text.replace("%s", "true")) == 200
    bench.advance(10)
    assert (ids(bench), bench.receiver.spans, len(pushed(bench))) == ([], [], 1)
    words = ("export of traces enabled", "spans dropped")
    assert [text for text in caplog.messages if text in words] == [*words, words[0]]


@pytest.mark.parametrize("signal", [Signal.METRICS, Signal.LOGS])
def test_imds_is_asked_for_the_facts_first(build: Build, signal: Signal) -> None:
    """The resource describes the VM; without the facts everything goes after some seconds."""
    bench = build(f"otlp: {{{signal}: true}}")
    receiver = bench.receivers[signal]
    receiver.problem = "down"
    bench.show(raw_event())
    bench.simulator.set_fault(Fault("error", endpoint="instance"))
    bench.restart()
    receiver.problem, receiver.tries = "", 0
    bench.advance(FACTS_SECONDS - 1)
    assert receiver.tries == 0
    bench.advance(2)
    assert receiver.tries == 1


@pytest.mark.parametrize("reboots", [False, True])
def test_the_resource_after_a_restart_without_facts(build: Build, *, reboots: bool) -> None:
    """It has the VM's id and name as before; on another boot the state may be another VM's."""
    bench = build(METRICS)
    receiver = bench.receivers[Signal.METRICS]
    bench.restart()
    names = ("service.instance.id", "host.name")
    before = [receiver.attributes[name] for name in names]
    bench.simulator.set_fault(NAMELESS)
    if reboots:
        bench.clock.reboot()
    bench.restart()
    bench.advance(FACTS_SECONDS + 1)
    assert before[1] == VM
    after = [socket.gethostname()] * 2 if reboots else before
    assert [receiver.attributes[name] for name in names] == after


def test_what_cannot_be_set_up(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the SDK refuses a variable the reason is reported, and records are queued until that is fixed."""
    bench = build()
    with monkeypatch.context() as patch:
        reason = ValueError("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer but got x")
        patch.setattr("exporter.outputs.otlp.logs.exporter", Mock(side_effect=reason))
        bench.reload(LOGS)
        bench.show(raw_event())
        assert "cannot be set up: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in bench.api("problems")[0]
        bench.restart()
    bench.restart()
    assert (ids(bench), bench.api("problems")) == ([FREEZE_ID], [])
