"""Tests of `exporter.metrics` on the bench: what Prometheus gets to see."""

import re
import subprocess
import urllib.request
from datetime import timedelta
from itertools import product

from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from exporter import __version__
from exporter.errors import PollOutcome
from exporter.health import DegradedReason
from exporter.model.events import EVENT_STATUSES, EVENT_TYPES, Affected, trace_id
from exporter.model.jobs import HookOutcome
from exporter.model.messages import Outcome
from exporter.outputs.approval.approver import ApprovalOutcome
from tests.bench import Build
from tests.bench.bench import start_nameless
from tests.builders import FREEZE_ID, NOT_BEFORE, REBOOT_ID, raw_event
from tests.clocks import NOW

ALL = "metrics: {events: all, resources: true}"
ODD = ['"', "\\", "\n", "\r\n", "\0", "\u2028", "\x1b[2J", "{}=,", "\U0001f600", "\ud800", "# EOF\n"]
EVENT = {"event_id": FREEZE_ID, "event_type": "Freeze"}
WORK = """
approval: {rules: [{name: a, action: hold}]}
hooks: [{name: a, command: [a]}]
notifications: {targets: [{name: a, url: 'json://receiver.test'}]}
"""
STARTED = {"EventStatus": "Started", "NotBefore": ""}


def test_promtool_has_nothing_to_say(build: Build) -> None:
    """Names, types, help texts and labels keep to Prometheus' rules, whatever Azure's texts have in them."""
    bench = build(ALL)
    bench.show(
        raw_event(EventId=REBOOT_ID, EventType="Levitate", EventStatus="Odd"),
        *(
            raw_event(EventId=f"{number}{text}", EventType=f"a{text}", Description=text, Resources=[text])
            for number, text in enumerate(ODD)
        ),
    )
    families = text_string_to_metric_families(bench.request("/metrics")[1])
    samples = next(family for family in families if family.name.endswith("_event_info")).samples
    shown = {sample.labels["description"] for sample in samples}
    # An unpaired surrogate cannot be encoded.
    assert {*ODD, "\N{REPLACEMENT CHARACTER}"} - {"\ud800"} <= shown
    for _ in range(2):
        text = bench.request("/metrics")[1].encode()
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert bench.metric("build_info", version=__version__) == 1
        bench.show()


def test_pending_has_every_combination(build: Build) -> None:
    """Alerts need series that are there before anything happens; what is unknown is there while it lasts."""
    bench = build()
    combinations = [
        {"event_type": event_type, "event_status": status, "target": target.value}
        for event_type, status, target in product(EVENT_TYPES, EVENT_STATUSES, Affected)
    ]
    assert [bench.metric("pending", **labels) for labels in combinations] == [0] * 20
    labels = {"event_type": "Levitate", "event_status": "Paused", "target": "self"}
    bench.show(raw_event(EventType="Levitate", EventStatus="Paused"))
    assert bench.metric("pending", **labels) == 1
    bench.show()
    assert bench.metric("pending", **labels) is None


def test_counters_keep_few_unknown_types(build: Build) -> None:
    """The first twenty keep their own series; all others share one, and everything is counted."""
    bench = build("metrics: {events: all}")
    for turn in range(3):
        found = [raw_event(EventId=f"{turn}-{n}", EventType=f"Type{turn}-{n}") for n in range(200)]
        bench.show(*found)
    bench.show()
    counts = [
        bench.metric("transitions_total", transition="scheduled", event_type=kind)
        for kind in ("Type0-0", "Type2-0", "other")
    ]
    assert counts == [1, None, 580]
    types = set(re.findall('event_type="(Type[^"]*)"', bench.request("/metrics")[1]))
    assert len(types) == 20


def test_an_event_has_series_while_it_is_listed(build: Build) -> None:
    """Every fact about an event has its own series, which disappears with the event."""
    bench = build()
    bench.show(raw_event(Resources=["WestNO_9"]))
    assert bench.metric("event_info") is None
    bench.restart(ALL)
    info = {"event_status": "Scheduled", "event_source": "Platform", "resource_type": "VirtualMachine"}
    told = {"target": "other", "description": "Virtual machine is being paused.", "instance_name": "WestNO_0"}
    assert bench.metric("event_info", **EVENT, **info, **told) == 1
    bench = build(ALL)
    bench.show(raw_event())
    assert bench.metric("event_not_before_timestamp_seconds", **EVENT) == NOT_BEFORE.timestamp()
    left = (NOT_BEFORE - NOW).total_seconds() - 1
    assert bench.metric("event_seconds_to_not_before", **EVENT) == left
    assert bench.metric("event_duration_seconds", **EVENT) == 5
    assert bench.metric("event_resources", **EVENT) == 2
    first_seen = (NOW + timedelta(seconds=1)).timestamp()
    assert bench.metric("event_first_seen_timestamp_seconds", **EVENT) == first_seen
    assert bench.metric("event_started_timestamp_seconds", **EVENT) is None
    assert bench.metric("event_resource_info", **EVENT, resource="WestNO_1") == 1
    bench.show(raw_event(Description="x"), wait=10)
    assert bench.metric("event_seconds_to_not_before", **EVENT) == left - 10
    bench.clock.pass_seconds(left)
    assert bench.metric("event_seconds_to_not_before", **EVENT) == -10
    bench.show(raw_event(**STARTED, DurationInSeconds=-1))
    absent = ("not_before_timestamp_seconds", "seconds_to_not_before", "duration_seconds")
    assert [bench.metric(f"event_{name}", **EVENT) for name in absent] == [None] * 3
    bench.show()
    bench.show(raw_event(EventId="b", **STARTED))
    assert bench.metric("event_started_timestamp_seconds", event_id="b") is not None
    assert FREEZE_ID not in bench.request("/metrics")[1]


