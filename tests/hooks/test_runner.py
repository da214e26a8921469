import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from exporter.clock import SystemClock
from exporter.config import Hook
from exporter.health import Health
from exporter.hooks.runner import MOST_AT_ONCE, HookRunner
from exporter.inbox import Inbox
from exporter.metrics import Metrics
from exporter.model.lifecycle import Known, Occurrence, Step, Transition
from exporter.state.store import Store
from exporter.tracing import Tracer
from tests.clocks import NOW
from tests.end_to_end.program import eventually
from tests.hooks.support import VM, occurrence


class HooksFixture:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.metrics = Metrics(CollectorRegistry())
        self.hooks: tuple[Hook, ...] = ()
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.folder / "state", health=Health(self.clock), clock=self.clock)
        self.inbox = Inbox()
        health = Health(self.clock)
        tracer = Tracer(self.store.spans, self.metrics, health, self.clock, vm=lambda: None, environ={})
        self.runner = HookRunner(self.store.hook_jobs, self.metrics, tracer, self.inbox, self.clock)
        self.runner.configure(self.hooks, os.environ)

    def use(self, **scripts: str) -> None:
        self.hooks = tuple(
            Hook(name, ("/bin/sh", "-c", f"cd {self.folder} || exit 9; {script}"), timeout=20)
            for name, script in scripts.items()
        )
        self.runner.configure(self.hooks, os.environ)

    def happen(self, *occurrences: Occurrence) -> None:
        """Write down what is to run, and have it run, as the poller does."""
        jobs = self.runner.compose(occurrences, VM, NOW)
        self.store.record(Step(Known(), (), (), (), (), new_incarnation=True), jobs=jobs)
        self.runner.wake()

    def idle(self) -> bool:
        return not self.runner._busy and not self.store.hook_jobs.counts()

    def lines(self, file: str) -> list[str]:
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[HooksFixture]:
    found = HooksFixture(tmp_path)
    yield found
    found.runner.begin_stop()
    assert found.runner.join(20)
    found.store.close()


def test_only_so_many_run_at_once(fixture: HooksFixture) -> None:
    """More events wait their turn, and get it."""
    fixture.use(wait="echo $EVENT_ID >> begun; until [ -e go ]; do sleep 0.02; done")
    fixture.happen(*(occurrence(f"e{number:02}") for number in range(MOST_AT_ONCE + 3)))
    eventually(lambda: len(fixture.lines("begun")) == MOST_AT_ONCE)
    assert len(fixture.runner._busy) == MOST_AT_ONCE
    assert not fixture.runner.join(0.1)
    (fixture.folder / "go").touch()
    eventually(fixture.idle)
    assert len(fixture.lines("begun")) == MOST_AT_ONCE + 3
    assert len([thread for thread in threading.enumerate() if thread.name == "hooks"]) == MOST_AT_ONCE


def test_a_newer_update_replaces_one_that_waits(fixture: HooksFixture) -> None:
    """A hook runs for the event as it came and for its newest content; once it is forgotten, anew."""
    fixture.use(wait="until [ -e go ]; do sleep 0.02; done", a="echo $EVENT_DURATION >> log")
    first = occurrence(duration_seconds=1)
    fixture.happen(first)
    for number in (2, 3, 4):
        fixture.happen(occurrence(number=number, transition=Transition.UPDATED, duration_seconds=number))
    (fixture.folder / "go").touch()
    eventually(fixture.idle)
    assert not fixture.store.hook_jobs.has_open_updates(first.life.key)
    fixture.store.record(Step(Known(), forgotten=(first.life.key,)))
    fixture.happen(first)
    eventually(fixture.idle)
    assert fixture.lines("log") == ["1", "4", "1"]


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


def test_nothing_begins_after_the_stop(fixture: HooksFixture) -> None:
    """What happens while the program ends is written down, and runs after the next start."""
    fixture.use(a="echo a >> log")
    fixture.runner.begin_stop()
    fixture.happen(occurrence())
    assert fixture.runner.join(1)
    assert fixture.store.hook_jobs.counts() == {"a": 1}
    assert fixture.lines("log") == []
