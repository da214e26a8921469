"""Tests of `exporter.model.advance`: how lives end, how events return, and are forgotten."""

from datetime import timedelta
from typing import Any

import pytest

from exporter.model.advance import advance
from exporter.model.documents import Defect, Document
from exporter.model.lifecycle import HISTORY, Transition
from tests.builders import FREEZE_ID, scheduled, started
from tests.lives import Life, at, happened

ADVISED, SCHEDULED = Transition.ADVISED, Transition.SCHEDULED
STARTED, UPDATED = Transition.STARTED, Transition.UPDATED
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


def test_a_start_is_watched_within_30_seconds() -> None:
    """A VM that freezes misses polls: a start that is seen seconds late still counts."""
    life = Life()
    life.feed(scheduled())
    life.feed(started(), after=timedelta(seconds=30))
    assert life.current[0].started == at(31)
    assert life.feed().occurrences[0].impact == timedelta(seconds=1)


@pytest.mark.parametrize(("known", "late"), [(True, 31), (True, 86_400), (False, 0)])
def test_a_start_that_was_not_watched(known: bool, late: float) -> None:
    """What was already under way when it was first seen has no start and no impact, and completes."""
    life = Life()
    if known:
        life.feed(scheduled())
    life.feed(started(), after=timedelta(seconds=late))
    assert (life.current[0].started, life.current[0].since(STARTED)) == (None, at(1 + late if known else 0))
    step = life.feed()
    assert happened(step) == [(FREEZE_ID, COMPLETED)]
    assert step.occurrences[0].impact is None
    assert life.past[0].impact_seconds is None


@pytest.mark.parametrize("end", [{}, {"incarnation": 9}, {"after": timedelta(days=3)}])
def test_an_end_that_was_not_watched(end: dict[str, Any]) -> None:
    """An event that goes while the exporter is down completes; how long it lasted is unknown."""
    life = Life()
    life.feed(scheduled())
    life.feed(started())
    life.restart()
    step = life.feed(**end)
    assert happened(step) == [(FREEZE_ID, COMPLETED)]
    assert step.occurrences[0].impact is None


def test_impact_is_never_negative() -> None:
    """A clock that is set back while an event is Started gives no negative time."""
    life = Life()
    life.feed(scheduled())
    life.feed(started())
    assert life.feed(after=timedelta(hours=-1)).occurrences[0].impact == timedelta(0)


@pytest.mark.parametrize(
    ("gone", "outcome"),
    [
        ({}, CANCELLED),
        ({"after": timedelta(hours=24) - timedelta(microseconds=1)}, CANCELLED),
        ({"after": timedelta(hours=24)}, VANISHED),
        ({"after": timedelta(hours=-24)}, VANISHED),
        ({"incarnation": 2 + 1}, VANISHED),
        ({"incarnation": 1}, VANISHED),
        ({"incarnation": 0}, VANISHED),
    ],
    ids=["next", "just in time", "too late", "too early", "jump", "same", "fall"],
)
def test_gone_while_scheduled(gone: dict[str, Any], outcome: Transition) -> None:
    """Only the very next incarnation within 24 hours proves that it was cancelled; else nobody knows."""
    life = Life()
    life.feed(scheduled(), incarnation=1)
    life.restart()
    step = life.feed(**gone)
    assert happened(step) == [(FREEZE_ID, outcome)]
    assert (life.past[0].ended, life.past[0].outcome) == (life.now, outcome)


def test_no_cancellation_of_what_could_not_be_read() -> None:
    """An event that the document before listed, and nobody could read, may have started there."""
    life = Life()
    life.feed(scheduled())
    life.feed(defects=(Defect(FREEZE_ID, "odd", lost=True),))
    life.restart()
    assert happened(life.feed()) == [(FREEZE_ID, VANISHED)]


@pytest.mark.parametrize("missing", ["before", "after"])
def test_no_cancellation_without_an_incarnation(missing: str) -> None:
    """Where either document has no number that can be read, nothing shows that they follow one another."""
    life = Life()
    life.feed(scheduled())
    numbers = (None, life.incarnation + 1) if missing == "before" else (life.incarnation, None)
    for number, events in zip(numbers, ((scheduled(),), ()), strict=True):
        document = Document(number, events)
        step = advance(life.known, document, life.now, instance=life.instance, watching=True)
        life.known = step.known
    assert happened(step) == [(FREEZE_ID, VANISHED)]


def test_endings_are_told_first() -> None:
    """The last word about one document is what is pending, not the good news."""
    a, b, c, d = (scheduled(event_id=name) for name in "abcd")
    life = Life()
    life.feed(d, b)
    step = life.feed(
        scheduled(event_id="e", event_status="Advisory"), c, scheduled(event_id="d", duration_seconds=9)
    )
    assert happened(step) == [("b", CANCELLED), ("d", UPDATED), ("c", SCHEDULED), ("e", ADVISED)] or (
        happened(step) == [("b", CANCELLED), ("d", UPDATED), ("e", ADVISED), ("c", SCHEDULED)]
    )
    step = life.feed(a, started(event_id="c"))
    assert [transition for _, transition in happened(step)] == [CANCELLED, CANCELLED, STARTED, SCHEDULED]


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


@pytest.mark.parametrize("last", [scheduled(), started()])
def test_a_gone_event_that_comes_back_begins_a_new_life(last: Any) -> None:
    """It is told anew, keeps its ids, and so its trace, and the life before stays as it was."""
    life = Life()
    life.feed(last)
    life.feed(incarnation=9)
    (before,) = life.past
    step = life.feed(last)
    assert happened(step) == [(FREEZE_ID, SCHEDULED if last == scheduled() else STARTED)]
    assert (life.current[0].first_seen, life.current[0].ids) == (at(3), before.ids)
    assert (life.current[0].life, life.current[0].key != before.key) == (2, True)
    assert [o.tracked.key for o in step.hookable] == [o.tracked.key for o in step.occurrences]
    assert life.past == [before]
    again = life.feed()
    assert happened(again)[0][1] in (CANCELLED, COMPLETED)
    assert [one.life for one in life.past] == [1, 2]
    life.feed(last)
    assert life.current[0].life == 3


def test_a_successor_that_comes_back_stays_in_its_trace() -> None:
    """An event that returns under its newest id keeps the first one."""
    life = Life()
    life.feed(scheduled(event_id="A1"))
    life.feed(started(event_id="A2"))
    life.feed()
    life.feed(started(event_id="A2"))
    assert (life.current[0].ids, life.current[0].life) == (("A1", "A2"), 2)


def test_ids_like_keys_are_kept_apart() -> None:
    """An id that is written like the key of another event's second life takes nothing from it."""
    life = Life()
    life.feed(scheduled(event_id="a#2"), scheduled(event_id="a"))
    life.feed(scheduled(event_id="a#2"))
    life.feed(scheduled(event_id="a#2"), scheduled(event_id="a"))
    assert [(one.event.event_id, one.life) for one in life.current] == [("a#2", 1), ("a", 3)]


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


def test_what_returns_after_it_was_forgotten() -> None:
    """An event that nobody remembers is new; its past is forgotten in the same step."""
    life = Life()
    life.feed(scheduled())
    life.feed()
    step = life.feed(scheduled(), after=HISTORY * 2)
    assert (step.forgotten, happened(step)) == ((FREEZE_ID.lower(),), [(FREEZE_ID, SCHEDULED)])
    assert (len(life.current), life.past) == (1, [])
