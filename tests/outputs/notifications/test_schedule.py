"""Tests of `exporter.outputs.notifications.schedule`: whose turn it is, whatever a target answers."""

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.clock import moment
from exporter.model.jobs import JobKey
from exporter.model.lifecycle import Transition
from exporter.model.messages import Failure, Severity
from exporter.outputs.notifications.outbox import Lane, Letter, QueuedMessage
from exporter.outputs.notifications.schedule import (
    MOST_ATTEMPTS_FOR_ONE,
    SLOW_SECONDS,
    Schedule,
)
from exporter.state.jobs import Record
from tests.builders import message
from tests.clocks import HandClock

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
MESSAGES = {
    INFO: message(type="Freeze"),
    WARNING: message(type="Reboot"),
    CRITICAL: message(type="Preempt"),
}
Answer = Failure | None
Ids = tuple[tuple[str, int], ...]


class Item(NamedTuple):
    """A message that waits: its event's life, its severity, its number in that life."""

    life: str
    severity: Severity = INFO
    sequence: int = 1

    @property
    def id(self) -> tuple[str, int]:
        return self.life, self.sequence


class Desk:
    """A target with messages that wait, and answers that take no time unless they are left open."""

    def __init__(self, *items: Item, recovering: bool = False, every: bool = False) -> None:
        self.clock = HandClock()
        self.schedule = Schedule(self.clock, recovering=recovering, chance=lambda: 0.0)
        self.lane = Lane()
        self.post(*items)
        self.every = every
        self.answer: Callable[[Ids], Answer] = lambda _: None
        self.sent: list[Ids] = []
        self.got: list[Ids] = []
        self.tries: dict[tuple[str, int], int] = {}
        self.turns: dict[Ids, tuple[QueuedMessage, ...]] = {}

    def begin(self) -> Ids | float | None:
        """Begin what is next; return it, or the seconds until something may be."""
        turn = self.schedule.next(self.lane, every=self.every)
        if not turn.messages:
            return turn.delay
        ids = tuple((one.life_key, one.key.sequence) for one in turn.messages)
        self.turns[ids] = turn.messages
        self.sent.append(ids)
        return ids

    def end(self, ids: Ids, failure: Answer) -> None:
        """End an attempt; what was delivered, or failed too often, waits no more."""
        messages = self.turns.pop(ids)
        if failure is None:
            self.schedule.delivered(messages[-1].life_key)
            self.got.append(ids)
            self._remove(messages)
            return
        self.schedule.failed(messages[-1].life_key, failure, 0.0)
        if failure is Failure.TARGET:
            return
        tried = messages[-1:] if failure is Failure.REFUSED else messages
        for one in tried:
            self.tries[one.life_key, one.key.sequence] = (
                self.tries.get((one.life_key, one.key.sequence), 0) + 1
            )
        lost = [one for one in tried if self.tries[one.life_key, one.key.sequence] >= MOST_ATTEMPTS_FOR_ONE]
        self.schedule.given_up(lost)
        self._remove(lost)

    def _remove(self, messages: Iterable[QueuedMessage]) -> None:
        for one in messages:
            self.lane.remove(one.key)

    def post(self, *items: Item) -> None:
        for one in items:
            self.lane.put(
                JobKey("oncall", one.life, one.sequence),
                Record(Letter(MESSAGES[one.severity]).raw, queued=moment(self.clock)),
            )

    def work(self) -> float | None:
        """Do all that is due now; return the seconds until there is more."""
        for _ in range(1000):
            turn = self.begin()
            if not isinstance(turn, tuple):
                return turn
            self.end(turn, self.answer(turn))
        raise AssertionError("it does not come to rest")

    def run(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while (delay := self.work()) is not None and self.clock.monotonic() + delay <= end:
            self.clock.pass_seconds(max(delay, 0.001))
        self.clock.pass_seconds(max(end - self.clock.monotonic(), 0))

    @property
    def order(self) -> list[str]:
        return [ids[-1][0] for ids in self.got]


def refusing(life: str, failure: Failure) -> Callable[[Ids], Answer]:
    """Return answers that fail one event."""
    return lambda ids: failure if any(one == life for one, _ in ids) else None


def test_what_waited_goes_out_gravest_first() -> None:
    """After an outage the critical ones come first, each event's in their order; later ones do not."""
    desk = Desk(
        Item("a"),
        Item("b", WARNING),
        Item("c", INFO),
        Item("c", CRITICAL, 2),
        Item("d", CRITICAL),
        every=True,
    )
    desk.schedule.reset(waited=True)
    desk.work()
    assert desk.got == [(("c", 1),), (("d", 1),), (("c", 2),), (("b", 1),), (("a", 1),)]
    desk.clock.pass_seconds(SLOW_SECONDS)
    desk.post(Item("e"), Item("f", CRITICAL))
    desk.work()
    assert desk.order[-2:] == ["e", "f"]


@pytest.mark.parametrize(
    ("failure", "tries"),
    [(Failure.REFUSED, [0, 20, 320]), (Failure.UNANSWERED, [0, 20, 320])],
)
def test_when_a_message_is_tried_again(failure: Failure, tries: list[float]) -> None:
    """Soon, once more, and then no more."""
    desk = Desk(Item("a"))
    began, found = desk.clock.monotonic(), []

    def fail(_: Ids) -> Answer:
        found.append(desk.clock.monotonic() - began)
        return failure

    desk.answer = fail
    desk.run(3600)
    assert found == tries


def test_a_message_that_makes_the_target_fail_holds_up_no_other() -> None:
    """A server error that one message causes does not hold back the others."""
    desk = Desk(Item("bad", CRITICAL), *(Item(f"{n}") for n in range(5)))
    desk.answer = refusing("bad", Failure.TARGET)
    assert desk.work() == 1
    assert desk.order == [f"{n}" for n in range(5)]
    desk.clock.pass_seconds(1)
    desk.post(Item("5"))
    assert desk.work() == 2
    assert desk.sent[-2:] == [(("bad", 1),), (("5", 1),)]
    desk.run(200)
    desk.post(Item("new"))
    assert desk.begin() == (("new", 1),)
    assert desk.schedule.is_failing
    desk.lane.remove(JobKey("oncall", "bad", 1))
    desk.begin()
    assert not desk.schedule.is_failing


def test_a_target_that_is_down_is_not_tried_once_per_message() -> None:
    """Two messages find out; then there is one attempt at a time, ever more seldom, at first every 20 s."""
    desk = Desk(*(Item(f"{n}") for n in range(50)), every=True)
    times: list[float] = []

    def fail(_: Ids) -> Answer:
        times.append(desk.clock.monotonic())
        return Failure.TARGET

    desk.answer = fail
    desk.run(120)
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == [0, 2, 4, 8, 16, *[20] * 4]
    desk.run(3600)
    assert len(desk.sent) < 30
    desk.answer = lambda _: None
    desk.run(300)
    assert len(desk.got) == 50
    # Later messages do not say that they could not be delivered before.
    assert not desk.schedule.has_failed


def test_each_outage_begins_anew() -> None:
    """After a delivery or a reload two messages find out again, and the pauses begin with the shortest."""
    desk = Desk(*(Item(f"{n}") for n in range(9)), Item("0", INFO, 2), every=True)
    desk.answer = lambda _: Failure.TARGET
    for pause in (2, 4):
        assert desk.work() == pause
        desk.clock.pass_seconds(pause)
    assert len(desk.sent) == 3
    desk.answer = lambda _: None if len(desk.sent) == 4 else Failure.TARGET
    assert desk.work() == 2
    assert len(desk.sent) == 6
    desk.schedule.reset(waited=False)
    assert (desk.schedule.has_failed, desk.schedule.is_failing) == (False, False)
    assert desk.work() == 2
    assert len(desk.sent) == 8


class Driver(Desk):
    """Goes through random steps, and checks each attempt as it begins."""

    def __init__(self, *, every: bool) -> None:
        super().__init__(every=every)
        self.posted: dict[str, int] = {}

    def do(self, what: str, number: int, value: object) -> None:
        if what == "post":
            life = str(number)
            self.posted[life] = self.posted.get(life, 0) + 1
            self.post(Item(life, Severity(str(value)), self.posted[life]))
        elif what == "try":
            turn = self.begin()
            if isinstance(turn, tuple):
                self.check(turn)
                self.end(turn, value if isinstance(value, Failure) else None)
        elif what == "wait":
            self.clock.pass_seconds(number)
        elif what == "reset":
            self.schedule.reset(waited=bool(number % 2))

    def check(self, turn: Ids) -> None:
        """Check that an attempt is about one event, and begins with what waited longest."""
        ((life, _), *_) = turn
        mine = [number for _, number in turn]
        assert {one for one, _ in turn} == {life}
        assert mine == [key.sequence for key in self.lane.queue if key.life_key == life][: len(mine)]
        assert len(mine) == 1 or not self.every


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.integers(0, 7), st.sampled_from([INFO, WARNING, CRITICAL])),
        st.tuples(st.just("try"), st.just(0), st.sampled_from([None, None, *Failure])),
        st.tuples(st.just("wait"), st.sampled_from([1, 3, 20, 300]), st.none()),
        st.tuples(st.just("reset"), st.just(0), st.none()),
    ),
    max_size=80,
)


