"""Tests of `exporter.model.advance`: what is written down, kept and forgotten, and what hooks are due.

What is told is shown by the cases and histories of `tests.model`.
"""

from datetime import timedelta

from exporter.model import reports
from exporter.model.advance import pass_time
from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import Life, Occurrence, Transition
from exporter.model.messages import rank
from tests.builders import FREEZE_ID, NOT_BEFORE, scheduled, started
from tests.clocks import NOW
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


def test_events_are_kept_oldest_first() -> None:
    """The order of what is known is that of its coming, and of its going."""
    a, b, c = (scheduled(event_id=name) for name in "abc")
    life = Story()
    life.feed(b, a)
    life.feed(c, a, b)
    assert list(life.state.current) == ["b", "a", "c"]
    life.feed(a)
    life.feed()
    assert list(life.state.past) == ["b", "c", "a"]


def test_the_order_of_what_happened() -> None:
    """By kind, endings first; of one kind the gravest first."""
    order = (Transition.VANISHED, STARTED, UPDATED, Transition.IMMINENT, SCHEDULED, Transition.ADVISED)
    lives = [Life(scheduled(event_type=name), ("a",), NOW) for name in ("Terminate", "Freeze")]
    ranks = [rank(Occurrence(life, transition, NOW)) for transition in order for life in lives]
    assert ranks == sorted(ranks)
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


def test_failures_of_hooks() -> None:
    """Each run's is reported once; not that of a hook that ran for a failure: it would go on forever."""
    life = Story()
    life.feed(scheduled())

    def fails(hook: str, run: int) -> bool:
        failed = reports.hook_failure(FREEZE_ID.lower(), (hook, run), HookOutcome.FAILED, at(9))
        step = reports.record_report(life.state, failed)
        life.state = step.state if step else life.state
        return step is not None

    assert [fails("a", 1), fails("a", 1), fails("b", 1)] == [True, False, True]
    life.feed(started())
    # The transitions are: scheduled, two failures, and started.
    assert [fails("c", run) for run in (1, 2, 3, 4)] == [True, False, False, True]


def test_hooks_that_waited_for_the_name() -> None:
    """They run once for what is listed, and not for what ended before, or as, the name became known."""
    listed, before, then = (scheduled(event_id=name) for name in "abc")
    life = Story(None)
    assert life.feed(listed, before, then).awaited == ()
    life.feed(listed, then)
    life.instance = "WestNO_0"
    assert [(one.life.key, one.transition) for one in life.feed(listed).awaited] == [("a", SCHEDULED)]
    assert life.feed(listed).awaited == ()