def test_the_phase_of_an_event_has_all_that_rules_need(build: Build) -> None:
    """The severity is that of the phase, and the value NotBefore, then the start; it is 0 if unknown."""
    bench = build("metrics: {events: all}")
    event = {"EventId": "a", "EventType": "Reboot"}

    def shown(**labels: str) -> float | None:
        name = "event_phase_timestamp_seconds"
        return bench.metric(
            name,
            event_id="a",
            event_type="Reboot",
            event_source="Platform",
            instance_name="WestNO_0",
            **labels,
        )

    def phases() -> int:
        return bench.request("/metrics")[1].count("_event_phase_timestamp_seconds{")

    bench.show(raw_event(**event, EventStatus="Advisory"), raw_event(EventId="b", Resources=["WestNO_9"]))
    assert (shown(phase="advised", severity="warning"), phases()) == (NOT_BEFORE.timestamp(), 1)
    bench.show(raw_event(**event))
    assert (shown(phase="scheduled", severity="warning"), phases()) == (NOT_BEFORE.timestamp(), 1)
    bench.show(raw_event(**event | {"NotBefore": ""}))
    assert shown(phase="scheduled", severity="warning") == 0
    bench.show(raw_event(**event, **STARTED))
    assert (shown(phase="started", severity="critical"), phases()) == (bench.clock.now().timestamp(), 1)
    bench.show(raw_event(**event, EventStatus="Paused"))
    assert (shown(phase="advised", severity="warning"), phases()) == (NOT_BEFORE.timestamp(), 1)
    bench.show()
    assert phases() == 0


def test_a_start_that_nobody_watched_has_no_time(build: Build) -> None:
    """An exporter that finds an event Started does not know since when."""
    bench = build()
    bench.simulator.set_document({"DocumentIncarnation": 2, "Events": [raw_event(**STARTED)]})
    bench.restart(after=60)
    assert bench.metric("event_phase_timestamp_seconds", phase="started", severity="info") == 0


def test_labels_are_short(build: Build) -> None:
    """Azure's managed Prometheus refuses a whole scrape for a label of more than 1,023 bytes."""
    bench = build(ALL)
    for start, letter, length in (("", "d", 500), ("dd", "\u20ac", 332), ("", "\U0001f600", 250)):
        bench.show(raw_event(Description=start + letter * 2000))
        families = text_string_to_metric_families(bench.request("/metrics")[1])
        samples = next(f for f in families if f.name.endswith("_event_info")).samples
        (label,) = {sample.labels["description"] for sample in samples}
        assert label == start + letter * length


def test_buckets(build: Build) -> None:
    """Queries of users select them, so that another bound would break these."""
    target = "notifications: {targets: [{name: a, url: 'json://receiver.test'}]}"
    text = build(f"{target}\nhooks: [{{name: a, command: [a]}}]").request("/metrics")[1]
    found: dict[str, list[str]] = {}
    for name, bound in re.findall(
        r'^azure_scheduled_events_(\w+)_bucket{.*?le="([^"]+)".*$', text, re.MULTILINE
    ):
        if bound not in found.setdefault(name, []):
            found[name].append(bound)
    assert found == {
        "poll_duration_seconds": ["0.01", "0.03", "0.1", "1.0", "10.0", "+Inf"],
        "hook_duration_seconds": ["1.0", "10.0", "60.0", "300.0", "3600.0", "+Inf"],
        "notice_seconds": ["30.0", "300.0", "900.0", "86400.0", "604800.0", "+Inf"],
        "impact_seconds": ["1.0", "60.0", "600.0", "3600.0", "+Inf"],
        "observed_pause_seconds": ["1.0", "5.0", "10.0", "30.0", "3600.0", "+Inf"],
        "notification_delay_seconds": [
            *("0.3", "1.0", "3.0", "10.0", "60.0", "600.0", "3600.0", "86400.0", "+Inf")
        ],
    }


