"""Memory and the rows of the state are bounded, however much Azure sends."""

from datetime import timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from exporter.config import Route
from exporter.health import Health
from exporter.model.advance import MOST_IDS, MOST_PAST_BYTES, MOST_TRANSITIONS, advance
from exporter.model.documents import MOST_EVENTS, decode_document
from exporter.model.events import SCHEDULED, STARTED, ScheduledEvent
from exporter.model.lifecycle import Transition, WatchState, weight
from exporter.model.messages import Message
from exporter.model.views import Snapshot
from exporter.outputs.notifications.outbox import Outbox, job_of
from exporter.outputs.notifications.planning import Plan
from exporter.state.facts import MOST_BYTES
from exporter.state.store import Store
from tests.builders import WEB_VM, scheduled
from tests.clocks import NOW, HandClock
from tests.faults.documents import NAMES, Listed, buried, largest, renewed, swinging, wide
from tests.lives import Story, happened
from tests.memory import traced


def test_history_has_an_end() -> None:
    """Ids that are new at every poll displace the oldest, which are deleted from the state, too."""
    story, forgotten = Story(), 0
    for turn in range(12):
        found = [scheduled(event_id=f"{turn}-{n}") for n in range(MOST_EVENTS)]
        forgotten += len(story.feed(*found).forgotten)
    assert MOST_PAST_BYTES * 0.99 < sum(life.weight for life in story.past) <= MOST_PAST_BYTES
    every = [f"{turn}-{n}" for turn in range(11) for n in range(MOST_EVENTS)]
    assert list(story.state.past) == every[-len(story.past) :]
    assert forgotten + len(story.past) == len(every)


@pytest.mark.parametrize("listed", [swinging, renewed, buried])
def test_what_is_known_of_current_events_has_an_end(listed: Listed) -> None:
    """Beyond 2 MiB only what the newest document has is added."""
    known, most = WatchState(), 0
    for number in range(12):
        document = decode_document(largest(listed, number))
        now = NOW + timedelta(seconds=number)
        known = advance(known, document, now, instance="WestNO_0", watching=True).state
        most = max(most, sum(life.weight for life in known.current.values()))
    assert 2 * 2**20 < most < 5 * 2**20


def test_changes_of_updates_take_no_room_from_others() -> None:
    """An event whose many VMs change for hours stops no update of another, and stays in the history."""
    story, vms = Story(), [f"aks-userpool-12345678-vmss_{number}" for number in range(300)]
    other = scheduled(event_id="other")
    for number in range(600):
        changing = scheduled(event_id="changing", resources=("WestNO_0", *vms[number % 100 :]))
        step = story.feed(changing, other, after=timedelta(minutes=2))
        assert number == 0 or ("changing", Transition.UPDATED) in happened(step)
    assert story.state.room >= 0
    changes = [one.changes for one in story.state.current["changing"].transitions[1:]]
    assert changes[0] != () == changes[-1]
    step = story.feed(replace(other, duration_seconds=99), after=timedelta(minutes=2))
    assert ("other", Transition.UPDATED) in happened(step)
    assert [life.key for life in story.past] == ["changing"]
    assert all(one.changes == () for one in story.past[0].transitions)


def test_a_restart_takes_as_little_memory(tmp_path: Path) -> None:
    """What is read from the state shares its texts, as it did before: short names would take tenfold."""
    clock = HandClock()
    store, story = Store.open(tmp_path, health=Health(clock), clock=clock), Story()
    outbox, plan = store.jobs("notifications", Outbox), Plan([Route(("a", "b"))])
    for number in range(4):
        step = story.feed(*decode_document(largest(wide, number)).events)
        messages = plan.compose(step.occurrences, instance="WestNO_0", now=NOW)
        store.record(step, map(job_of, messages))
    assert outbox.size > 2**21
    store.close()
    again, peak = traced(lambda: Store.open(tmp_path, health=Health(clock), clock=clock))
    assert again.load().current == story.state.current
    again.close()
    assert peak < 16 * 2**20


def test_facts_about_large_events_have_an_end(tmp_path: Path) -> None:
    """Of events with thousands of names fewer facts are kept, also of what made room: the newest ones."""
    clock = HandClock()
    store = Store.open(tmp_path, health=Health(clock), clock=clock)
    store.facts.set_readers(["stuck"])
    story = Story()
    for number in range(60):
        store.record(story.feed(scheduled(event_id=str(number), resources=tuple(NAMES * 8))))
    unread = [fact for _, fact in store.facts.unread("stuck")]
    for kept, newest in (
        (unread, story.now),
        (store.facts.take_displaced("stuck"), unread[0].at),
    ):
        assert 0 < sum(weight(msgspec.json.encode(fact)) for fact in kept) <= MOST_BYTES
        assert kept[-1].at + timedelta(seconds=1) >= newest
    store.close()


def test_a_storm_for_three_targets_has_room(tmp_path: Path) -> None:
    """No message about a thousand new events is dropped, with all that is known about the VM."""
    # As long as the kernel's id of a boot, and times with microseconds.
    clock = HandClock(NOW.replace(microsecond=123456))
    clock.boot = str(UUID(int=1))
    store = Store.open(tmp_path, health=Health(clock), clock=clock)
    outbox = store.jobs("notifications", Outbox)
    found = [scheduled(event_id=str(UUID(int=number))) for number in range(1000)]
    story = Story()
    story.now = clock.now()
    step = story.feed(*found)
    plan = Plan([Route(("mail", "chat", "pager"))])
    messages = plan.compose(step.occurrences, instance="WestNO_0", now=clock.now(), seen=Snapshot(vm=WEB_VM))
    store.record(step, map(job_of, messages))
    assert outbox.take_dropped() == {}
    assert outbox.counts() == {"mail": 1000, "chat": 1000, "pager": 1000}
    store.close()


def test_changes_of_one_event_have_an_end() -> None:
    """Content that differs every minute is reported a thousand times; start and end are still reported."""
    story, told = Story(), list[Message]()

    def show(*events: ScheduledEvent) -> None:
        step = story.feed(*events, after=timedelta(minutes=1))
        told.extend(Plan([Route(("a",))]).compose(step.occurrences, instance="WestNO_0", now=story.now))

    for number in range(MOST_TRANSITIONS + 200):
        show(scheduled(duration_seconds=number))
    (life,) = story.current
    assert len(life.transitions) == len(told) == MOST_TRANSITIONS
    assert life.event.duration_seconds == MOST_TRANSITIONS + 199
    show(scheduled(event_status=STARTED))
    show()
    assert [message.transition.value for message in told[-2:]] == ["started", "completed"]
    assert len({message.sequence for message in told}) == len(told)


def test_the_ids_of_one_event_have_an_end() -> None:
    """An event that is renewed, and reset, at every poll counts as another one after a while."""
    story = Story()
    for number in range(4 * MOST_IDS):
        status = STARTED if number % 2 else SCHEDULED
        story.feed(scheduled(event_id=str((number + 1) // 2), event_status=status))
    assert max(len(life.ids) for life in (*story.current, *story.past)) == MOST_IDS
