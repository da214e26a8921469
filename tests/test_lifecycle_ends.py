"""Tests of `exporter.lifecycle`: how events end, return, and are forgotten."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from exporter.lifecycle import (
    HISTORY,
    Transition,
)
from tests.builders import FREEZE_ID, scheduled, started
from tests.lives import Life, at, happened, path

SCHEDULED, STARTED, UPDATED = Transition.SCHEDULED, Transition.STARTED, Transition.UPDATED
COMPLETED, CANCELLED, VANISHED = Transition.COMPLETED, Transition.CANCELLED, Transition.VANISHED


def test_completed() -> None:
    """An event that goes after Started is complete, and the time from started to gone is its impact."""
    life = Life()
    life.feed(scheduled())
    life.feed(started())
    step = life.feed(after=timedelta(seconds=7))
    assert happened(step) == [(FREEZE_ID, COMPLETED)]
    assert step.occurrences[0].impact == timedelta(seconds=7)
    assert life.current == []
    assert (life.past[0].ended, life.past[0].outcome) == (at(9), COMPLETED)
    assert step.changed == (life.past[0],)


@dataclass(frozen=True)
class Missed:
    """How an event's start and end were not watched: what the two documents were fed with."""

    start: dict[str, Any]
    end: dict[str, Any]


@pytest.mark.parametrize(
    "missed",
    [
        Missed(start={}, end={"unbroken": False}),
        Missed(start={}, end={"unbroken": False, "incarnation": 9}),
        Missed(start={}, end={"unbroken": False, "after": timedelta(days=3)}),
        Missed(start={"unbroken": False, "after": timedelta(seconds=31)}, end={}),
    ],
)
def test_completed_without_impact(missed: Missed) -> None:
    """Gone after Started is complete even if a moment was missed; how long it lasted is then unknown."""
    life = Life()
    life.feed(scheduled())
    life.feed(started(), **missed.start)
    life.restart()
    step = life.feed(**missed.end)
    assert happened(step) == [(FREEZE_ID, COMPLETED)]
    assert step.occurrences[0].impact is None


def test_impact_after_a_start_between_failed_polls() -> None:
    """A VM that freezes misses polls: a start that is seen seconds late still gives an impact."""
    life = Life()
    life.feed(scheduled())
    life.feed(started(), unbroken=False, after=timedelta(seconds=10))
    assert life.feed().occurrences[0].impact == timedelta(seconds=1)


def test_impact_of_an_event_that_is_found_started() -> None:
    """An event that the very first document lists as Started has its impact counted from then on."""
    life = Life()
    life.feed(started(), unbroken=False)
    assert life.feed(after=timedelta(seconds=9)).occurrences[0].impact == timedelta(seconds=9)


def test_impact_is_never_negative() -> None:
    """A clock that is set back while an event is Started gives no negative time."""
    life = Life()
    life.feed(started())
    assert life.feed(after=timedelta(hours=-1)).occurrences[0].impact == timedelta(0)


@pytest.mark.parametrize(
    ("gone", "outcome"),
    [
        ({}, CANCELLED),
        ({"unbroken": False}, CANCELLED),
        ({"after": timedelta(hours=24) - timedelta(microseconds=1)}, CANCELLED),
        ({"after": timedelta(hours=24)}, VANISHED),
        ({"after": timedelta(hours=-24)}, VANISHED),
        ({"incarnation": 2 + 1}, VANISHED),
        ({"incarnation": 1}, VANISHED),
        ({"incarnation": 0}, VANISHED),
    ],
    ids=["next", "next, broken", "just in time", "too late", "too early", "jump", "same", "fall"],
)
def test_gone_while_scheduled(gone: dict[str, Any], outcome: Transition) -> None:
    """Only the very next incarnation within 24 hours proves that it was cancelled; else nobody knows."""
    life = Life()
    life.feed(scheduled(), incarnation=1)
    life.restart()
    step = life.feed(**gone)
    assert happened(step) == [(FREEZE_ID, outcome)]
    assert (life.past[0].ended, life.past[0].outcome) == (life.now, outcome)


def test_the_switch_off_counts_from_the_last_success() -> None:
    """An event that is Scheduled for days is cancelled all the same, as long as documents kept coming."""
    life = Life()
    for _ in range(5):
        life.feed(scheduled(), after=timedelta(hours=20), incarnation=1)
    assert happened(life.feed()) == [(FREEZE_ID, CANCELLED)]


def test_the_first_document_of_all_ends_nothing() -> None:
    """With nothing known, an empty document is just that, and its incarnation is worth writing down."""
    step = Life().feed(incarnation=0)
    assert (step.occurrences, step.changed, step.writes) == ((), (), True)


def test_events_are_kept_oldest_first() -> None:
    """The order of what is known is that of its coming, and of its going."""
    a, b, c = (scheduled(event_id=name) for name in "abc")
    life = Life()
    life.feed(b, a)
    life.feed(c, a, b)
    assert list(life.known.current) == ["b", "a", "c"]
    life.feed(a)
    life.feed()
    assert list(life.known.past) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("last", "outcome"),
    [(scheduled(), VANISHED), (started(), COMPLETED)],
)
def test_a_gone_event_comes_back(last: Any, outcome: Transition) -> None:
    """An event that was thought gone lives again, and none of its transitions is repeated."""
    life = Life()
    life.feed(last)
    life.feed(incarnation=9)
    step = life.feed(last)
    assert (step.occurrences, life.past) == ((), [])
    assert (life.current[0].ended, life.current[0].outcome, life.current[0].first_seen) == (None, None, at(1))
    assert step.changed == (life.current[0],)
    again = life.feed(incarnation=20)
    assert again.occurrences == ()
    assert (life.past[0].ended, life.past[0].outcome) == (at(4), outcome)


def test_a_gone_event_comes_back_changed_and_goes_otherwise() -> None:
    """What is new after an event's return is reported: a change, its start, and how it ends this time."""
    life = Life()
    life.feed(scheduled())
    life.feed()
    life.feed(scheduled(duration_seconds=9))
    life.feed(started())
    life.feed()
    assert path(life.past[0]) == [SCHEDULED, CANCELLED, UPDATED, STARTED, COMPLETED]
    assert life.past[0].outcome is COMPLETED


def test_history_is_forgotten_after_90_days() -> None:
    """A gone event is remembered for 90 days from its end, and then named for deletion once."""
    life = Life()
    life.feed(scheduled())
    life.feed()
    kept = life.feed(after=HISTORY)
    assert (kept.forgotten, len(life.past)) == ((), 1)
    step = life.feed(incarnation=life.incarnation)
    assert (step.forgotten, step.writes, life.past) == ((FREEZE_ID.lower(),), True, [])
    assert life.feed().forgotten == ()


def test_an_event_that_returns_is_not_forgotten() -> None:
    """An old event that is listed again is current, and its past does not count against it."""
    life = Life()
    life.feed(scheduled())
    life.feed()
    step = life.feed(scheduled(), after=HISTORY * 2)
    assert (step.forgotten, step.occurrences, len(life.current)) == ((), (), 1)
