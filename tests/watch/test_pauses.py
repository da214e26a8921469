"""Tests of `exporter.watch.pauses`: clocks that the test moves, a stopped process, the events under way."""

import logging
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from exporter.clock import SystemClock
from exporter.model.events import Target
from exporter.model.jobs import Pause
from exporter.model.lifecycle import TrackedEvent, Transition, TransitionRecord
from exporter.model.views import Snapshot
from exporter.watch.pauses import (
    INTERVAL_SECONDS,
    Interruptions,
    PauseWatcher,
    oversleep,
    set_forward,
)
from tests.builders import FREEZE_ID, REBOOT_ID, scheduled, started
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import eventually

VM = "WestNO_0"


@pytest.mark.parametrize(
    ("monotonic", "wall", "pause"),
    [
        (0.05, 0.05, None),
        (0.25, 0.25, None),
        (0.26, 0.26, 0.21),
        (5.05, 5.05, 5.0),
        # The clocks differ: the smaller oversleeping counts.
        (5.05, 4.05, 4.0),
        (1.05, 28.05, 1.0),
        # Only one has overslept: NTP, an administrator, a counter that stood still.
        (0.05, 3600.05, None),
        (0.05, -3600.0, None),
        (5.05, 0.05, None),
        (5.05, -3600.0, None),
        (0.0, 0.0, None),
    ],
)
def test_a_pause_is_what_both_clocks_overslept(monotonic: float, wall: float, pause: float | None) -> None:
    """More than 200 ms too long by both clocks is a pause, as long as the smaller of the two says."""
    assert oversleep(0.05, monotonic, wall) == (None if pause is None else pytest.approx(pause))


@pytest.mark.parametrize(
    ("monotonic", "wall", "step"),
    [(0.05, 28.05, 28.0), (5.05, 5.05, None), (0.05, 0.25, None), (5.05, 0.05, None), (1.0, 1.5, 0.5)],
)
def test_a_step_forward_is_what_the_wall_clock_alone_went(
    monotonic: float, wall: float, step: float | None
) -> None:
    """The wall clock being ahead of the monotonic one by more than 200 ms is a step; behind it is none."""
    assert set_forward(monotonic, wall) == (None if step is None else pytest.approx(step))


class Sleeps:
    """A sleep that lasts as long as the test wants by both clocks, and ends the watch after the last."""

    def __init__(self, clock: HandClock, *plan: tuple[float, float]) -> None:
        self._clock = clock
        self._plan: Iterator[tuple[float, float]] = iter(plan)
        self.asked: list[float] = []
        self.at_the_last: Callable[[], None] = lambda: None

    def __call__(self, seconds: float) -> None:
        """Advance both clocks as planned, and then the wall clock alone."""
        self.asked.append(seconds)
        both, wall_alone = next(self._plan, (seconds, 0.0))
        self._clock.pass_seconds(both)
        self._clock.set_wall(self._clock.now() + timedelta(seconds=wall_alone))
        if self._plan.__length_hint__() == 0:  # type: ignore[attr-defined]  # iter() of a tuple has it
            self.at_the_last()


def watched(*plan: tuple[float, float]) -> tuple[list[float], list[float], Sleeps]:
    """Watch for as many sleeps as are planned; return pauses, steps, and what was slept."""
    clock = HandClock()
    sleeps = Sleeps(clock, *plan)
    pauses: list[float] = []
    steps: list[float] = []
    watcher = PauseWatcher(pauses.append, clock=clock, on_step=steps.append, sleep=sleeps)
    over = threading.Event()

    def end() -> None:
        watcher.watch(active=False)
        over.set()

    sleeps.at_the_last = end
    watcher.watch(active=True)
    assert over.wait(60)
    assert watcher.stop(60)
    return pauses, steps, sleeps


def names_of_threads() -> list[str]:
    """Return the names of the threads that run."""
    return [thread.name for thread in threading.enumerate()]


def test_a_pause_between_ordinary_sleeps_is_told_once() -> None:
    """Each pause is reported with its seconds, ordinary sleeps are not."""
    pauses, steps, sleeps = watched((0.05, 0), (0.06, 0), (2.55, 0), (0.05, 0), (0.35, 0), (0.05, 0))
    assert pauses == [pytest.approx(2.5), pytest.approx(0.3)]
    assert steps == []
    assert sleeps.asked == [INTERVAL_SECONDS] * 6


def test_a_pause_in_the_last_sleep_is_told() -> None:
    """The poller may wake first, see that the event is gone, and end the watch: the pause still counts."""
    assert watched((0.05, 0), (7.05, 0))[0] == [pytest.approx(7.0)]


def test_a_step_of_the_wall_clock_is_no_pause() -> None:
    """Setting the clock is not a pause; a step forward is reported as such."""
    pauses, steps, _ = watched((0.05, 28), (0.05, -3600), (0.05, 0))
    assert pauses == []
    assert steps == [pytest.approx(28)]


def test_a_failing_callback_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    """Exceptions of the callback are logged, and the next pause is reported."""
    clock = HandClock()
    sleeps = Sleeps(clock, (1.05, 0), (2.05, 0))
    told: list[float] = []

    def fail(pause: float) -> None:
        told.append(pause)
        raise KeyError(pause)

    watcher = PauseWatcher(fail, clock=clock, sleep=sleeps)
    sleeps.at_the_last = lambda: watcher.watch(active=False)
    watcher.watch(active=True)
    eventually(lambda: len(told) == 2)
    assert watcher.stop(60)
    assert told == [pytest.approx(1.0), pytest.approx(2.0)]
    assert len(caplog.records) == 2


