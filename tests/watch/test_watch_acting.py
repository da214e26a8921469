"""Tests of `exporter.watch`: what it hands on to hooks, approvals and the watcher for pauses."""

from datetime import timedelta

from exporter.errors import ImdsError, PollOutcome
from exporter.imds import InstanceFacts
from exporter.model.lifecycle import Transition
from exporter.state.approvals import Approval
from tests.builders import FREEZE_ID, REBOOT_ID, body, raw_event
from tests.house import House

KEY = FREEZE_ID.lower()
NO_NAME = ImdsError(PollOutcome.TIMEOUT, "no answer")


def test_hooks_are_written_down_with_what_happened() -> None:
    """The jobs go into the transaction of the transition, and then they are run."""
    house = House()
    house.poll(body(raw_event()))
    assert [(job.hook, job.key, job.transition) for job in house.memory.jobs] == [
        ("a", KEY, Transition.SCHEDULED)
    ]
    assert house.hooks.woken == 1
    house.poll()
    assert house.hooks.woken == 1


def test_hooks_wait_for_the_name() -> None:
    """Until this VM knows its name none runs; then those for the last transition of what is pending do."""
    house = House()
    house.imds.facts = NO_NAME
    house.poll(body(raw_event(), raw_event(EventId=REBOOT_ID, EventType="Reboot"), incarnation=1))
    house.poll(body(raw_event(EventStatus="Started", NotBefore=""), incarnation=2))
    assert house.memory.jobs == []
    house.imds.facts = InstanceFacts(name="WestNO_0")
    house.poll(after=60)
    assert [(job.key, job.transition, job.instance) for job in house.memory.jobs] == [
        (KEY, Transition.STARTED, "WestNO_0")
    ]
    assert house.hooks.woken == 1
    house.configure()
    house.poll()
    assert len(house.memory.jobs) == 1


def test_a_name_that_is_not_meant() -> None:
    """A VM that turns out not to be affected runs nothing for what it saw before."""
    house = House()
    house.imds.facts = NO_NAME
    house.poll(body(raw_event()))
    house.imds.facts = InstanceFacts(name="other")
    house.poll(after=60)
    assert house.memory.jobs == []


def test_an_approval_becomes_a_transition() -> None:
    """What Azure took is recorded with its time, told, counted, and handed to the hooks; once."""
    house = House()
    house.poll(body(raw_event()))
    at = house.clock.now() + timedelta(seconds=0.5)
    approval = Approval(KEY, FREEZE_ID, "all", at, at)
    house.approvals.sent = [approval]
    house.poll()
    (tracked,) = house.watch.known.current.values()
    assert [(r.transition, r.at) for r in tracked.transitions][1:] == [(Transition.APPROVED, at)]
    assert house.counted("approved") == 1
    assert [message.transition for message in house.memory.messages][1:] == [Transition.APPROVED]
    assert [job.transition for job in house.memory.jobs][1:] == [Transition.APPROVED]
    assert house.watch.snapshot.current == (tracked,)
    house.approvals.sent = [approval]
    house.poll()
    assert house.counted("approved") == 1


def test_an_approval_of_what_is_gone() -> None:
    """An event that has ended by then keeps its end; one that nobody knows is left alone."""
    house = House()
    house.poll(body(raw_event(), incarnation=1))
    house.poll(body(incarnation=2))
    at = house.clock.now()
    house.approvals.sent = [Approval(KEY, FREEZE_ID, "all", at, at), Approval("x", "x", "all", at, at)]
    house.poll()
    (tracked,) = house.watch.known.past.values()
    assert tracked.has(Transition.APPROVED)
    assert tracked.outcome is Transition.CANCELLED
    assert house.watch.snapshot.past == (tracked,)


def test_the_approver_looks_when_something_changed() -> None:
    """It is woken by every new document, and by nothing else."""
    house = House()
    house.poll(body(raw_event()))
    woken = house.approvals.woken
    house.poll()
    assert house.approvals.woken == woken
    house.poll(body(incarnation=5))
    assert house.approvals.woken == woken + 1


def test_pauses_are_watched_for_while_an_event_is_started() -> None:
    """Only for events that are known to hit this VM."""
    house = House()
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
        house.poll(body(*events, incarnation=number))
        seen.append(house.pauses.active)
    assert seen == [False, False, True, False, False]