def test_what_is_to_be_expected_begins_at_zero(build: Build) -> None:
    """Rates are right from the first event on. A fleet pays for each series: rare ones come when possible."""
    bench = build()

    def zeros(name: str, **labels: str) -> int:
        return [bench.metric(name, event_type=kind, **labels) for kind in EVENT_TYPES].count(0)

    for transition in ("scheduled", "started", "updated", "completed"):
        assert zeros("transitions_total", transition=transition) == 5
    for histogram in ("notice_seconds", "impact_seconds", "observed_pause_seconds"):
        assert (zeros(f"{histogram}_count"), zeros(f"{histogram}_bucket", le="+Inf")) == (5, 5)
    failures = [one for one in PollOutcome if one is not PollOutcome.SUCCESS]
    assert {bench.metric("polls_total", outcome=one.value) for one in failures} == {0}
    assert bench.metric("invalid_events_total") == 0
    assert [bench.metric("spans_total", outcome=one) for one in ("exported", "dropped")] == [0, 0]
    rare = ("advised", "approved", "hook_failed")
    assert [zeros("transitions_total", transition=name) for name in rare] == [1, 0, 0]
    text = bench.request("/metrics")[1]
    assert sum(line.startswith("azure_scheduled_events_") for line in text.splitlines()) == 211
    bench.reload(WORK)
    assert [zeros("transitions_total", transition=name) for name in rare] == [1, 5, 5]


def test_counters_of_what_is_configured_begin_at_zero(build: Build) -> None:
    """`increase` sees the first failure of each hook, rule and target, also of those that a reload adds."""
    bench = build()
    expected = [("hooks_total", "hook", outcome.value) for outcome in HookOutcome]
    expected += [("approvals_total", "rule", outcome.value) for outcome in ApprovalOutcome]
    expected += [("notifications_total", "target", outcome.value) for outcome in Outcome]

    def counted() -> set[float | None]:
        return {bench.metric(name, **{label: "a"}, outcome=outcome) for name, label, outcome in expected}

    assert counted() == {None}
    bench.reload(WORK)
    assert counted() == {0}
    failures = [
        bench.metric("hook_failures_total", hook="a", severity=how) for how in ("warning", "critical")
    ]
    assert failures == [0, 0]
    bench.restart()
    assert counted() == {0}


def test_forms_of_a_scrape(build: Build) -> None:
    """Exemplars have the trace, that of an event's first id; by name, only the named series are given."""
    bench = build(ALL)
    bench.show(raw_event())
    bench.show(raw_event(EventId=REBOOT_ID, **STARTED))

    def scraped(query: str = "", accept: str = "") -> str:
        request = urllib.request.Request(f"{bench.app.url}/metrics{query}", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    text = scraped(accept="application/openmetrics-text")
    families = openmetrics_parser.text_string_to_metric_families(text)
    exemplars = [s.exemplar.labels for family in families for s in family.samples if s.exemplar]
    assert exemplars == [{"trace_id": trace_id(FREEZE_ID)}] * 3
    names = [f"azure_scheduled_events_{name}" for name in ("up", "event_resource_info")]
    lines = scraped("?name[]=" + "&name[]=".join(names)).splitlines()
    assert {line.partition(" ")[0].partition("{")[0] for line in lines if line[0] != "#"} == set(names)


def test_the_vm_is_described_once_imds_has_told(build: Build) -> None:
    """One series has what IMDS tells of the VM; its name alone, or a Node that there is not, makes none."""
    bench = start_nameless(build, "instance: {name: WestNO_0}")
    assert bench.metric("instance_info") is None
    bench.simulator.set_fault(None)
    bench.advance(300)
    families = text_string_to_metric_families(bench.request("/metrics")[1])
    (sample,) = next(family for family in families if family.name.endswith("_instance_info")).samples
    known = {"instance_name": "WestNO_0", "computer_name": "westno000000", "scale_set": "WestNO"}
    others = {"priority", "resource_group", "location", "fault_domain", "zone", "vm_size"}
    assert (sample.value, sample.labels.keys() - known.keys()) == (1, others)
    assert known.items() <= sample.labels.items()


def test_approvals_have_a_series_for_each_event_that_has_a_state(build: Build) -> None:
    """The state is a label; where approval is off, there is none."""
    bench = build()
    bench.show(raw_event())
    assert bench.metric("event_approval") is None
    bench.reload("approval: {mode: 'on', rules: [{name: a, action: approve, delay: 1h}]}")
    assert bench.metric("event_approval", event_id=FREEZE_ID, state="waiting") == 1
    bench.reload("approval: {mode: 'on', rules: [{name: a, action: approve}]}")
    assert bench.metric("event_approval", event_id=FREEZE_ID, state="approved") == 1
    bench.reload("")
    assert bench.metric("event_approval") is None
    bench.reload("approval: {mode: dry_run}")
    bench.show()
    assert bench.metric("event_approval") is None


def test_reasons_are_seen(build: Build) -> None:
    """Each kind of trouble is a series that is 0 until it is there, and so is being out of service."""
    bench = build()
    assert bench.metric("in_service") == 1
    for reason in DegradedReason:
        assert bench.metric("degraded", reason=reason.value) == 0
        bench.app.health.report(reason, "something")
        assert bench.metric("degraded", reason=reason.value) == 1
    bench.show(raw_event(EventType="Reboot", **STARTED))
    assert bench.metric("in_service") == 0
