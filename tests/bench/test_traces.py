"""Traces: what is kept while a receiver is down, across restarts, and while tracing is off."""

import pytest

from exporter.model.events import trace_id
from exporter.model.jobs import HookOutcome
from exporter.outputs.hooks.command import CommandResult
from exporter.simulator import Fault
from tests.bench import Bench, Build
from tests.builders import FREEZE_ID, raw_event

ON = "tracing: {enabled: true}"
OFF = "tracing: {enabled: false}"
STARTED = raw_event(EventStatus="Started", NotBefore="")
PREFIX = "azure.scheduled_event."


def names(bench: Bench) -> list[str]:
    return [span.name for span in bench.receiver.spans]


def test_the_root_has_the_facts_and_the_changes(build: Build) -> None:
    """First id and announced NotBefore, which Azure drops; changes are its events, also after a restart.

    Below it is a span for each phase, the second of which begins where the first ends.
    """
    bench = build(ON)
    near = {"NotBefore": "Wed, 04 Mar 2026 22:20:00 GMT"}
    many = [f"WestNO_{number}" for number in range(200)]
    changed = {"DurationInSeconds": 9, "Resources": many, "Description": "x" * 2000}
    bench.show(raw_event(**near))
    bench.show(raw_event(**near, **changed), wait=901)
    bench.restart()
    bench.show(STARTED | changed | {"EventId": "another"})
    bench.show(wait=60)
    (root,) = (span for span in bench.receiver.spans if not span.parent_id)
    announced, began = (span for span in bench.receiver.spans if span.parent_id == root.span_id)
    assert root.start == announced.start < announced.end == began.start < began.end == root.end
    assert (announced.name, began.name) == ("scheduled", "started")
    update, imminent = root.events
    assert (update.name, imminent.name) == ("updated", "imminent")
    assert {name.removeprefix(PREFIX): value for name, value in update.attributes.items()} == {
        "duration_seconds.old": 5,
        "duration_seconds.new": 9,
        "resources.old": ("WestNO_0", "WestNO_1"),
        "resources.new": tuple(many[:100]),
        "description.old": "Virtual machine is being paused.",
        "description.new": "x" * 1000,
    }
    assert {span.trace_id for span in bench.receiver.spans} == {trace_id(FREEZE_ID)}
    assert {name.removeprefix(PREFIX): value for name, value in root.attributes.items()} == {
        "id": FREEZE_ID,
        "type": "Freeze",
        "source": "Platform",
        "status": "Started",
        "description": "x" * 2000,
        "resources": tuple(many),
        "duration_seconds": 9,
        "not_before": "2026-03-04T22:20:00Z",
        "outcome": "completed",
    }


@pytest.mark.parametrize("events", ["self", "all"])
def test_events_of_other_vms(build: Build, events: str) -> None:
    """They have spans only where their metrics are wanted, too."""
    bench = build(f"{{tracing: {{enabled: true}}, metrics: {{events: {events}}}}}")
    bench.show(STARTED | {"Resources": ["WestNO_7"]})
    bench.show(wait=10)
    assert bool(names(bench)) is (events == "all")


def test_a_hook_is_a_span(build: Build) -> None:
    """Its TRACEPARENT is its span, below the event's root span; a failure is in it, also after a kill."""
    bench = build(f"{ON}\nhooks: [{{name: note, command: [note], match: {{transitions: [scheduled]}}}}]")
    bench.command_result = lambda _: CommandResult(HookOutcome.FAILED, 3, 0.0, "exit status 3")
    bench.show(raw_event())
    bench.kill()
    bench.show(wait=10)
    (ran,) = bench.commands
    (root,) = (span for span in bench.receiver.spans if not span.parent_id)
    (span,) = (span for span in bench.receiver.spans if span.name == "hook note")
    assert ran.environment["TRACEPARENT"] == f"00-{trace_id(FREEZE_ID)}-{span.span_id}-01"
    assert (span.parent_id, span.attributes[f"{PREFIX}hook.outcome"]) == (root.span_id, "failed")
    assert span.error == "exit status 3"
    assert [(one.name, one.attributes) for one in root.events] == [
        ("hook_failed", {f"{PREFIX}hook.name": "note"})
    ]


@pytest.mark.parametrize("first", [None, "WestNO_0"])
def test_a_name_that_changes(build: Build, first: str | None) -> None:
    """All spans of a life have its root, also if the VM gets its name, or another one, in between."""
    text = f"{ON}\nnotifications: {{targets: [{{name: oncall, url: 'json://receiver.test'}}]}}\n"
    bench = build(text + "imds: {poll_interval: 1h}")
    bench.simulator.set_fault(Fault("error", endpoint="instance"))
    bench.restart(text + (f"instance: {{name: {first}}}" if first else ""))
    bench.show(raw_event())
    bench.restart(text + "instance: {name: WestNO_1}")
    bench.show(STARTED, wait=60)
    bench.show(wait=60)
    (root,) = (span for span in bench.receiver.spans if not span.parent_id)
    children = [span for span in bench.receiver.spans if span.parent_id]
    assert len(children) == 5
    assert {span.parent_id for span in children} == {root.span_id}
    assert bench.receiver.attributes["host.name"] == "WestNO_1"


def test_the_resource_names_the_node(build: Build) -> None:
    """In Kubernetes, spans name the Node that they are about."""
    bench = build(f"{ON}\nkubernetes: {{node: aks-web-0}}")
    bench.show(raw_event())
    assert bench.receiver.attributes["k8s.node.name"] == "aks-web-0"


def test_a_share_of_the_events(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is not sampled has no spans, and the flag in its hooks' TRACEPARENT is 00."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    bench = build(ON + "\nhooks: [{name: note, command: [note], match: {transitions: [started]}}]")
    ids = ("C7061BAC-AFDC-4513-0000-000000000000", "C7061BAC-AFDC-4513-F000-000000000000")
    bench.show(*(STARTED | {"EventId": event_id} for event_id in ids))
    assert names(bench) == ["hook note"]
    bench.show(wait=10)
    assert {span.trace_id for span in bench.receiver.spans} == {trace_id(ids[0])}
    ran = [command.environment for command in bench.commands]
    flags = {environment["EVENT_ID"]: environment["TRACEPARENT"][-2:] for environment in ran}
    assert flags == {ids[0]: "01", ids[1]: "00"}


@pytest.mark.parametrize(("text", "flag"), [(ON, "01"), (OFF, "00")])
def test_a_message_leads_to_the_trace(build: Build, text: str, flag: str) -> None:
    """It has the id of the event's trace and of its own span, also while no spans are exported here."""
    bench = build(f"{text}\nnotifications: {{targets: [{{name: oncall, url: 'json://receiver.test'}}]}}")
    bench.show(raw_event(), wait=10)
    (sent,) = bench.sent()
    version, trace, span, flags = sent.traceparent.split("-")
    assert (version, trace, len(span), flags) == ("00", trace_id(FREEZE_ID), 16, flag)
    assert [(one.span_id, one.kind) for one in bench.receiver.spans] == [(span, "client")] * (text == ON)
