"""Tests of pauses of the VM, on the bench: those during an event, and those that nobody announced."""

import logging
import os
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.metrics import Metrics
from exporter.simulator import Fault
from exporter.watch.poller import Sleep
from tests.bench import Bench, Build
from tests.builders import FREEZE_ID, REBOOT_ID, raw_event
from tests.clocks import HandClock

STARTED = {"EventStatus": "Started", "NotBefore": ""}


def pause(bench: Bench, seconds: float) -> None:
    bench.clock.pass_seconds(seconds)
    bench.advance(1)


def unannounced(bench: Bench) -> tuple[float | None, float | None]:
    return bench.metric("unannounced_pauses_total"), bench.metric("unannounced_pause_seconds_total")


def test_a_pause_that_nobody_announced(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted, logged and shown on the page, once each time."""
    caplog.set_level(logging.INFO)
    bench = build()
    assert unannounced(bench) == (0, 0)
    bench.advance(5)
    for _ in range(2):
        pause(bench, 5)
        bench.advance(60)
    count, seconds = unannounced(bench)
    assert count == 2
    assert seconds is not None
    assert 8 <= seconds <= 10
    assert len([one for one in caplog.records if one.getMessage() == "pause"]) == 2
    assert "without an event" in bench.request("/")[1]
    assert bench.metric("observed_pause_seconds_count") == 0


def test_a_pause_during_an_event(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """It counts for each type that is Started for this VM, is logged, and stays with the event."""
    caplog.set_level(logging.INFO)
    bench = build()
    other = raw_event(EventId="b", EventType="Redeploy", Resources=["WestNO_9"], **STARTED)
    reboot = raw_event(EventId=REBOOT_ID, EventType="Reboot")
    bench.show(raw_event(**STARTED), reboot, other)
    pause(bench, 7)
    assert unannounced(bench) == (0, 0)
    counts = [
        bench.metric("observed_pause_seconds_count", event_type=kind)
        for kind in ("Freeze", "Reboot", "Redeploy")
    ]
    assert counts == [1, 0, 0]
    (logged,) = [vars(one) for one in caplog.records if one.getMessage() == "pause"]
    assert (logged["event_ids"], logged["announced_seconds"]) == ([FREEZE_ID], [5])
    (paused,) = [one["paused_seconds"] for one in bench.api("current") if one["id"] == FREEZE_ID]
    assert 6.5 <= paused <= 7
    bench.restart()
    bench.show(reboot)
    assert [one["paused_seconds"] for one in bench.api("past") if one["id"] == FREEZE_ID] == [paused]


def test_a_pause_is_shown_before_it_is_counted(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sees the count finds the pause at the event."""
    bench = build()
    bench.show(raw_event(**STARTED))
    shown = []
    monkeypatch.setattr(Metrics, "paused", lambda *_: shown.append(bench.api("current")[0]["paused_seconds"]))
    pause(bench, 7)
    assert len(shown) == 1
    assert shown[0] >= 6


def test_a_pause_after_which_the_event_is_gone(build: Build) -> None:
    """It belongs to the event that was Started when it began."""
    bench = build()
    bench.show(raw_event(**STARTED))
    bench.clock.pass_seconds(6)
    bench.show()
    assert bench.metric("observed_pause_seconds_count", event_type="Freeze") == 1


def test_a_pause_after_a_start_without_imds(build: Build) -> None:
    """An event that is known to affect this VM explains it, also before IMDS tells the VM's name."""
    bench = build()
    bench.show(raw_event(**STARTED))
    bench.simulator.set_fault(Fault("error"))
    bench.restart()
    pause(bench, 6)
    assert (unannounced(bench)[0], bench.metric("observed_pause_seconds_count")) == (0, 1)


@pytest.mark.parametrize("event", [{}, {"EventType": "SpotRebalanceRecommendation"} | STARTED])
def test_a_pause_while_nothing_is_under_way(build: Build, event: dict[str, str]) -> None:
    """An event that has not started, and a mere recommendation, announce no pause."""
    bench = build()
    bench.show(raw_event(**event))
    pause(bench, 5)
    assert unannounced(bench)[0] == 1


@pytest.mark.parametrize("hours", [3, -3])
def test_a_step_of_the_clock_is_no_pause(build: Build, hours: int) -> None:
    """It does not count, whether forward or back."""
    bench = build()
    bench.show(raw_event(**STARTED))
    bench.clock.set_wall(bench.clock.now() + timedelta(hours=hours))
    bench.advance(60)
    assert unannounced(bench) == (0, 0)
    assert bench.metric("observed_pause_seconds_count") == 0


@pytest.mark.parametrize(
    ("late", "starved", "found"), [(0.75, 0, 0), (1, 0, 1), (3, 0, 3), (3, 2.5, 0), (3, 2, 1), (3, -7, 3)]
)
def test_waiting_for_the_processor_is_no_pause(
    monkeypatch: pytest.MonkeyPatch, late: float, starved: float, found: float
) -> None:
    """What Linux says about the thread's time in the run queue is left out, if it still says it."""
    clock, waited = HandClock(), 7.0

    def pread(_file: int, size: int, offset: int) -> bytes:
        return f"1 {int(waited * 1e9)} 3".encode()[offset:][:size]

    open_files = sorted(Path("/proc/self/fd").iterdir())
    monkeypatch.setattr(os, "pread", pread)
    sleep = Sleep(clock)
    # Before the first sleep.
    assert sleep.end() == 0
    sleep.begin(1)
    clock.pass_seconds(1 + late)
    waited += starved
    assert sleep.end() == found
    sleep.close()
    sleep.close()
    assert sorted(Path("/proc/self/fd").iterdir()) == open_files
