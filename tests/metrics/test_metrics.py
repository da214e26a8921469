"""Tests of `exporter.metrics`: what Prometheus gets to see."""

import subprocess
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from exporter import config
from exporter.errors import PollOutcome
from exporter.health import DegradedReason
from exporter.metrics import SnapshotCollector
from exporter.model.events import EVENT_STATUSES, EVENT_TYPES, Target, trace_id
from exporter.model.lifecycle import Transition
from exporter.model.views import ApprovalView
from exporter.model.vm import VirtualMachine
from tests.builders import FREEZE_ID, NOT_BEFORE, REBOOT_ID, body, raw_event
from tests.clocks import NOW
from tests.watch_fixture import WatchFixture

ALL = config.Metrics(events="all", resources=True)
ODD = ['a"b\\c\nd', "\x00\x1b[31m", "\ud800", "é€𝄞", "x" * 10_000, "", "{}=,"]


def test_promtool_has_nothing_to_say() -> None:
    """Names, types and help texts keep to Prometheus' rules."""
    fixture = WatchFixture(metrics=ALL)
    fixture.poll(body(raw_event(), raw_event(EventId=REBOOT_ID, EventType="Levitate", EventStatus="Odd")))
    fixture.poll(body(incarnation=2))
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=generate_latest(fixture.registry),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_pending_has_every_combination() -> None:
    """Alerts need series that are there before anything happens: five types, two statuses, two targets."""
    fixture = WatchFixture()
    fixture.poll()
    for event_type, status, target in product(EVENT_TYPES, EVENT_STATUSES, Target):
        labels = {"event_type": event_type, "event_status": status, "target": target.value}
        assert fixture.value("pending", **labels) == 0


def test_unknown_types_and_statuses_are_there_while_they_last() -> None:
    """What Azure may add later is counted, and leaves nothing behind."""
    fixture = WatchFixture()
    labels = {"event_type": "Levitate", "event_status": "Paused", "target": "self"}
    fixture.poll(body(raw_event(EventType="Levitate", EventStatus="Paused")))
    assert fixture.value("pending", **labels) == 1
    fixture.poll(body(incarnation=2))
    assert fixture.value("pending", **labels) is None


def test_an_event_has_series_while_it_is_listed() -> None:
    """Every fact about an event has its own series, which disappears with the event."""
    fixture = WatchFixture(metrics=ALL)
    fixture.poll()
    fixture.poll(body(raw_event()))
    event = {"event_id": FREEZE_ID, "event_type": "Freeze"}
    left = (NOT_BEFORE - NOW).total_seconds()
    assert fixture.value("event_not_before_timestamp_seconds", **event) == NOT_BEFORE.timestamp()
    assert fixture.value("event_seconds_to_not_before", **event) == left - 2
    fixture.clock.pass_seconds(left)
    assert fixture.value("event_seconds_to_not_before", **event) == -2
    assert fixture.value("event_duration_seconds", **event) == 5
    assert fixture.value("event_resources", **event) == 2
    assert (
        fixture.value("event_first_seen_timestamp_seconds", **event)
        == (NOW + timedelta(seconds=2)).timestamp()
    )
    assert fixture.value("event_started_timestamp_seconds", **event) is None
    assert fixture.value("event_resource_info", **event, resource="WestNO_1") == 1
    fixture.poll(body(incarnation=2))
    assert FREEZE_ID not in generate_latest(fixture.registry).decode()


def test_what_azure_does_not_say_is_absent() -> None:
    """A blank NotBefore, an unknown duration and a start that was not watched have no series."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(NotBefore="", DurationInSeconds=-1, EventStatus="Started")))
    event = {"event_id": FREEZE_ID, "event_type": "Freeze"}
    absent = ("not_before_timestamp_seconds", "seconds_to_not_before", "duration_seconds")
    for name in (*absent, "started_timestamp_seconds"):
        assert fixture.value(f"event_{name}", **event) is None
    fixture.poll(body(incarnation=2))
    fixture.poll(body(raw_event(NotBefore="", EventStatus="Started"), incarnation=3))
    assert fixture.value("event_started_timestamp_seconds", **event) is not None


@pytest.mark.parametrize(("events", "expected"), [("self", None), ("all", 1)])
def test_events_of_other_vms_have_series_where_wanted(events: Any, expected: float | None) -> None:
    """One VM's event costs series on that VM alone, unless all are asked for."""
    fixture = WatchFixture(metrics=config.Metrics(events=events))
    fixture.poll(body(raw_event(Resources=["WestNO_9"])))
    info = {
        "event_id": FREEZE_ID,
        "event_type": "Freeze",
        "event_status": "Scheduled",
        "event_source": "Platform",
        "resource_type": "VirtualMachine",
        "target": "other",
        "description": "Virtual machine is being paused.",
    }
    assert fixture.value("event_info", **info) == expected


def test_counters_begin_at_zero() -> None:
    """Rates are right from the first event on: every known series is there before."""
    fixture = WatchFixture()
    for outcome in PollOutcome:
        assert fixture.value("polls_total", outcome=outcome.value) == 0
    for event_type, transition in product(EVENT_TYPES, Transition):
        assert fixture.value("transitions_total", event_type=event_type, transition=transition.value) == 0
        for histogram in ("notice_seconds", "impact_seconds", "observed_pause_seconds"):
            assert fixture.value(f"{histogram}_count", event_type=event_type) == 0
            assert fixture.value(f"{histogram}_bucket", event_type=event_type, le="+Inf") == 0
    assert fixture.value("invalid_events_total") == 0


