"""Tests of `exporter.model.advance`: what is written down, kept and forgotten, and what hooks are due.

What is told is shown by the cases and histories of `tests.model`.
"""

from datetime import timedelta
from typing import Any

import pytest

from exporter.model.events import Target
from exporter.model.lifecycle import (
    HISTORY,
    Known,
    Occurrence,
    TrackedEvent,
    Transition,
    TransitionRecord,
)
from tests.builders import FREEZE_ID, NOT_BEFORE, REBOOT_ID, scheduled, started
from tests.lives import Life, at, happened

SCHEDULED, STARTED, UPDATED = Transition.SCHEDULED, Transition.STARTED, Transition.UPDATED
COMPLETED, CANCELLED = Transition.COMPLETED, Transition.CANCELLED
BOTH, OTHERS = ("WestNO_0", "WestNO_1"), ("WestNO_1",)


def test_scheduled() -> None:
    """An event that is first seen Scheduled is announced, with its notice, and remembered."""
    life = Life()
    step = life.feed(scheduled())
    record = TransitionRecord(SCHEDULED, at(1))
    tracked = TrackedEvent(
        scheduled(),
        (FREEZE_ID,),
        first_seen=at(1),
        affects=Target.SELF,
        transitions=(record,),
        announced=NOT_BEFORE,
        hooked=1,
    )
    assert step.occurrences == (Occurrence(tracked, SCHEDULED, at(1)),)
    assert step.occurrences[0].notice == NOT_BEFORE - at(1)
    assert step.known == Known(1, at(1), {FREEZE_ID.lower(): tracked}, {})
    assert (step.changed, step.forgotten, step.new_incarnation, step.writes) == ((tracked,), (), True, True)


@pytest.mark.parametrize("not_before", [None, NOT_BEFORE - timedelta(hours=1)])
def test_notice_is_never_negative(not_before: Any) -> None:
    """A NotBefore that has passed already is no notice at all; none given is no measurement."""
    (occurrence,) = Life().feed(scheduled(not_before=not_before)).occurrences
    assert occurrence.notice == (timedelta(0) if not_before else None)


def test_notice_counts_from_the_beginning_of_the_life() -> None:
    """Advice is a part of the notice; what comes after the announcement has none."""
    life = Life()
    life.feed(scheduled(event_status="Advisory"))
    assert life.feed(scheduled()).occurrences[0].notice == NOT_BEFORE - at(1)
    assert life.feed(started()).occurrences[0].notice is None


def test_equal_incarnation_with_other_content_counts() -> None:
    """Content decides: a document with an old incarnation but other content is processed."""
    life = Life()
    life.feed(scheduled(), incarnation=3)
    step = life.feed(started(), scheduled(event_id=REBOOT_ID), incarnation=3)
    assert happened(step) == [(FREEZE_ID, STARTED), (REBOOT_ID, SCHEDULED)]
    assert (step.new_incarnation, step.writes) == (False, True)


def test_a_repeated_document_writes_nothing() -> None:
    """The same document again is no event at all, except that the watch is known to have gone on."""
    life = Life()
    life.feed(scheduled(), started(event_id=REBOOT_ID), incarnation=3)
    before = life.known
    step = life.feed(scheduled(), started(event_id=REBOOT_ID), incarnation=3)
    assert (step.occurrences, step.changed, step.forgotten, step.writes) == ((), (), (), False)
    assert step.known == Known(3, at(2), before.current, before.past)


def test_an_update_that_is_taken_back_is_not_told() -> None:
    """Content that reverts to what was last reported is not reported."""
    life = Life()
    life.feed(scheduled())
    life.feed(scheduled(duration_seconds=9))
    assert life.feed(scheduled(duration_seconds=10)).known.has_untold
    assert not life.feed(scheduled(duration_seconds=9)).known.has_untold
    assert life.feed(scheduled(duration_seconds=9), after=timedelta(minutes=2)).occurrences == ()


def test_a_start_and_an_end_leave_no_update_behind() -> None:
    """Changes not yet reported are in the next transition."""
    life = Life()
    life.feed(scheduled())
    life.feed(scheduled(duration_seconds=9))
    life.feed(scheduled(duration_seconds=10))
    assert happened(life.feed(started(duration_seconds=10))) == [(FREEZE_ID, STARTED)]
    assert not life.known.has_untold
    life.feed(started(duration_seconds=11))
    assert happened(life.feed()) == [(FREEZE_ID, COMPLETED)]
    assert (life.past[0].event.duration_seconds, life.past[0].untold) == (11, None)


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
    """A forgotten event is new; its past is deleted in the same step."""
    life = Life()
    life.feed(scheduled())
    life.feed()
    step = life.feed(scheduled(), after=HISTORY * 2)
    assert (step.forgotten, happened(step)) == ((FREEZE_ID.lower(),), [(FREEZE_ID, SCHEDULED)])
    assert (len(life.current), life.past) == (1, [])


def test_leaving_and_joining() -> None:
    """A life that ends runs its hooks before the one that begins; what was others' business is forgotten."""
    life = Life()
    life.feed(started(resources=BOTH))
    leaving = life.feed(started(resources=OTHERS))
    assert [(o.transition, o.tracked.target) for o in leaving.hookable] == [
        (COMPLETED, Target.SELF),
        (STARTED, Target.OTHER),
    ]
    (others,) = life.current
    joining = life.feed(scheduled(resources=BOTH))
    assert joining.forgotten == (others.key,)
    assert [o.transition for o in joining.hookable] == [SCHEDULED]


def test_hooks_wait_for_the_name_across_restarts() -> None:
    """Hooks of what happened without a name are queued once it is known: the newest phase and update."""
    life = Life(instance=None)
    life.feed(scheduled(event_id="a"), scheduled(event_id="b"), scheduled(event_id="gone"))
    life.feed(scheduled(event_id="a", duration_seconds=9), started(event_id="b"))
    life.restart()
    assert life.feed(scheduled(event_id="a", duration_seconds=9), started(event_id="b")).hookable == ()
    life.instance = "WestNO_0"
    step = life.feed(scheduled(event_id="a", duration_seconds=9), started(event_id="b"))
    assert step.occurrences == ()
    assert [(o.tracked.key, o.transition, len(o.tracked.transitions)) for o in step.hookable] == [
        ("a", SCHEDULED, 1),
        ("a", UPDATED, 2),
        ("b", STARTED, 2),
    ]
    again = life.feed(scheduled(event_id="a", duration_seconds=9), started(event_id="b"))
    assert (again.hookable, again.writes) == ((), True)
    assert not life.feed(*(one.event for one in life.current), incarnation=life.incarnation).writes


def test_the_end_of_what_hooks_ran_for() -> None:
    """An event that ends while the name is unknown after a restart has its last hooks run later."""
    life = Life()
    life.feed(scheduled(event_id="a"))
    life.restart()
    life.instance = None
    life.feed()
    life.restart()
    life.instance = "WestNO_0"
    step = life.feed()
    assert [(o.tracked.key, o.transition) for o in step.hookable] == [("a", CANCELLED)]
