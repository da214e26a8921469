"""Tests of `exporter.model.advance`: a life belongs to an event and this VM."""

from collections.abc import Callable

import pytest

from exporter.model.events import ScheduledEvent, Target
from exporter.model.lifecycle import Transition
from tests.builders import FREEZE_ID, scheduled, started
from tests.lives import Life, at, happened, path

SCHEDULED, STARTED, UPDATED = Transition.SCHEDULED, Transition.STARTED, Transition.UPDATED
COMPLETED, CANCELLED = Transition.COMPLETED, Transition.CANCELLED
BOTH, OTHERS = ("WestNO_0", "WestNO_1"), ("WestNO_1",)


@pytest.mark.parametrize(
    ("last", "outcome", "now"),
    [
        (scheduled(resources=BOTH), CANCELLED, scheduled(resources=OTHERS)),
        (scheduled(resources=BOTH), CANCELLED, started(resources=OTHERS)),
        (started(resources=BOTH), COMPLETED, started(resources=OTHERS)),
    ],
)
def test_leaving(last: ScheduledEvent, outcome: Transition, now: ScheduledEvent) -> None:
    """A document that drops this VM ends its life, and begins one for the others."""
    life = Life()
    life.feed()
    life.feed(last)
    step = life.feed(now)
    begins = STARTED if now == started(resources=OTHERS) else SCHEDULED
    assert happened(step) == [(FREEZE_ID, outcome), (FREEZE_ID, begins)]
    assert [one.tracked.target for one in step.occurrences] == [Target.SELF, Target.OTHER]
    assert [(one.target, one.event) for one in life.past] == [(Target.SELF, last)]
    assert [(one.target, one.event, one.first_seen) for one in life.current] == [(Target.OTHER, now, at(3))]
    assert [one.transition for one in step.hookable] == [outcome, begins]
    assert life.past[0].impact_seconds == (1.0 if outcome is COMPLETED else None)


@pytest.mark.parametrize(
    ("now", "begins"),
    [(scheduled(resources=BOTH), SCHEDULED), (started(resources=BOTH), STARTED)],
)
def test_joining(now: ScheduledEvent, begins: Transition) -> None:
    """A document that adds this VM begins its life; what was others' business ends without a word."""
    life = Life()
    life.feed(scheduled(resources=OTHERS))
    (others,) = life.current
    step = life.feed(now)
    assert happened(step) == [(FREEZE_ID, begins)]
    assert step.occurrences[0].tracked.target is Target.SELF
    assert (life.past, step.forgotten) == ([], (others.key,))
    assert (life.current[0].first_seen, path(life.current[0])) == (at(2), [begins])
    assert life.current[0].key != others.key


@pytest.mark.parametrize(
    ("last", "status", "outcome"),
    [(scheduled, "Completed", CANCELLED), (started, "Canceled", COMPLETED)],
)
def test_leaving_an_event_that_ends(
    last: Callable[..., ScheduledEvent], status: str, outcome: Transition
) -> None:
    """What becomes of the event elsewhere, in the same document too, says nothing about this VM."""
    life = Life()
    life.feed(last(resources=BOTH))
    assert happened(life.feed(scheduled(event_status=status, resources=OTHERS))) == [(FREEZE_ID, outcome)]
    assert life.current == []


def test_to_and_fro() -> None:
    """Each joining is a new life, told from its beginning to its end."""
    life = Life()
    told = []
    for resources in (BOTH, OTHERS, BOTH, OTHERS):
        step = life.feed(scheduled(resources=resources))
        told += [o.transition for o in step.occurrences if o.tracked.target is Target.SELF]
    assert told == [SCHEDULED, CANCELLED, SCHEDULED, CANCELLED]
    assert len({one.key for one in (*life.past, *life.current)}) == 3


def test_other_spelling_and_no_names_at_all_are_still_this_vm() -> None:
    """A name in other letters, or no names where there were some, is an update at most."""
    life = Life()
    life.feed(scheduled(resources=BOTH))
    assert life.feed(scheduled(resources=("_WESTNO_0", "WestNO_1"))).occurrences == ()
    assert happened(life.feed(scheduled(resources=()))) == [(FREEZE_ID, UPDATED)]


def test_an_unknown_name_changes_nothing() -> None:
    """While the name is not known again after a restart, a known life stays whose it was."""
    life = Life()
    life.feed(scheduled(resources=OTHERS), scheduled(event_id="own", resources=BOTH))
    life.restart()
    life.instance = None
    step = life.feed(scheduled(resources=OTHERS), scheduled(event_id="own", resources=OTHERS))
    assert [(o.transition, o.tracked.target) for o in step.occurrences] == [(UPDATED, Target.SELF)]
    assert step.hookable == ()
    assert [one.target for one in life.current] == [Target.OTHER, Target.SELF]


@pytest.mark.parametrize("make", [scheduled, started])
def test_announced_for_want_of_a_name(make: Callable[..., ScheduledEvent]) -> None:
    """Once the name shows that an event is not this VM's, whoever was told of it is told that it is over."""
    life = Life(instance=None)
    life.feed()
    assert life.feed(make(resources=OTHERS)).occurrences[0].tracked.target is Target.SELF
    life.instance = "WestNO_0"
    step = life.feed(make(resources=OTHERS))
    assert happened(step)[0] == (FREEZE_ID, CANCELLED)
    assert [one.tracked.target for one in step.occurrences] == [Target.SELF, Target.OTHER]
    assert life.past[0].impact_seconds is None


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