def test_transitions_carry_the_trace_id() -> None:
    """The exemplar of a transition leads to its trace."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    families = openmetrics_parser.text_string_to_metric_families(
        openmetrics.generate_latest(fixture.registry).decode()
    )
    exemplars = [s.exemplar.labels for family in families for s in family.samples if s.exemplar]
    assert exemplars == [{"trace_id": trace_id(FREEZE_ID)}]


def _collected(fixture: WatchFixture, **sources: Any) -> dict[str, list[dict[str, str]]]:
    """Return the labels of all samples that are not 0, by the name of the metric without prefix."""
    collector = SnapshotCollector(lambda: fixture.watch.snapshot, fixture.health, fixture.clock, **sources)
    return {
        family.name.removeprefix("azure_scheduled_events_"): [s.labels for s in family.samples if s.value]
        for family in collector.collect()
    }


def test_the_vm_is_described_once_imds_has_told() -> None:
    """One series has the VM's location; the Node's name is a label if there is one."""
    fixture = WatchFixture()
    assert _collected(fixture)["instance_info"] == []
    fixture.imds.facts = VirtualMachine(
        name="set_0", computer_name="set00", scale_set="set", zone="2", size="D2"
    )
    fixture.poll()
    known = {
        "instance_name": "set_0",
        "computer_name": "set00",
        "resource_group": "",
        "scale_set": "set",
        "location": "",
        "zone": "2",
        "fault_domain": "",
        "vm_size": "D2",
    }
    assert _collected(fixture)["instance_info"] == [known]
    assert _collected(fixture, node="pool-0")["instance_info"] == [known | {"node": "pool-0"}]


def test_in_service_is_what_the_probe_says() -> None:
    """It is 1 without a reason to take the VM out, 0 with one."""
    fixture = WatchFixture()
    assert _collected(fixture)["in_service"] == [{}]
    assert _collected(fixture, out_of_service=lambda: "a Reboot")["in_service"] == []


def test_approvals_have_a_series_for_each_event_that_has_a_state() -> None:
    """The state is a label; where approval is off, there is none."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    assert _collected(fixture)["event_approval"] == []
    view = ApprovalView("waiting", "short-freeze", "its turn comes")
    found = _collected(fixture, approval=lambda _: view)["event_approval"]
    assert found == [{"event_id": FREEZE_ID, "state": "waiting"}]
    fixture.poll(body(incarnation=2))
    assert _collected(fixture, approval=lambda _: view)["event_approval"] == []


@pytest.mark.parametrize("reason", DegradedReason)
def test_reasons_are_seen(reason: DegradedReason) -> None:
    """Each kind of trouble is a series that is 0 until it is there."""
    fixture = WatchFixture()
    assert fixture.value("degraded", reason=reason.value) == 0
    fixture.health.report(reason, "something")
    assert fixture.value("degraded", reason=reason.value) == 1


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_shown(text: str) -> None:
    """No text that Azure might send makes a scrape fail."""
    fixture = WatchFixture(metrics=ALL)
    fields = ("EventId", "EventType", "EventStatus", "EventSource", "Description")
    fixture.poll(body(raw_event(**dict.fromkeys(fields, text))))
    readable(fixture)


def test_series_can_be_asked_for_by_name() -> None:
    """Of what is worked out at the scrape, too, only the named series are given."""
    fixture = WatchFixture(metrics=ALL)
    fixture.poll(body(raw_event()))
    names = [f"azure_scheduled_events_{name}" for name in ("up", "event_resource_info")]
    lines = generate_latest(fixture.registry.restricted_registry(names)).decode().splitlines()
    assert {line.partition(" ")[0].partition("{")[0] for line in lines if line[0] != "#"} == set(names)


texts = st.text(max_size=20)
raw_events = st.builds(
    raw_event,
    EventId=texts,
    EventType=st.sampled_from(EVENT_TYPES) | texts,
    EventStatus=st.sampled_from(EVENT_STATUSES) | texts,
    Resources=st.lists(st.sampled_from(["WestNO_0", "westno_0", "_WestNO_0"]) | texts, max_size=4),
    Description=texts,
    DurationInSeconds=st.integers(),
)


@settings(max_examples=30)
@given(st.lists(raw_events, max_size=4))
def test_any_events_can_be_scraped(events: list[Any]) -> None:
    """Whatever the document says, both formats can be read, and no series is there twice."""
    fixture = WatchFixture(metrics=ALL)
    fixture.poll(body(*events))
    readable(fixture)


def readable(fixture: WatchFixture) -> None:
    """Read both formats as Prometheus' own library does, and look for series that are there twice."""
    plain = generate_latest(fixture.registry).decode()
    modern = openmetrics.generate_latest(fixture.registry).decode()
    for families in (
        text_string_to_metric_families(plain),
        openmetrics_parser.text_string_to_metric_families(modern),
    ):
        series = [(s.name, tuple(sorted(s.labels.items()))) for family in families for s in family.samples]
        assert len(series) == len(set(series))
