"""Tests of `exporter.model.advance`: what is written down, kept and forgotten, and what hooks are due.

What is told is shown by the cases and histories of `tests.model`.
"""

from datetime import timedelta

from exporter.model.advance import pass_time
from exporter.model.lifecycle import Transition
from tests.builders import NOT_BEFORE, scheduled, started
from tests.lives import Story, at, happened

SCHEDULED, STARTED, UPDATED = Transition.SCHEDULED, Transition.STARTED, Transition.UPDATED


def test_notice_counts_from_the_beginning_of_the_life() -> None:
    """Advice is a part of it, what comes after the announcement has none, and none is negative."""
    for not_before, notice in ((None, None), (NOT_BEFORE - timedelta(hours=1), timedelta(0))):
        (occurrence,) = Story().feed(scheduled(not_before=not_before)).occurrences
        assert occurrence.notice == notice
    life = Story()
    life.feed(scheduled(event_status="Advisory"))
    assert life.feed(scheduled()).occurrences[0].notice == NOT_BEFORE - at(1)
    assert life.feed(started()).occurrences[0].notice is None


def test_the_order_of_transitions_of_one_kind() -> None:
    """Of one kind the gravest comes first."""
    found = [scheduled(event_id=name, event_type=name) for name in ("Freeze", "Reboot", "Preempt")]
    story = Story()
    steps = story.feed(*found), pass_time(story.state, NOT_BEFORE, [60], late=True)
    assert pass_time(story.state, NOT_BEFORE, [60], late=False) is None
    for step in steps:
        assert step is not None
        assert [event_id for event_id, _ in happened(step)] == ["Preempt", "Reboot", "Freeze"]


def test_ids_like_keys_are_kept_apart() -> None:
    """An id that is written like the key of another event's second life takes nothing from it."""
    life = Story()
    life.feed(scheduled(event_id="a#2"), scheduled(event_id="a"))
    life.feed(scheduled(event_id="a#2"))
    life.feed(scheduled(event_id="a#2"), scheduled(event_id="a"))
    assert [(one.event.event_id, one.number) for one in life.current] == [("a#2", 1), ("a", 3)]