def test_nothing_runs_unless_watching() -> None:
    """There is no thread before the first watch, one however often it is asked for, and no sleep after it."""
    begun: queue.SimpleQueue[float] = queue.SimpleQueue()
    go_on = threading.Semaphore(0)

    def sleep(seconds: float) -> None:
        begun.put(seconds)
        assert go_on.acquire(timeout=60)

    watcher = PauseWatcher(lambda _: None, clock=SystemClock(), sleep=sleep)
    watcher.watch(active=False)
    assert "pauses" not in names_of_threads()
    for _ in range(3):
        for _ in range(5):
            watcher.watch(active=True)
        assert begun.get(timeout=60) == INTERVAL_SECONDS
        assert names_of_threads().count("pauses") == 1
        watcher.watch(active=False)
        go_on.release()
    go_on.release(5)
    assert watcher.stop(60)
    assert begun.empty()


def test_after_stop_nothing_runs_again() -> None:
    """A poll that is still under way when the program ends cannot start the thread anew."""
    watcher = PauseWatcher(lambda _: None, clock=SystemClock())
    watcher.watch(active=True)
    assert watcher.stop(60)
    watcher.watch(active=True)
    assert "pauses" not in names_of_threads()


def test_stop_says_when_the_thread_does_not_end() -> None:
    """A hanging callback does not block others, and is not hidden."""
    clock = HandClock()
    hanging, go_on = threading.Event(), threading.Event()

    def hang(_: float) -> None:
        hanging.set()
        assert go_on.wait(60)

    watcher = PauseWatcher(hang, clock=clock, sleep=Sleeps(clock, (9.0, 0)))
    watcher.watch(active=True)
    assert hanging.wait(60)
    assert not watcher.stop(0.01)
    go_on.set()
    assert watcher.stop(60)


WATCHING = """
import sys, threading
from exporter.clock import SystemClock
from exporter.watch.pauses import PauseWatcher
watcher = PauseWatcher(lambda seconds: print("pause", seconds, flush=True), clock=SystemClock())
watcher.watch(active=True)
print("watching", flush=True)
sys.stdin.read()
print("stopped", watcher.stop(60), flush=True)
"""


def test_a_process_that_stood_still_notices() -> None:
    """A process under SIGSTOP for half a second reports a pause of about that long."""
    begun = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", WATCHING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "watching\n"
        # The first time, it may not have begun to sleep yet.
        while not select.select([process.stdout], [], [], 1)[0]:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.5)
            os.kill(process.pid, signal.SIGCONT)
        first = process.stdout.readline()
        process.stdin.close()
        *others, last = process.stdout.read().splitlines()
    # A machine that is busy makes pauses of its own.
    told = [float(line.removeprefix("pause ")) for line in (first, *others)]
    assert last == "stopped True"
    assert 0.5 - INTERVAL_SECONDS - 0.01 <= max(told) <= time.monotonic() - begun


def under_way(event_id: str = FREEZE_ID, event_type: str = "Freeze", **fields: object) -> TrackedEvent:
    """Return an event that is Started for this VM."""
    event = started(event_id=event_id, event_type=event_type)
    records = (TransitionRecord(Transition.STARTED, NOW),)
    return replace(TrackedEvent(event, (event_id,), NOW, started=NOW, transitions=records), **fields)


def gone(seconds: int) -> TrackedEvent:
    """Return an event that was completed some seconds ago."""
    return under_way(ended=NOW - timedelta(seconds=seconds), outcome=Transition.COMPLETED)


@pytest.mark.parametrize(
    ("snapshot", "counted"),
    [
        (Snapshot(instance=VM, current=(under_way(),)), ["Freeze"]),
        (
            Snapshot(instance=VM, current=(under_way(), under_way(REBOOT_ID, "Reboot"), under_way("c"))),
            ["Freeze", "Reboot"],
        ),
        (Snapshot(instance=VM, past=(gone(4),)), ["Freeze"]),
        (Snapshot(instance=VM, past=(gone(7),)), []),
        (Snapshot(instance="other", current=(under_way(affects=Target.OTHER),)), []),
        (Snapshot(instance=None, current=(under_way(),)), []),
        (Snapshot(instance=VM, current=(TrackedEvent(scheduled(), (FREEZE_ID,), first_seen=NOW),)), []),
    ],
)
def test_a_pause_counts_for_what_was_started(
    snapshot: Snapshot, counted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Once per type of event, for this VM; one that is gone since the pause too; and it is logged."""
    caplog.set_level(logging.INFO)
    totals: list[tuple[str, float]] = []
    reported: list[Pause] = []
    found = Interruptions(
        lambda: snapshot, lambda *pause: totals.append(pause), HandClock(), report=reported.append
    )
    found.paused(5.5)
    assert [len(pause.keys) > 0 for pause in reported] == [True] * bool(counted)
    assert totals == [(event_type, 5.5) for event_type in counted]
    assert [(r.getMessage(), vars(r)["seconds"]) for r in caplog.records] == [("pause", 5.5)]


def test_announced_beside_observed(caplog: pytest.LogCaptureFixture) -> None:
    """The log line has what Azure announced, to be compared; so has that of a step of the clock."""
    caplog.set_level(logging.INFO)
    totals: list[tuple[str, float]] = []
    reported: list[Pause] = []
    found = Interruptions(
        lambda: Snapshot(instance=VM, current=(under_way(),)),
        lambda *pause: totals.append(pause),
        HandClock(),
        report=reported.append,
    )
    found.paused(7.0)
    found.set_forward(28.0)
    assert [vars(record)["announced_seconds"] for record in caplog.records] == [[5], [5]]
    assert caplog.records[1].getMessage() == "clock set forward"
    assert totals == [("Freeze", 7.0)]
    assert reported == [Pause((FREEZE_ID.lower(),), 7.0)]
