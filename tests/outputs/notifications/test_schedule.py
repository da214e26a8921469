"""The order of a target's messages while some of them fail, and when they are repeated."""

import itertools
from datetime import datetime

import pytest

from exporter.model.messages import Delivery, Failure
from tests.bench import Build
from tests.bench.senders import OK
from tests.bench.test_delivery import DOWN, ONCALL, SELDOM, events, leave, told


def pauses(times: list[datetime]) -> list[float]:
    return [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]


@pytest.mark.parametrize("failure", [Failure.REFUSED, Failure.UNANSWERED])
def test_when_a_message_is_tried_again(build: Build, failure: Failure) -> None:
    """After 20 s, and once more five minutes later; then it is given up."""
    bench = build(ONCALL + SELDOM)
    bench.sender().answer = lambda _: Delivery(False, "no", failure)
    bench.show(*events("a"), wait=3000)
    assert pauses([one.now for one in bench.sender().requests]) == pytest.approx([20, 300], abs=1)


def test_what_was_not_answered_is_repeated_when_the_target_answers_again(build: Build) -> None:
    """Its next attempt would be minutes later; it comes right after the first message that is delivered."""
    bench = build(ONCALL)
    bench.sender().answer = lambda _: Delivery(False, "no", Failure.UNANSWERED)
    bench.show(*events("a"), wait=60)
    bench.sender().answer = lambda _: OK
    bench.show(*events("a", "b"))
    assert told(bench) == ["b", "a"]


def test_a_message_that_makes_the_target_fail_holds_up_no_other(build: Build) -> None:
    """A server error that one message causes does not hold back the others, however grave it is."""
    bench = build(ONCALL)
    bench.sender().answer = lambda one: DOWN if "Preempt" in one.title else OK
    bad = events("bad", EventType="Preempt")
    bench.show(*bad, *events("a", "b"))
    bench.show(*bad, *events("a", "b", "c"), wait=5)
    assert (told(bench), len(bench.api("problems"))) == (["a", "b", "c"], 1)


def test_the_gravest_state_comes_first_after_a_stop(build: Build) -> None:
    """Of each event that is what its newest message says."""
    bench = build(ONCALL)
    leave(bench, *events("a", "b", EventType="Reboot"))
    leave(bench, *events("a", EventType="Reboot"), *events("b", EventType="Reboot", EventStatus="Started"))
    bench.restart()
    assert told(bench) == ["b", "a"]


def test_a_target_that_is_down_is_not_tried_once_per_message(build: Build) -> None:
    """Two messages find out; then there is one attempt at a time, at first every 20 s; each outage anew."""
    bench = build(ONCALL + SELDOM)
    ids = [f"{number:02}" for number in range(20)]
    for _ in range(2):
        bench.sender().answer = lambda _: DOWN
        bench.sender().requests.clear()
        bench.sender().sent.clear()
        bench.show(*events(*ids), wait=120)
        first, second, *later = pauses([one.now for one in bench.sender().requests])
        assert (first, second <= 4, max(later) <= 20) == (0, True, True)
        bench.advance(1800)
        assert len(bench.sender().requests) < 30
        bench.sender().answer = lambda _: OK
        bench.advance(400)
        assert sorted(told(bench)) == ids
        bench.show(wait=60)
