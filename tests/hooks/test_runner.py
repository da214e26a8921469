"""Tests of `exporter.hooks.runner`: which command runs when, how often, beside which others."""

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from exporter.clock import SystemClock
from exporter.config import Hook
from exporter.health import Health
from exporter.hooks.runner import MOST_AT_ONCE, HookRunner
from exporter.inbox import Inbox
from exporter.metrics import Metrics
from exporter.model.jobs import Finding, HookOutcome
from exporter.model.lifecycle import Known, Occurrence, Step, Transition
from exporter.state import Store
from exporter.tracing import Tracer
from tests.clocks import NOW
from tests.end_to_end.program import eventually
from tests.hooks.support import VM, occurrence
from tests.state_support import alter, queue


class Ended(Metrics):
    """Keeps the runs that have ended, in order."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.ended: list[tuple[str, HookOutcome]] = []

    def hook_ended(self, hook: str, outcome: HookOutcome, seconds: float) -> None:
        """Keep it."""
        assert seconds >= 0
        self.ended.append((hook, outcome))


class HooksFixture:
    """A runner with everything around it; hooks write what they do to files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.metrics = Ended()
        self.hooks: tuple[Hook, ...] = ()
        self.open()

    def open(self) -> None:
        """Start as a new process does."""
        self.store = Store.open(self.folder / "state", health=Health(self.clock), clock=self.clock)
        self.inbox = Inbox()
        health = Health(self.clock)
        tracer = Tracer(self.store.spans, self.metrics, health, self.clock, vm=lambda: None, environ={})
        self.runner = HookRunner(self.store.hook_jobs, self.metrics, tracer, self.inbox, self.clock)
        self.runner.configure(self.hooks, os.environ)

    def use(self, **scripts: str) -> None:
        """Configure a hook for each script, in this order."""
        self.hooks = tuple(
            Hook(name, ("/bin/sh", "-c", f"cd {self.folder} || exit 9; {script}"), timeout=20)
            for name, script in scripts.items()
        )
        self.runner.configure(self.hooks, os.environ)

    def happen(self, *occurrences: Occurrence) -> None:
        """Write down what is to run, and have it run, as the poller does."""
        queue(self.store, self.runner.compose(occurrences, VM, NOW))
        self.runner.wake()

    def idle(self) -> bool:
        """Return whether nothing runs or waits any more."""
        return not self.runner._busy and not self.store.hook_jobs.counts()

    @property
    def ended(self) -> list[tuple[str, HookOutcome]]:
        """The runs that have ended."""
        return self.metrics.ended

    def lines(self, file: str) -> list[str]:
        """Return what was written to a file."""
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[HooksFixture]:
    """Set up, and end all threads."""
    found = HooksFixture(tmp_path)
    yield found
    found.runner.begin_stop()
    assert found.runner.join(20)
    found.store.close()


def test_hooks_of_an_event_run_in_order(fixture: HooksFixture) -> None:
    """Transition by transition, and within one in the order of the file; each of them once."""
    fixture.use(b="echo b $EVENT_ID >> log", a="sleep 0.05; echo a $EVENT_ID >> log")
    fixture.happen(occurrence(number=1), occurrence(number=2))
    fixture.happen(occurrence(number=1))
    eventually(fixture.idle)
    assert fixture.lines("log") == ["b a", "a a", "b a", "a a"]
    assert fixture.ended == [("b", HookOutcome.SUCCEEDED), ("a", HookOutcome.SUCCEEDED)] * 2


def test_hooks_of_different_events_run_side_by_side(fixture: HooksFixture) -> None:
    """Each waits for the other, which only works side by side."""
    fixture.use(meet="touch $EVENT_ID; until [ -e a ] && [ -e b ]; do sleep 0.02; done")
    fixture.happen(occurrence("a"), occurrence("b"))
    eventually(fixture.idle)
    assert fixture.ended == [("meet", HookOutcome.SUCCEEDED)] * 2


def test_only_so_many_run_at_once(fixture: HooksFixture) -> None:
    """More events wait their turn, and get it."""
    fixture.use(wait="echo $EVENT_ID >> begun; until [ -e go ]; do sleep 0.02; done")
    fixture.happen(*(occurrence(f"e{number:02}") for number in range(MOST_AT_ONCE + 3)))
    eventually(lambda: len(fixture.lines("begun")) == MOST_AT_ONCE)
    assert len(fixture.runner._busy) == MOST_AT_ONCE
    assert not fixture.runner.join(0.1)
    (fixture.folder / "go").touch()
    eventually(fixture.idle)
    assert len(fixture.ended) == MOST_AT_ONCE + 3
    assert len([thread for thread in threading.enumerate() if thread.name == "hooks"]) == MOST_AT_ONCE


def test_a_newer_update_replaces_one_that_waits(fixture: HooksFixture) -> None:
    """A hook runs for the newest content, not for each that came while it ran."""
    fixture.use(a="echo $EVENT_DURATION >> log; until [ -e go ]; do sleep 0.02; done")
    fixture.happen(occurrence(transition=Transition.UPDATED, duration_seconds=1))
    eventually(lambda: fixture.lines("log") == ["1"])
    for number in (2, 3, 4):
        fixture.happen(occurrence(number=number, transition=Transition.UPDATED, duration_seconds=number))
    (fixture.folder / "go").touch()
    eventually(fixture.idle)
    assert fixture.lines("log") == ["1", "4"]


