"""Tests of `exporter.model.lifecycle` with sequences of documents nobody would think of."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.model.advance import advance
from exporter.model.documents import Defect, Document
from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import ENDINGS, Known, Step, TrackedEvent, Transition
from tests.builders import NOT_BEFORE
from tests.clocks import NOW
from tests.lives import path

# tests/model.run searches far more histories; these show which rule is broken.
thorough = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

IDS = ("a", "A", "b", "c", "d")
events = st.builds(
    ScheduledEvent,
    event_id=st.sampled_from(IDS),
    event_type=st.sampled_from(["Freeze", "Freeze", "Reboot"]),
    event_status=st.sampled_from(["Scheduled", "Scheduled", "Started", "Started", "Paused"]),
    resources=st.sampled_from([("x", "y"), ("y", "X"), ("x",)]),
    not_before=st.sampled_from([None, NOT_BEFORE, NOT_BEFORE + timedelta(hours=1)]),
    duration_seconds=st.sampled_from([None, None, 9]),
    event_source=st.just("Platform"),
)
defects = st.builds(Defect, event_id=st.sampled_from(("", *IDS)), message=st.just("odd"), lost=st.booleans())


@dataclass(frozen=True)
class Poll:
    """One answer of IMDS, and what came before it: time, failed polls, a restart, a reset of the number."""

    events: list[ScheduledEvent]
    defects: list[Defect]
    passed: timedelta
    restarted: bool
    instance: str | None
    incarnation_step: int | None


polls = st.builds(
    Poll,
    events=st.lists(events, max_size=4, unique_by=lambda event: event.key),
    defects=st.just([]) | st.lists(defects, max_size=2),
    passed=st.sampled_from([1, 1, 1, 3600, 25 * 3600, 100 * 86400, -60]).map(lambda s: timedelta(seconds=s)),
    restarted=st.booleans(),
    instance=st.sampled_from(["x", "x", "x", "X", "y", None]),
    incarnation_step=st.sampled_from([1, 1, 1, 0, 2, -1, None]),
)
sequences = st.lists(polls, max_size=12)


@dataclass(frozen=True)
class Walked:
    """A step with what it was made of."""

    before: Known
    document: Document
    now: datetime
    settings: dict[str, Any]
    step: Step

    @property
    def after(self) -> Known:
        """Return what is known after the step."""
        return self.step.known


def walk(sequence: Sequence[Poll]) -> list[Walked]:
    """Take in one answer after the other, from nothing known."""
    known, incarnation, now = Known(), 5, NOW
    walked = []
    for poll in sequence:
        now += poll.passed
        incarnation = 1 if poll.incarnation_step is None else max(incarnation + poll.incarnation_step, 0)
        document = Document(incarnation, tuple(poll.events), tuple(poll.defects))
        settings: dict[str, Any] = {"instance": poll.instance, "watching": not poll.restarted}
        step = advance(known, document, now, **settings)
        walked.append(Walked(known, document, now, settings, step))
        known = reread(step.known) if poll.restarted else step.known
    return walked


def reread(known: Known) -> Known:
    """Write what is known, and read it again."""
    return msgspec.json.decode(msgspec.json.encode(known), type=Known)


def all_of(known: Known) -> dict[str, TrackedEvent]:
    """Return all events that are known, by key."""
    assert not known.current.keys() & known.past.keys()
    return known.current | known.past


def bears(tracked: TrackedEvent, event_id: str) -> bool:
    """Return whether an event has, or had, that id."""
    return event_id.lower() in {one.lower() for one in tracked.ids}


def assert_legal(transitions: Sequence[Transition]) -> None:
    """Check that a life is one that the rules allow."""
    once = [transition for transition in transitions if transition is not Transition.UPDATED]
    phases = (Transition.ADVISED, Transition.SCHEDULED, Transition.STARTED)
    assert once == [one for one in (*phases, *ENDINGS) if one in once], transitions
    assert transitions[0] in phases
    assert sum(one in ENDINGS for one in once) <= 1
    assert not any(one in ENDINGS for one in transitions[:-1])


@given(sequences)
@thorough
def test_every_life_is_legal_and_told_once(sequence: list[Poll]) -> None:
    """What is reported of an event is its recorded life, in order, and a path that the rules allow."""
    told: dict[tuple[str, datetime], list[Transition]] = {}
    for walked in walk(sequence):
        keys = [occurrence.tracked.key for occurrence in walked.step.occurrences]
        assert len(keys) == len(set(keys))
        for occurrence in walked.step.occurrences:
            assert occurrence.at == walked.now
            assert occurrence.tracked == all_of(walked.after)[occurrence.tracked.key]
            life = told.setdefault((occurrence.tracked.key, occurrence.tracked.first_seen), [])
            life.append(occurrence.transition)
        for tracked in all_of(walked.after).values():
            assert path(tracked) == told.get((tracked.key, tracked.first_seen), [])
    for life in told.values():
        assert_legal(life)


@given(sequences)
@thorough
def test_updates_are_real(sequence: list[Poll]) -> None:
    """An update, and nothing else, tells fields, each with the values that it had before and has now."""
    for walked in walk(sequence):
        for occurrence in walked.step.occurrences:
            assert bool(occurrence.changes) == (occurrence.transition is Transition.UPDATED)
            for change in occurrence.changes:
                before = all_of(walked.before)[occurrence.tracked.key]
                assert change.old == getattr(before.untold or before.event, change.field)
                assert change.new == getattr(occurrence.tracked.event, change.field)
                assert change.old != change.new


@given(sequences)
@thorough
def test_current_mirrors_the_document(sequence: list[Poll]) -> None:
    """What is current is what the document lists, and what it lists but nobody can read."""
    for walked in walk(sequence):
        listed = walked.document.events
        for event in listed:
            (tracked,) = (t for t in walked.after.current.values() if bears(t, event.event_id))
            assert tracked.event == event or tracked.event in listed
        lost = [defect.event_id for defect in walked.document.defects if defect.lost]
        for tracked in walked.after.current.values():
            spared = tracked.unread and any(bears(tracked, event_id) for event_id in lost)
            assert tracked.event in listed or spared
        for key, tracked in walked.before.current.items():
            spelt = [event_id for event_id in lost if bears(tracked, event_id)]
            assert key in walked.after.current or any(bears(tracked, e.event_id) for e in listed) or not spelt


@given(sequences)
@thorough
def test_an_outcome_is_had_exactly_when_gone(sequence: list[Poll]) -> None:
    """A current event has neither end nor outcome; a gone one has both, and has told that outcome."""
    for walked in walk(sequence):
        assert {(t.ended, t.outcome) for t in walked.after.current.values()} <= {(None, None)}
        for tracked in walked.after.past.values():
            assert tracked.ended is not None
            assert tracked.outcome in ENDINGS
            assert tracked.outcome in path(tracked)
            assert tracked.has(Transition.STARTED) or tracked.outcome is not Transition.COMPLETED


@given(sequences)
@thorough
def test_beginnings_are_never_rewritten(sequence: list[Poll]) -> None:
    """When an event was first seen and when it started stays, and so do the ids it had."""
    for walked in walk(sequence):
        for key, before in all_of(walked.before).items():
            after = all_of(walked.after).get(key)
            if after is not None:
                assert after.first_seen == before.first_seen
                assert before.started in (None, after.started)
                assert after.ids[: len(before.ids)] == before.ids
                assert after.transitions[: len(before.transitions)] == before.transitions


@given(sequences)
@thorough
def test_what_is_to_be_written_is_exactly_what_differs(sequence: list[Poll]) -> None:
    """Whoever applies `changed` and `forgotten` to what was known has what is known."""
    for walked in walk(sequence):
        before, after = all_of(walked.before), all_of(walked.after)
        changed = {tracked.key: tracked for tracked in walked.step.changed}
        assert len(changed) == len(walked.step.changed)
        assert changed == {key: tracked for key, tracked in after.items() if before.get(key) != tracked}
        assert set(walked.step.forgotten) == before.keys() - after.keys()
        assert walked.after.incarnation == walked.document.incarnation
        assert walked.step.new_incarnation == (walked.before.incarnation != walked.after.incarnation)
        assert {o.tracked.key for o in walked.step.occurrences} <= changed.keys()


@given(sequences)
@thorough
def test_the_same_document_again_does_nothing(sequence: list[Poll]) -> None:
    """A document that is read twice causes nothing the second time, and nothing to write."""
    for walked in walk(sequence):
        for watching in (True, False):
            again = advance(
                walked.after,
                walked.document,
                walked.now,
                instance=walked.settings["instance"],
                watching=watching,
            )
            assert (again.occurrences, again.writes, again.known) == ((), False, walked.after)


@given(sequences)
@thorough
def test_a_restart_makes_no_difference(sequence: list[Poll]) -> None:
    """What was written and read again leads to the same step, with the mappings in the same order."""
    for walked in walk(sequence):
        again = advance(reread(walked.before), walked.document, walked.now, **walked.settings)
        assert again == walked.step
        assert list(again.known.current) == list(walked.after.current)
        assert list(again.known.past) == list(walked.after.past)


@given(sequences)
@thorough
def test_nothing_is_changed_in_place(sequence: list[Poll]) -> None:
    """What was known before a document is the same after it."""
    for walked in walk(sequence):
        written = msgspec.json.encode(walked.before)
        advance(walked.before, walked.document, walked.now, **walked.settings)
        assert msgspec.json.encode(walked.before) == written
