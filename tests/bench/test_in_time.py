from datetime import timedelta
from typing import Any

import pytest

from exporter.simulator import Fault
from tests.bench import Bench, Build
from tests.builders import FREEZE_ID, raw_event

NOTIFY = "notifications: {targets: [{name: oncall, url: 'json://receiver.test'}]}\n"
HOOK = "hooks: [{name: late, command: [late], match: {transitions: [imminent]}}]\n"


def reboot(bench: Bench, minutes: float, **fields: Any) -> dict[str, Any]:
    at = bench.clock.now() + timedelta(minutes=minutes)
    return raw_event(EventType="Reboot", NotBefore=at.isoformat(), **fields)


def transitions(bench: Bench) -> list[str]:
    (event,) = bench.api("current")
    return [one["transition"] for one in event["transitions"]]


@pytest.mark.parametrize("interval", ["1s", "1h"])
@pytest.mark.parametrize("fails", [False, True])
def test_imminent_is_due_by_the_time(build: Build, fails: bool, interval: str) -> None:
    """It is reported and counted, and its hooks run, at its time: also between polls and while IMDS fails."""
    bench = build(f"{NOTIFY}{HOOK}imds: {{poll_interval: {interval}}}")
    bench.simulator.set_document({"DocumentIncarnation": 2, "Events": [reboot(bench, 10)]})
    bench.reload()
    bench.advance(1)
    assert transitions(bench) == ["scheduled"]
    bench.simulator.set_fault(Fault("error") if fails else None)
    bench.advance(298)
    assert transitions(bench) == ["scheduled"]
    bench.advance(1.5)
    assert transitions(bench) == ["scheduled", "imminent"]
    assert bench.sent()[1].title == "[WARNING] Reboot imminent: WestNO_0 at 22:10 UTC (5 min)"
    assert [command.argv for command in bench.commands] == [("late",)]
    assert bench.metric("transitions_total", transition="imminent", event_type="Reboot") == 1


@pytest.mark.parametrize(("after", "expected"), [(0, ["scheduled", "imminent"]), (1300, ["scheduled"])])
def test_imminent_after_a_start_without_imds(build: Build, after: float, expected: list[str]) -> None:
    """What is known becomes imminent in time, unless NotBefore has passed; then it needs a document."""
    bench = build(HOOK)
    bench.show(reboot(bench, 20))
    bench.simulator.set_fault(Fault("error"))
    bench.restart(after=after)
    bench.advance(900)
    assert transitions(bench) == expected
    assert len(bench.commands) == expected.count("imminent")
    bench.simulator.set_fault(None)
    bench.advance(30)
    assert [command.argv for command in bench.commands] == [("late",)]


def test_imminent_over_restarts(build: Build) -> None:
    """Nothing is reported again, and what became due meanwhile is reported once after the start."""
    text = f"{NOTIFY}events: {{imminent: [15m, 5m, 1m]}}"
    bench = build(text)
    bench.show(reboot(bench, 20), wait=301)
    assert len(bench.sent()) == 2
    bench.restart()
    bench.restart(after=60)
    assert len(bench.sent()) == 2
    bench.restart(after=14 * 60 - 30)
    bench.advance(10)
    assert transitions(bench) == ["scheduled", "imminent", "imminent"]
    for step in (timedelta(hours=-3), timedelta(hours=3)):
        bench.clock.set_wall(bench.clock.now() + step)
        bench.advance(5)
    assert transitions(bench) == ["scheduled", "imminent", "imminent"]


@pytest.mark.parametrize("status", ["Scheduled", "Started", "Advisory"])
def test_a_recommendation(build: Build, status: str) -> None:
    """It is only advice, and never approved; it ends the service only where the match names its type."""
    text = (
        NOTIFY
        + "in_service: {match: {}}\n"
        + "approval: {mode: 'on', rules: [{name: all, action: approve, match: {}}]}"
    )
    bench = build(text)
    advice = reboot(bench, 20, EventStatus=status) | {"EventType": "SpotRebalanceRecommendation"}
    bench.show(advice, wait=600)
    assert transitions(bench) == ["advised"]
    assert bench.sent()[0].body.startswith("Azure may evict this Spot VM soon. Nothing is scheduled yet.")
    assert 'class="event warning"' in bench.request("/")[1]
    assert bench.request("/-/in-service")[0] == 200
    assert bench.approved == []
    bench.show(advice | {"NotBefore": ""})
    bench.reload(text.replace("match: {}", "match: {event_types: [SpotRebalanceRecommendation]}", 1))
    assert bench.request("/-/in-service")[0] == 503
    assert "Starts: at any moment; Azure gives no time" in bench.sent()[-1].body
    bench.show()
    assert bench.api("past")[0]["outcome"] == "cancelled"
    assert [one.title.split(":")[0] for one in bench.sent()] == [
        "[WARNING] SpotRebalanceRecommendation advised",
        "[WARNING] SpotRebalanceRecommendation updated",
        "[SUCCESS] SpotRebalanceRecommendation cancelled",
    ]


def test_event_resources_counts_each_name_once(build: Build) -> None:
    """A name in two spellings is one VM."""
    bench = build()
    bench.show(raw_event(Resources=["WestNO_0", "westno_0", "_WestNO_0", "b"]))
    assert bench.metric("event_resources", event_id=FREEZE_ID) == 2
