"""Tests of `exporter.watch`: what it hands on to hooks, approvals and the watcher for pauses.

Some of that waits until this VM knows its name.
"""

from datetime import datetime, timedelta

import msgspec
import pytest

from exporter.config import Instance
from exporter.model.jobs import Finding, HookOutcome, Pause, hook_failure
from exporter.model.lifecycle import Known, Transition, TransitionRecord
from exporter.model.vm import VirtualMachine
from tests.builders import FREEZE_ID, REBOOT_ID, body, raw_event, started
from tests.lives import Life
from tests.watch_fixture import TIMEOUT, WatchFixture

KEY = FREEZE_ID.lower()
STARTED = {"EventStatus": "Started", "NotBefore": ""}


def test_hooks_are_written_down_with_what_happened() -> None:
    """The jobs go into the transaction of the transition, and then they are run."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    assert [(job.hook, job.key, job.transition) for job in fixture.memory.jobs] == [
        ("a", KEY, Transition.SCHEDULED)
    ]
    assert fixture.hooks.woken == 1
    fixture.poll()
    assert fixture.hooks.woken == 1


def test_a_name_that_is_not_meant() -> None:
    """A VM that turns out not to be affected runs nothing for what it saw before."""
    fixture = WatchFixture()
    fixture.imds.facts = TIMEOUT
    fixture.poll(body(raw_event()))
    fixture.imds.facts = VirtualMachine(name="other")
    fixture.poll(after=60)
    assert fixture.memory.jobs == []


def test_an_approval_becomes_a_transition() -> None:
    """An accepted approval is recorded with its time, reported, counted, and passed to the hooks; once."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    at = fixture.clock.now() + timedelta(seconds=0.5)
    fixture.find(Finding(KEY, Transition.APPROVED, at))
    (tracked,) = fixture.watch.known.current.values()
    assert [(r.transition, r.at) for r in tracked.transitions][1:] == [(Transition.APPROVED, at)]
    assert fixture.counted("approved") == 1
    assert [message.transition for message in fixture.memory.messages][1:] == [Transition.APPROVED]
    assert [job.transition for job in fixture.memory.jobs][1:] == [Transition.APPROVED]
    assert fixture.watch.snapshot.current == (tracked,)
    fixture.find(Finding(KEY, Transition.APPROVED, at))
    assert fixture.counted("approved") == 1


def test_a_pause_goes_with_the_life_and_its_end() -> None:
    """Pauses during an outage of IMDS are added up, without a transition, and reported at the end."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(EventStatus="Started", NotBefore="")))
    fixture.find(Pause((KEY, "unknown"), 4.0), Pause((KEY,), 0.5), Pause(("unknown",), 9.0))
    (tracked,) = fixture.watch.snapshot.current
    assert tracked.paused_seconds == 4.5
    assert len(tracked.transitions) == 1
    assert len(fixture.memory.steps) == 3
    fixture.poll(body(incarnation=2))
    assert [message.event.paused_seconds for message in fixture.memory.messages] == [None, 4.5]
    fixture.find(Pause((KEY,), 0.5))
    assert fixture.watch.snapshot.past[0].paused_seconds == 5.0


def test_an_approval_of_what_is_gone() -> None:
    """An event that has ended by then keeps its end; an unknown one is ignored."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(), incarnation=1))
    fixture.poll(body(incarnation=2))
    at = fixture.clock.now()
    fixture.find(Finding("x", Transition.APPROVED, at), Finding(KEY, Transition.APPROVED, at))
    (tracked,) = fixture.watch.known.past.values()
    assert tracked.has(Transition.APPROVED)
    assert tracked.outcome is Transition.CANCELLED
    assert fixture.watch.snapshot.past == (tracked,)


def test_a_finding_is_recorded_while_imds_fails() -> None:
    """Findings of workers become transitions immediately, whatever IMDS does."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    fixture.poll(TIMEOUT)
    fixture.find(Finding(KEY, Transition.APPROVED, fixture.clock.now()))
    assert fixture.counted("approved") == 1
    assert not fixture.watch.snapshot.up


def test_what_was_left_waits_for_the_name() -> None:
    """A finding of the process before is not recorded under no name; one that brings a name is at once."""
    before = WatchFixture()
    before.poll(body(raw_event()))
    fixture = WatchFixture(before.watch.known)
    at = fixture.clock.now()
    fixture.find(Finding(KEY, Transition.APPROVED, at))
    assert fixture.memory.steps == []
    fixture.find(failure(at, instance="WestNO_0"))
    assert [message.transition for message in fixture.memory.messages] == [Transition.HOOK_FAILED]
    fixture.poll(body(raw_event()))
    assert [message.transition for message in fixture.memory.messages][1:] == [Transition.APPROVED]
    assert [job.transition for job in fixture.memory.jobs] == [Transition.APPROVED]


def failure(at: datetime, run: int = 1, *, instance: str | None = None) -> Finding:
    """Return the finding that the hook a failed."""
    found = hook_failure(KEY, ("a", run), HookOutcome.FAILED, at, reason="exit status 3")
    return msgspec.structs.replace(found, instance=instance)


def test_a_failed_hook_becomes_a_transition() -> None:
    """It is recorded, reported with the reason, counted and traced, once for each run."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    at = fixture.clock.now()
    fixture.find(failure(at))
    (tracked,) = fixture.watch.known.current.values()
    assert tracked.transitions[1:] == (TransitionRecord(Transition.HOOK_FAILED, at, "a", 1),)
    message = fixture.memory.messages[-1]
    assert (message.transition, message.sequence) == (Transition.HOOK_FAILED, 2)
    assert message.detail == "hook a failed: exit status 3"
    assert fixture.counted("hook_failed") == 1
    assert fixture.traced.occurrences[-1][0].transition is Transition.HOOK_FAILED
    fixture.find(failure(at))
    assert fixture.counted("hook_failed") == 1
    fixture.poll(body(raw_event(EventStatus="Started", NotBefore=""), incarnation=2))
    fixture.find(failure(at, run=3))
    assert fixture.counted("hook_failed") == 2


