"""Events whose type changes: one life ends, another one begins, and what counts from its beginning is new."""

from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bench import Bench, Build
from tests.builders import FREEZE_ID, raw_event
from tests.docs.pages import ROOT

ONCALL = "notifications: {targets: [{name: oncall, url: 'json://receiver.test'}]}\n"
REBOOTS = (
    "approval: {mode: 'on', leader: any, rules: [{name: reboots, action: approve, "
    "match: {event_types: [Reboot]}}]}\n"
)
DRAINED = (
    "hooks: [{name: drain, command: [drain], match: {event_types: [Reboot], transitions: [scheduled]}}]\n"
    "approval: {mode: 'on', rules: [{name: reboots, action: approve, match: {event_types: [Reboot]}, "
    "delay: 30s, require_hooks: [drain]}]}\n"
)
FREEZE, REBOOT, REDEPLOY = (raw_event(EventType=name) for name in ("Freeze", "Reboot", "Redeploy"))
STARTED = raw_event(EventStatus="Started", NotBefore="")


def told(bench: Bench) -> list[str]:
    """Return the messages so far, without severity, VM and time."""
    return [one.title.partition("] ")[2].partition(":")[0] for one in bench.sent()]


def ran(bench: Bench) -> list[tuple[str, str]]:
    return [(one.environment["EVENT_TRANSITION"], one.environment["EVENT_TYPE"]) for one in bench.commands]


def test_another_type_is_another_life(build: Build) -> None:
    """One document ends the Freeze and begins the Reboot, whose hook, delay and approval are its own."""
    bench = build(ONCALL + DRAINED)
    bench.show(FREEZE, wait=60)
    assert bench.commands == []
    bench.show(REBOOT)
    (past,), (now,) = bench.api("past"), bench.api("current")
    assert [past[name] for name in ("type", "outcome", "changed_to", "impact_seconds")] == [
        "Freeze",
        "cancelled",
        "Reboot",
        None,
    ]
    assert (now["type"], now["changed_to"], now["first_seen"]) == ("Reboot", None, past["ended"])
    assert told(bench) == ["Freeze scheduled", "Freeze cancelled, became Reboot", "Reboot scheduled"]
    assert "Azure changed the type of the event from Freeze to Reboot" in bench.sent()[1].body
    assert "Cancelled: its type changed to Reboot" in bench.request("/")[1]
    assert ran(bench) == [("scheduled", "Reboot")]
    bench.advance(27)
    assert bench.approved == []
    bench.advance(3)
    assert bench.approved == [FREEZE_ID]
    assert bench.metric("transitions_total", transition="cancelled", event_type="Freeze") == 1
    assert bench.metric("transitions_total", transition="scheduled", event_type="Reboot") == 1


def hooks_of(path: Path) -> str:
    text = path.read_text()
    if path.suffix == ".md":
        text = text.partition("```yaml\n")[2].partition("```")[0]
    return yaml.safe_dump({"hooks": yaml.safe_load(text)["hooks"]})


@pytest.mark.parametrize("status", ["Scheduled", "Started"])
@pytest.mark.parametrize(
    "path",
    [
        "docs/hooks.md",
        *(f"examples/{name}/exporter.yml" for name in ("pacemaker", "runners", "slurm", "haproxy")),
    ],
)
def test_the_old_type_is_recovered_from(build: Build, path: str, status: str) -> None:
    """Where a Reboot becomes a Freeze, hooks that select Reboots run for its end, and none for the Freeze."""
    bench = build(hooks_of(ROOT / path))
    bench.show(REBOOT | {"EventStatus": status}, wait=10)
    before = ran(bench)
    assert {event_type for _, event_type in before} <= {"Reboot"}
    bench.show(FREEZE | {"EventStatus": status}, wait=10)
    bench.restart()
    bench.show(STARTED, wait=10)
    bench.show(wait=10)
    after = ran(bench)[len(before) :]
    assert set(after) == {("cancelled", "Reboot")}


def test_hooks_of_the_former_type_do_not_count(build: Build) -> None:
    """A hook that ran for the Freeze is not one that ran for the Reboot."""
    bench = build(DRAINED.replace("event_types: [Reboot], transitions", "event_types: [Freeze], transitions"))
    bench.show(FREEZE, wait=60)
    assert len(bench.commands) == 1
    bench.show(REBOOT, wait=60)
    assert bench.approved == []
    assert bench.api("current")[0]["approval"]["reason"] == "the hook drain did not run for it"


def test_the_incident_of_each_type(build: Build) -> None:
    """The end of one type resolves its incident before the next type opens one with the same key."""
    bench = build(ONCALL)
    bench.loops.idle.add("notify oncall")
    bench.show(REBOOT, wait=5)
    bench.show(FREEZE, wait=5)
    bench.loops.idle.clear()
    bench.restart()
    bench.show()
    sent = [(one.incident, one.resolves) for one in bench.sent()]
    assert sent == [(f"{FREEZE_ID}/WestNO_0", over) for over in (True, False, True)]


def test_a_type_that_flips_is_not_approved(build: Build) -> None:
    """The delay begins anew with each life, so that an approval waits until the type stays."""
    bench = build(REBOOTS.replace("[Reboot]", "[Reboot, Freeze]").replace("approve,", "approve, delay: 5s,"))
    for event in islice(cycle((REBOOT, FREEZE)), 60):
        bench.show(event)
    assert bench.approved == []
    bench.advance(10)
    assert bench.approved == [FREEZE_ID]


@pytest.mark.parametrize(
    "listed",
    [[{"EventType": name}] for name in ("reboot", "Reboot ", None, 7)]
    + [
        [{"EventStatus": "scheduled"}],
        [{"EventSource": "user"}],
        [{"EventType": "Redeploy"}, {}],
        [{"EventId": FREEZE_ID.lower()}, {}],
    ],
)
def test_what_is_in_doubt_is_not_approved(build: Build, listed: list[dict[str, Any]]) -> None:
    """Words that are spelled in another way, or entries that contradict each other, are shown and held."""
    bench = build("approval: {mode: 'on', leader: any, rules: [{name: all, action: approve}]}")
    bench.show(*(REBOOT | fields for fields in listed), wait=10)
    (event,) = bench.api("current")
    assert (event["approval"]["state"], bench.approved) == ("hold", [])
    assert event["doubts"]
    assert bench.metric("degraded", reason="invalid_event") == 1
    known = event["type"] if event["type"] == "Unknown" else "Reboot"
    assert bench.metric("transitions_total", event_type=known, transition="scheduled") == 1
