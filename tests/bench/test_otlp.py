"""Metrics and log records over OTLP, on the bench."""

import pytest
from prometheus_client import Metric

from exporter.model.events import trace_id
from exporter.model.jobs import LogRecord, Signal
from exporter.otlp.worker import ExportOutcome
from exporter.simulator import Fault
from tests.bench import Bench, Build
from tests.builders import FREEZE_ID, raw_event
from tests.state_support import alter

METRICS = "otlp: {metrics: true}"
LOGS = "otlp: {logs: true}"
STARTED = raw_event(EventStatus="Started", NotBefore="")


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
    return [one.name.removeprefix("azure.scheduled_event.") for one in told(bench)]


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
    bench = build(METRICS)
    receiver = bench.receivers[Signal.METRICS]
    receiver.problem, receiver.tries = "down", 0
    for number in range(60):
        bench.show(raw_event(EventId=f"event-{number}"), wait=2)
    assert 6 <= receiver.tries <= 25
    assert bench.api("problems") == ["otlp_failing: metrics to http://localhost:4318: down"]
    assert bench.metric("degraded", reason="otlp_failing") == 1
    bench.advance(3600)
    receiver.tries = 0
    bench.advance(3600)
    assert receiver.tries <= 30
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
    receiver.answer = lambda items: ExportOutcome(len(items))
    bench.advance(20)
    assert receiver.tries > 0


def test_a_variable_that_is_not_valid(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a problem until a reload finds it valid; other signals go on."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "soon")
    bench = build("otlp: {metrics: true, logs: true}")
    (problem,) = bench.api("problems")
    assert problem.startswith("otlp_failing: no metrics are sent: OTEL_METRIC_EXPORT_INTERVAL: 'soon' is not")
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
    prefix = "azure.scheduled_event."
    assert updated.attributes[prefix + "duration_seconds.new"] == 9
    assert dict(root.attributes).items() <= dict(completed.attributes).items()
    assert len({one.uid for one in told(bench)}) == 4
    bench.show(raw_event(EventId="other") | {"Resources": ["WestNO_7"]}, wait=10)
    assert len(told(bench)) == 4


def test_records_are_sent_until_accepted(build: Build) -> None:
    """A record survives a kill; one that cannot be read is dropped alone."""
    bench = build(LOGS)
    receiver = bench.receivers[Signal.LOGS]
    receiver.problem = "down"
    bench.show(raw_event())
    bench.show(STARTED)
    assert bench.metric("log_records_total", outcome="exported") == 0
    bench.kill()
    bench.app.stop()
    alter(bench.state, "UPDATE entries SET value = '{' WHERE value LIKE '%event.started\"%'")
    receiver.problem = ""
    bench.start()
    bench.advance(10)
    assert names(bench)[0] == "scheduled"
    assert "started" not in names(bench)
    assert bench.metric("log_records_total", outcome="dropped") == 1


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


def test_the_watch_and_the_exporter(build: Build) -> None:
    """Outages of the watch, problems of the exporter, and pauses that nothing announced are records, too."""
    bench = build(LOGS)
    bench.advance(5)
    bench.outage(400)
    bench.advance(20)
    assert names(bench) == ["blind", "recovered"]
    blind, recovered = told(bench)
    assert (blind.severity, recovered.severity) == ("warning", "success")
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


def test_a_receiver_of_records_that_fails(build: Build) -> None:
    """It is a problem of its own, of which it hears once it is back, once."""
    bench = build(LOGS)
    receiver = bench.receivers[Signal.LOGS]
    receiver.problem = "down"
    bench.show(raw_event(), wait=120)
    assert bench.api("problems") == ["otlp_failing: logs to http://localhost:4318: down"]
    receiver.problem = ""
    bench.advance(60)
    assert bench.api("problems") == []
    assert sorted(names(bench)) == ["degraded", "recovered", "scheduled"]


def test_switched_off(build: Build) -> None:
    """Nothing is stored, pushed or left as a problem, and what waited is dropped."""
    bench = build("otlp: {metrics: true, logs: true}")
    for signal in (Signal.LOGS, Signal.METRICS):
        bench.receivers[signal].problem = "down"
    bench.show(raw_event(), wait=10)
    assert len(bench.api("problems")) == 2
    assert bench.reload("otlp: {metrics: false, logs: false}") == 200
    assert bench.api("problems") == []
    assert bench.metric("log_records_total", outcome="dropped") == 3
    for signal in (Signal.LOGS, Signal.METRICS):
        bench.receivers[signal].problem = ""
    bench.show(STARTED, wait=120)
    bench.outage(1)
    assert (names(bench), pushed(bench)) == ([], [])


def test_imds_is_asked_for_the_facts_first(build: Build) -> None:
    """The resource describes the VM; without the facts metrics go after some seconds."""
    bench = build(METRICS)
    bench.simulator.set_fault(Fault("error", endpoint="instance"))
    bench.receivers[Signal.METRICS].pushes.clear()
    bench.restart()
    count = len(pushed(bench))
    bench.advance(4)
    assert len(pushed(bench)) == count
    bench.advance(3)
    assert len(pushed(bench)) == count + 1
