"""Tests of `exporter.model.advance`: what a listed event goes through, and what is not a transition."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from exporter.model.advance import advance
from exporter.model.documents import Defect, Document
from exporter.model.events import Target
from exporter.model.lifecycle import (
    Change,
    Known,
    Occurrence,
    TrackedEvent,
    Transition,
    TransitionRecord,
)
from tests.builders import FREEZE_ID, NOT_BEFORE, REBOOT_ID, scheduled, started
from tests.lives import Life, at, happened, path

ADVISED, SCHEDULED = Transition.ADVISED, Transition.SCHEDULED
STARTED, UPDATED = Transition.STARTED, Transition.UPDATED
COMPLETED, CANCELLED, VANISHED = Transition.COMPLETED, Transition.CANCELLED, Transition.VANISHED


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


def test_started_after_scheduled() -> None:
    """A known event that becomes Started has started, not been updated, though its NotBefore is blank."""
    life = Life()
    life.feed(scheduled())
    step = life.feed(started(description="now", duration_seconds=9))
    assert happened(step) == [(FREEZE_ID, STARTED)]
    assert step.occurrences[0].changes == ()
    assert step.occurrences[0].notice is None
    assert (life.current[0].first_seen, life.current[0].started) == (at(1), at(2))
    assert path(life.current[0]) == [SCHEDULED, STARTED]


def test_first_seen_started() -> None:
    """A hardware failure gives no notice: it starts when it is first seen, and was never scheduled."""
    life = Life()
    life.feed()
    step = life.feed(started())
    assert happened(step) == [(FREEZE_ID, STARTED)]
    assert (life.current[0].first_seen, life.current[0].started) == (at(2), at(2))


@pytest.mark.parametrize("not_before", [None, NOT_BEFORE - timedelta(hours=1)])
def test_notice_is_never_negative(not_before: Any) -> None:
    """A NotBefore that has passed already is no notice at all; none given is no measurement."""
    (occurrence,) = Life().feed(scheduled(not_before=not_before)).occurrences
    assert occurrence.notice == (timedelta(0) if not_before else None)


@pytest.mark.parametrize("make", [scheduled, started])
@pytest.mark.parametrize(
    ("field", "new"),
    [
        ("not_before", NOT_BEFORE + timedelta(minutes=5)),
        ("duration_seconds", 9),
        ("duration_seconds", None),
        ("resources", ("WestNO_0",)),
        ("resources", ()),
        ("resources", ("WestNO_0", "WestNO_1", "WestNO_1")),
        ("description", "delayed"),
    ],
)
def test_updated(make: Any, field: str, new: Any) -> None:
    """Each of four fields, when it changes, makes an update that tells old and new."""
    life = Life()
    life.feed(make())
    step = life.feed(make(**{field: new}))
    assert happened(step) == [(FREEZE_ID, UPDATED)]
    assert step.occurrences[0].changes == (Change(field, getattr(make(), field), new),)
    assert life.feed(make(**{field: new})).occurrences == ()


def test_several_fields_make_one_update_each_time() -> None:
    """What changes together is one update; what changes a minute later is another."""
    life = Life()
    life.feed(scheduled())
    once = life.feed(scheduled(duration_seconds=9, description="longer"))
    again = life.feed(scheduled(), after=timedelta(minutes=1))
    assert [change.field for change in once.occurrences[0].changes] == ["duration_seconds", "description"]
    assert happened(again) == [(FREEZE_ID, UPDATED)]


@pytest.mark.parametrize(
    "fields",
    [
        {"resources": ("WestNO_1", "WestNO_0")},
        {"resources": ("_westno_0", "WESTNO_1")},
        {"event_id": FREEZE_ID.lower()},
        {"event_source": "User"},
        {"resource_type": ""},
    ],
)
def test_no_update(fields: dict[str, Any]) -> None:
    """Order and spelling of names, and fields that mean nothing here, are written down and not reported."""
    life = Life()
    life.feed(scheduled())
    step = life.feed(scheduled(**fields))
    assert step.occurrences == ()
    assert [tracked.event for tracked in step.changed] == [scheduled(**fields)]
    assert life.current[0].ids == (FREEZE_ID,)


def test_started_back_to_scheduled() -> None:
    """An event that falls back to Scheduled is shown so, is not a transition, and completes when it goes."""
    life = Life()
    life.feed()
    life.feed(started())
    assert life.feed(scheduled()).occurrences == ()
    assert life.current[0].event == scheduled()
    assert life.feed(started()).occurrences == ()
    life.feed(scheduled())
    step = life.feed()
    assert happened(step) == [(FREEZE_ID, COMPLETED)]
    assert step.occurrences[0].impact == timedelta(seconds=4)


@pytest.mark.parametrize("incarnation", [0, 1, 7])
def test_a_reset_repeats_nothing(incarnation: int) -> None:
    """Whatever number the incarnation falls or jumps to, an event that is still listed goes on in silence."""
    life = Life()
    life.feed(scheduled(), started(event_id=REBOOT_ID), incarnation=5)
    step = life.feed(scheduled(), started(event_id=REBOOT_ID), incarnation=incarnation)
    assert (step.occurrences, step.changed, step.new_incarnation) == ((), (), True)


def test_equal_incarnation_with_other_content_counts() -> None:
    """Content decides: a document under an old number that says something else is taken at its word."""
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


def lost(event_id: str) -> tuple[Defect, ...]:
    """Return the defect of an event that could not be decoded."""
    return (Defect(event_id, "event not understood", lost=True),)


def test_a_defect_keeps_a_known_event_alive() -> None:
    """An event that is listed but cannot be decoded is not gone: it stays as it was."""
    life = Life()
    life.feed(scheduled(), started(event_id=REBOOT_ID))
    before = life.current
    step = life.feed(started(event_id=REBOOT_ID), defects=lost(FREEZE_ID.lower()))
    assert step.occurrences == ()
    assert life.current == [msgspec.structs.replace(before[0], unread=True), before[1]]
    assert happened(life.feed(started(), started(event_id=REBOOT_ID))) == [(FREEZE_ID, STARTED)]
    assert not life.current[0].unread


def test_a_nameless_defect_is_no_proof_of_cancellation() -> None:
    """What is gone while something unreadable is listed may be just that: nothing says it was cancelled."""
    life = Life()
    life.feed(scheduled())
    assert happened(life.feed(defects=lost(""))) == [(FREEZE_ID, VANISHED)]


def test_a_bad_field_is_no_obstacle() -> None:
    """A defect that lost no event says nothing about which are listed."""
    life = Life()
    life.feed(scheduled())
    defects = (Defect("", "something was replaced", lost=False),)
    assert happened(life.feed(defects=defects)) == [(FREEZE_ID, CANCELLED)]
    life.feed(scheduled())
    defects = (Defect(FREEZE_ID, "NotBefore: soon", lost=False),)
    assert life.feed(defects=defects).known.current == {}


@pytest.mark.parametrize("status", ["Advisory", "Considered"])
def test_advised(status: str) -> None:
    """A status that is neither Scheduled nor Started announces an event once, before anything else."""
    life = Life()
    assert happened(life.feed(scheduled(event_status=status))) == [(FREEZE_ID, ADVISED)]
    assert life.feed(scheduled(event_status=status)).occurrences == ()
    assert happened(life.feed(scheduled(event_status=status, duration_seconds=9))) == [(FREEZE_ID, UPDATED)]
    step = life.feed(scheduled(duration_seconds=30))
    assert happened(step) == [(FREEZE_ID, SCHEDULED)]
    assert step.occurrences[0].notice == NOT_BEFORE - at(1)
    assert happened(life.feed(started())) == [(FREEZE_ID, STARTED)]


@pytest.mark.parametrize("incarnation", [None, 0, 7])
def test_an_advised_event_that_goes_is_cancelled(incarnation: int | None) -> None:
    """Nobody waits for what was only advised: no proof is needed, and no warning given."""
    life = Life()
    life.feed(scheduled(event_status="Advisory"))
    assert happened(life.feed(incarnation=incarnation)) == [(FREEZE_ID, CANCELLED)]


def test_an_unknown_status_within_a_life() -> None:
    """After Scheduled another status is shown and is not a transition; what changes with it is told."""
    life = Life()
    life.feed(scheduled())
    assert life.feed(scheduled(event_status="Paused")).occurrences == ()
    assert life.current[0].event.event_status == "Paused"
    changed = scheduled(event_status="Waiting", duration_seconds=9)
    assert happened(life.feed(changed)) == [(FREEZE_ID, UPDATED)]
    assert life.feed(scheduled(duration_seconds=9)).occurrences == ()
    assert happened(life.feed(started())) == [(FREEZE_ID, STARTED)]


@pytest.mark.parametrize(("status", "outcome"), [("Completed", COMPLETED), ("Canceled", CANCELLED)])
def test_statuses_that_end_a_life(status: str, outcome: Transition) -> None:
    """Azure's own word ends a life, once, however long the event is listed so; then it may begin anew."""
    over = scheduled(event_status=status)
    life = Life()
    life.feed(scheduled())
    assert happened(life.feed(over, incarnation=9)) == [(FREEZE_ID, outcome)]
    assert life.feed(over).occurrences == ()
    assert life.current == []
    assert life.feed().occurrences == ()
    assert happened(life.feed(scheduled())) == [(FREEZE_ID, SCHEDULED)]