@settings(max_examples=300)
@given(steps=STEPS, every=st.booleans())
def test_whatever_happens(steps: list[tuple[str, int, object]], *, every: bool) -> None:
    """No event goes back, and all is sent in the end."""
    driver = Driver(every=every)
    for step in steps:
        driver.do(*step)
    driver.run(700)
    assert driver.lane.queue == {}
    newest = dict.fromkeys(driver.posted, 0)
    for life, sequence in (one for ids in driver.got for one in ids):
        assert sequence > newest[life]
        newest[life] = sequence


def test_what_may_have_arrived_waits_while_the_target_is_down() -> None:
    """Other messages find out that it is up again."""
    desk = Desk(*map(Item, "abc"), every=True)
    desk.answer = lambda ids: Failure.UNANSWERED if ids == (("a", 1),) else Failure.TARGET
    desk.run(19)
    assert [desk.sent.count(((life, 1),)) for life in "abc"] == [1, 2, 2]


def test_what_is_not_answered_outlasts_minutes_of_silence() -> None:
    """Its few repeats are far apart, and come at once when the target answers again."""
    desk = Desk(Item("a", CRITICAL))
    desk.answer = lambda _: Failure.UNANSWERED
    desk.run(200)
    assert len(desk.sent) == 2
    desk.answer = lambda _: None
    desk.post(Item("b"))
    desk.work()
    assert desk.order == ["b", "a"]


def test_what_nothing_later_says_is_sent() -> None:
    """After an outage a failed hook and an approval are messages of their own."""
    desk = Desk(*(Item("a", sequence=number) for number in range(1, 6)), recovering=True)
    for number, what in ((2, Transition.HOOK_FAILED), (3, Transition.APPROVED)):
        key = JobKey("oncall", "a", number)
        queued = QueuedMessage(key, Record(Letter(message(what)).raw, queued=moment(desk.clock)))
        desk.lane.queue[key] = desk.lane.lives["a"][number] = queued
    desk.work()
    assert desk.got == [(("a", 2),), (("a", 3),), (("a", 1), ("a", 4), ("a", 5))]


def test_the_gravest_state_comes_first_after_an_outage() -> None:
    """Of each event that is what its last message says."""
    desk = Desk(Item("b", WARNING), Item("a"), Item("a", CRITICAL, 2), recovering=True)
    desk.work()
    assert desk.order == ["a", "b"]
