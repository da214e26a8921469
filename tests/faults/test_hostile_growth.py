"""Series, memory and the rows of the state are bounded, however much Azure sends."""

import re
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

from prometheus_client import generate_latest

from exporter import config
from exporter.config import Hook, Route, Rule
from exporter.errors import ImdsError, PollOutcome
from exporter.health import Health
from exporter.model.advance import MOST_PAST, MOST_TRANSITIONS, advance
from exporter.model.events import SCHEDULED, STARTED
from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import Known
from exporter.model.listing import MOST_IDS
from exporter.model.messages import Message
from exporter.notifications.planning import Plan
from exporter.state import Store
from tests.approval.support import ApproverFixture
from tests.builders import body, document, raw_event, scheduled
from tests.clocks import NOW, HandClock
from tests.watch_fixture import WatchFixture

NAMELESS = ImdsError(PollOutcome.HTTP_ERROR, "no")


def test_counters_keep_few_unknown_types() -> None:
    """The first twenty keep their own series; all others share one, and everything is counted."""
    fixture = WatchFixture(metrics=config.Metrics(events="all"))
    fixture.poll()
    for turn in range(3):
        found = [raw_event(EventId=f"{turn}-{n}", EventType=f"Type{turn}-{n}") for n in range(200)]
        fixture.poll(body(*found, incarnation=turn + 1))
    fixture.poll(body(incarnation=10))
    assert fixture.counted("scheduled", "Type0-0") == 1
    assert fixture.counted("scheduled", "Type2-0") is None
    assert fixture.counted("scheduled", "other") == 580
    types = set(re.findall(rb'event_type="(Type[^"]*)"', generate_latest(fixture.registry)))
    assert len(types) == 20


def test_history_has_an_end() -> None:
    """Ids that are new at every poll displace the oldest, which are deleted from the state, too."""
    known, forgotten = Known(), 0
    for incarnation in range(5):
        found = [scheduled(event_id=f"{incarnation}-{n}") for n in range(MOST_PAST // 2)]
        step = advance(
            known, document(*found, incarnation=incarnation), NOW, instance="WestNO_0", watching=True
        )
        known, forgotten = step.known, forgotten + len(step.forgotten)
    assert len(known.past) == MOST_PAST
    assert next(iter(known.past)) == "2-0"
    assert forgotten == MOST_PAST


def test_changes_of_one_event_have_an_end() -> None:
    """Content that differs every minute is reported a thousand times; start and end are still reported."""
    known = Known()
    told: list[Message] = []
    for number in range(MOST_TRANSITIONS + 200):
        found = document(scheduled(duration_seconds=number), incarnation=number)
        now = NOW + timedelta(minutes=number)
        step = advance(known, found, now, instance="WestNO_0", watching=True)
        known = step.known
        told += Plan([Route(("a",))]).compose(step.occurrences, instance="WestNO_0", now=now)
    (tracked,) = known.current.values()
    assert len(tracked.transitions) == len(told) == MOST_TRANSITIONS
    assert tracked.event.duration_seconds == MOST_TRANSITIONS + 199
    for found in (document(scheduled(event_status=STARTED), incarnation=9001), document(incarnation=9002)):
        step = advance(known, found, NOW, instance="WestNO_0", watching=True)
        known = step.known
        told += Plan([Route(("a",))]).compose(step.occurrences, instance="WestNO_0", now=NOW)
    assert [message.transition.value for message in told[-2:]] == ["started", "completed"]
    assert len({message.sequence for message in told}) == len(told)


def test_the_ids_of_one_event_have_an_end() -> None:
    """An event that is renewed, and reset, at every poll counts as another one after a while."""
    known = Known()
    for number in range(4 * MOST_IDS):
        status = STARTED if number % 2 else SCHEDULED
        found = scheduled(event_id=str((number + 1) // 2), event_status=status)
        known = advance(
            known, document(found, incarnation=number), NOW, instance="WestNO_0", watching=True
        ).known
    lives = (*known.current.values(), *known.past.values())
    assert max(len(tracked.ids) for tracked in lives) == MOST_IDS


def test_approvals_are_asked_for_without_the_disk(tmp_path: Path) -> None:
    """While a disk is slow the page, the API and decisions about thousands of events do not wait for it."""
    clock = HandClock()
    store = Store.open(tmp_path, health=Health(clock), clock=clock)
    store.approvals.decide("a", "A", "rule", NOW)
    store.approvals.note_sent("a", NOW)
    with store._journal.transaction():
        # Whoever waits for a transaction now waits for the end of this block.
        found = store.approvals.find("a")
        assert store.approvals.known() == [found]
    store.close()
    again = Store.open(tmp_path, health=Health(clock), clock=clock)
    assert again.approvals.known() == [found]
    again.close()


def calls_of_a_look(folder: Path, events: int) -> int:
    """Approve some events, each with a hook that succeeded, and return the number of calls that it takes."""
    fixture = ApproverFixture(folder)
    hooks = (Hook("drain", ("true",)),)
    fixture.change(hooks, rules=(Rule("all", "approve", require_hooks=("drain",)),), max_per_hour=1)
    ids = [f"{number}" for number in range(events)]
    fixture.list(*ids)
    fixture.queue_hooks(hooks, fixture.show(*(scheduled(event_id=one) for one in ids)).hookable)
    for one in ids:
        fixture.end_hook(HookOutcome.SUCCEEDED, one)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        fixture.approver.look()
    finally:
        sys.setprofile(None)
    assert Counter(fixture.states) == {"approved": 1, "limited": events - 1}
    fixture.store.close()
    return calls


def test_approvals_take_as_long_as_there_are_events(tmp_path: Path) -> None:
    """The runs of hooks for other events cost a decision nothing."""
    few, many = calls_of_a_look(tmp_path / "few", 50), calls_of_a_look(tmp_path / "many", 500)
    assert many < 11 * few