def test_an_advised_event_that_goes_from_a_document_without_a_number_has_vanished() -> None:
    """Nothing is taken as cancelled where the incarnation cannot be read."""
    life = Life()
    life.feed(scheduled(event_status="Advisory"))
    step = advance(life.known, Document(None), life.now, instance=life.instance, watching=True)
    assert happened(step) == [(FREEZE_ID, VANISHED)]


@pytest.mark.parametrize("status", ["Completed", "Canceled"])
def test_first_seen_over(status: str) -> None:
    """An event that is listed only once it is over has no life to tell of."""
    life = Life()
    assert life.feed(scheduled(event_status=status)).occurrences == ()
    assert life.feed().occurrences == ()


def test_updates_are_folded() -> None:
    """After the first one, changes are told once a minute, together, with the values that were last told."""
    life = Life()
    life.feed(scheduled(duration_seconds=1))
    assert happened(life.feed(scheduled(duration_seconds=2))) == [(FREEZE_ID, UPDATED)]
    assert life.feed(scheduled(duration_seconds=3), after=timedelta(seconds=30)).occurrences == ()
    life.restart()
    assert life.feed(scheduled(duration_seconds=4, description="later")).occurrences == ()
    assert life.current[0].event.duration_seconds == 4
    step = life.feed(scheduled(duration_seconds=4, description="later"), after=timedelta(seconds=29))
    assert happened(step) == [(FREEZE_ID, UPDATED)]
    assert step.occurrences[0].changes == (
        Change("duration_seconds", 2, 4),
        Change("description", scheduled().description, "later"),
    )
    assert not life.known.has_untold


def test_an_update_that_is_taken_back_is_not_told() -> None:
    """Content that is again what was last told is not news."""
    life = Life()
    life.feed(scheduled())
    life.feed(scheduled(duration_seconds=9))
    assert life.feed(scheduled(duration_seconds=10)).known.has_untold
    assert not life.feed(scheduled(duration_seconds=9)).known.has_untold
    assert life.feed(scheduled(duration_seconds=9), after=timedelta(minutes=2)).occurrences == ()


def test_a_start_and_an_end_leave_no_update_behind() -> None:
    """What changed and was not told yet shows in the transition that comes first."""
    life = Life()
    life.feed(scheduled())
    life.feed(scheduled(duration_seconds=9))
    life.feed(scheduled(duration_seconds=10))
    assert happened(life.feed(started(duration_seconds=10))) == [(FREEZE_ID, STARTED)]
    assert not life.known.has_untold
    life.feed(started(duration_seconds=11))
    assert happened(life.feed()) == [(FREEZE_ID, COMPLETED)]
    assert (life.past[0].event.duration_seconds, life.past[0].untold) == (11, None)