def test_a_hook_that_fails_for_a_failure() -> None:
    """A hook for `hook_failed` that fails makes no further one, or it would run without end."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    at = fixture.clock.now()
    fixture.find(failure(at), failure(at, run=2))
    assert fixture.counted("hook_failed") == 1


def test_the_approver_looks_when_something_changed() -> None:
    """It is woken by every new document, and by nothing else."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    woken = fixture.approvals.woken
    fixture.poll()
    assert fixture.approvals.woken == woken
    fixture.poll(body(incarnation=5))
    assert fixture.approvals.woken == woken + 1


def test_pauses_are_watched_for_while_an_event_is_started() -> None:
    """Only for events that are known to hit this VM."""
    fixture = WatchFixture()
    seen = []
    for number, events in enumerate(
        [
            [],
            [raw_event()],
            [raw_event(EventStatus="Started")],
            [],
            [raw_event(EventId=REBOOT_ID, EventStatus="Started", Resources=["other"])],
        ],
        start=1,
    ):
        fixture.poll(body(*events, incarnation=number))
        seen.append(fixture.pauses.active)
    assert seen == [False, False, True, False, False]


def nameless(known: Known | None = None) -> WatchFixture:
    """Return a watch whose IMDS does not return the name."""
    fixture = WatchFixture(known)
    fixture.imds.facts = TIMEOUT
    fixture.poll()
    return fixture


def learn(fixture: WatchFixture) -> list[tuple[str, str, int]]:
    """Make the name known; return event, transition and number of each hook's run that is then due."""
    assert fixture.memory.jobs == []
    fixture.imds.facts = VirtualMachine(name="WestNO_0")
    fixture.poll(after=60)
    assert fixture.watch.snapshot.instance == "WestNO_0"
    return [(job.event.id, job.transition, job.sequence) for job in fixture.memory.jobs]


def test_hooks_of_what_was_missed() -> None:
    """Hooks run for what happened last to each event of this VM that is still there."""
    fixture = nameless()
    a, b, gone, other = (raw_event(EventId=name) for name in ("a", "b", "gone", "other"))
    other["Resources"] = ["WestNO_7"]
    fixture.poll(body(a, b, gone, other, incarnation=1))
    fixture.poll(body(a | STARTED, b, other, incarnation=2))
    assert learn(fixture) == [("a", "started", 2), ("b", "scheduled", 1)]
    assert fixture.hooks.woken == 1
    fixture.configure()
    fixture.poll()
    assert len(fixture.memory.jobs) == 2


def test_an_update_hides_nothing() -> None:
    """Hooks for an announcement run although it was updated since; of several updates the last counts."""
    fixture = nameless()
    for incarnation, seconds in enumerate((5, 6, 7), start=1):
        fixture.poll(body(raw_event(EventId="a", DurationInSeconds=seconds), incarnation=incarnation))
    assert learn(fixture) == [("a", "scheduled", 1), ("a", "updated", 3)]


def test_the_end_of_what_was_known_before() -> None:
    """A VM that restarts in the midst of an event recovers from it, even if its name is known only later."""
    life = Life()
    life.feed(started(event_id=REBOOT_ID))
    fixture = nameless(life.known)
    assert learn(fixture) == [(REBOOT_ID, "completed", 2)]


@pytest.mark.parametrize("configured", [True, False])
def test_pauses_are_watched_for_from_then_on(configured: bool) -> None:
    """An event that is Started has pauses watched for as soon as it is known to hit this VM."""
    fixture = nameless()
    fixture.poll(body(raw_event(**STARTED)))
    assert not fixture.pauses.active
    if configured:
        fixture.configure(instance=Instance(name="WestNO_0"))
    else:
        learn(fixture)
    assert fixture.pauses.active


def test_pauses_of_another_vm_are_not_watched_for() -> None:
    """A reload that changes the name ends the watch for pauses if the event affects another VM."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(**STARTED)))
    assert fixture.pauses.active
    fixture.configure(instance=Instance(name="WestNO_7"))
    fixture.poll()
    assert not fixture.pauses.active