def test_the_end_of_a_life_drops_what_has_not_begun(fixture: HooksFixture) -> None:
    """When an event is over, only what runs already and the hooks for its end are of use."""
    fixture.use(
        drain="echo drain >> log; until [ -e go ]; do sleep 0.02; done",
        more="echo more >> log",
    )
    fixture.happen(occurrence())
    eventually(lambda: fixture.lines("log") == ["drain"])
    ending = occurrence(number=2, transition=Transition.COMPLETED)
    jobs = fixture.runner.compose([ending], VM, NOW)
    fixture.store.record(Step(Known(), (ending,), (ending,), (), (), new_incarnation=True), jobs=jobs)
    (fixture.folder / "go").touch()
    eventually(fixture.idle)
    assert fixture.lines("log") == ["drain", "drain", "more"]


def test_hooks_of_two_lives_of_an_event_run_in_order(fixture: HooksFixture) -> None:
    """The node is uncordoned for the life that ended before it is drained for the one that begins."""
    fixture.use(a="sleep 0.05; echo $EVENT_TRANSITION >> log")
    ending = occurrence(transition=Transition.CANCELLED)
    again = occurrence(transition=Transition.SCHEDULED)
    fixture.happen(ending, Occurrence(msgspec.structs.replace(again.life, number=2), again.transition, NOW))
    eventually(fixture.idle)
    assert fixture.lines("log") == ["cancelled", "scheduled"]


def test_a_failure_holds_up_nothing(fixture: HooksFixture, caplog: pytest.LogCaptureFixture) -> None:
    """A hook that fails has failed; the next one runs; nothing runs again."""
    caplog.set_level(logging.INFO)
    fixture.use(bad="echo oops; exit 3", gone="", good="echo good >> log")
    fixture.hooks = (
        fixture.hooks[0],
        msgspec.structs.replace(fixture.hooks[1], command=("/no/such",)),
        fixture.hooks[2],
    )
    fixture.runner.configure(fixture.hooks, os.environ)
    fixture.happen(occurrence())
    eventually(fixture.idle)
    assert fixture.ended == [
        ("bad", HookOutcome.FAILED),
        ("gone", HookOutcome.FAILED),
        ("good", HookOutcome.SUCCEEDED),
    ]
    said = [vars(record) for record in caplog.records if record.getMessage() == "hook ended"]
    assert [record["reason"] for record in said] == [
        "exit status 3",
        "cannot be started: no such file: /no/such",
        "exit status 0",
    ]
    assert [vars(r)["line"] for r in caplog.records if r.getMessage() == "hook output"] == ["oops"]
    assert fixture.store.hook_jobs.results("a") == dict(fixture.ended)
    reported = [one for one in fixture.inbox.take() if isinstance(one, Finding)]
    assert [(one.hook, one.run, one.detail, one.instance) for one in reported] == [
        ("bad", 1, "hook bad failed: exit status 3; output: oops", VM),
        ("gone", 1, "hook gone failed: cannot be started: no such file: /no/such", VM),
    ]
    assert [(one.transition, one.hook, one.detail) for one in fixture.store.findings()] == [
        (Transition.HOOK_FAILED, "bad", "hook bad failed"),
        (Transition.HOOK_FAILED, "gone", "hook gone failed"),
    ]


def test_a_hook_that_was_under_way_runs_again(fixture: HooksFixture) -> None:
    """After an interruption the hook gets the number of the attempt; ended ones do not run again."""
    fixture.use(first="echo first >> log", second="echo $EVENT_ATTEMPT >> attempts; [ -e go ] || sleep 60")
    fixture.happen(occurrence())
    eventually(lambda: fixture.lines("attempts") == ["1"])
    fixture.runner.begin_stop()
    assert fixture.runner.join(20)
    fixture.store.close()
    (fixture.folder / "go").touch()
    fixture.open()
    eventually(fixture.idle)
    assert fixture.lines("attempts") == ["1", "2"]
    assert fixture.lines("log") == ["first"]
    assert fixture.ended == [("first", HookOutcome.SUCCEEDED), ("second", HookOutcome.SUCCEEDED)]


def test_a_hook_that_is_removed(fixture: HooksFixture, caplog: pytest.LogCaptureFixture) -> None:
    """What waits for a hook that is configured no more is forgotten, with a word."""
    fixture.use(old="echo old >> log", other="echo other >> log")
    queue(fixture.store, fixture.runner.compose([occurrence()], VM, NOW))
    fixture.use(other="echo other >> log")
    eventually(fixture.idle)
    assert fixture.lines("log") == ["other"]
    assert "pending hook is no longer configured" in caplog.text
    assert fixture.store.hook_jobs.results("a") == {"old": None, "other": HookOutcome.SUCCEEDED}


def test_what_cannot_be_read_is_left_out(fixture: HooksFixture) -> None:
    """A damaged row holds up no other."""
    fixture.use(a="echo a >> log")
    queue(fixture.store, fixture.runner.compose([occurrence(number=1), occurrence(number=2)], VM, NOW))
    fixture.store.close()
    alter(fixture.folder / "state", "UPDATE entries SET value = '{' WHERE key LIKE '%,1,%'")
    fixture.open()
    eventually(fixture.idle)
    assert fixture.lines("log") == ["a"]


def test_nothing_begins_after_the_stop(fixture: HooksFixture) -> None:
    """What happens while the program ends is written down, and runs after the next start."""
    fixture.use(a="echo a >> log")
    fixture.runner.begin_stop()
    fixture.happen(occurrence())
    assert fixture.runner.join(1)
    assert fixture.store.hook_jobs.counts() == {"a": 1}
    assert fixture.lines("log") == []
