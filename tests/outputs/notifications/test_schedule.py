"""Tests of `exporter.outputs.notifications.schedule`: whose turn it is, whatever a target answers."""

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.clock import moment
from exporter.model.messages import Backlog, Failure, Severity
from exporter.outputs.notifications.schedule import (
    MOST_ATTEMPTS_CRITICAL,
    MOST_ATTEMPTS_FOR_ONE,
    SLOW_SECONDS,
    Attempt,
    Schedule,
)
from exporter.state.jobs import JobKey, Record
from exporter.state.outbox import Lane, QueuedMessage
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

    def __init__(self, *items: Item, recovering: bool = False, backlog: Backlog = Backlog.DIGEST) -> None:
        self.clock = HandClock()
        self.schedule = Schedule(self.clock, recovering=recovering, chance=lambda: 0.0)
        self.lane = Lane()
        self.post(*items)
        self.backlog = backlog
        self.answer: Callable[[Ids], Answer] = lambda _: None
        self.sent: list[Ids] = []
        self.got: list[Ids] = []
        self.tries: dict[tuple[str, int], int] = {}
        self.attempts: dict[Ids, Attempt] = {}

    def begin(self) -> Ids | float | None:
        """Begin what is next; return it, or the seconds until something may be."""
        turn = self.schedule.next(self.lane, self.backlog)
        if not turn.messages:
            return turn.delay
        ids = tuple((one.life_key, one.key.sequence) for one in turn.messages)
        self.attempts[ids] = self.schedule.begin(turn.messages, is_digest=turn.is_digest)
        self.sent.append(ids)
        return ids

    def end(self, ids: Ids, failure: Answer) -> None:
        """End an attempt; what was delivered, or failed too often, waits no more."""
        attempt = self.attempts.pop(ids)
        if failure is None:
            self.schedule.delivered(attempt, attempt.messages)
            self.got.append(ids)
            self._remove(attempt.messages)
            return
        self.schedule.failed(attempt, attempt.messages, failure)
        split = len(ids) > 1 and failure is Failure.REFUSED
        if failure is Failure.TARGET or split:
            return
        for one in ids:
            self.tries[one] = self.tries.get(one, 0) + 1
        lost = [
            one
            for one in attempt.messages
            if self.tries[one.life_key, one.key.sequence] >= MOST_ATTEMPTS_FOR_ONE
        ]
        self.schedule.given_up(lost)
        self._remove(lost)

    def _remove(self, messages: Iterable[QueuedMessage]) -> None:
        for one in messages:
            self.lane.remove(one.key)

    def post(self, *items: Item) -> None:
        for one in items:
            self.lane.put(
                JobKey("oncall", one.life, one.sequence),
                Record(MESSAGES[one.severity], queued=moment(self.clock)),
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
    """Return answers that fail one event, by itself and in digests."""
    return lambda ids: failure if any(one == life for one, _ in ids) else None


def test_what_waited_goes_out_gravest_first() -> None:
    """After an outage the critical ones come first, each event's in their order; later ones do not."""
    desk = Desk(Item("a"), Item("b", WARNING), Item("c", INFO), Item("c", CRITICAL, 2), Item("d", CRITICAL))
    desk.schedule.reset(waited=True)
    desk.work()
    assert desk.got == [(("d", 1),), (("b", 1),), (("a", 1),), (("c", 1),), (("c", 2),)]
    desk.clock.pass_seconds(SLOW_SECONDS)
    desk.post(Item("e"), Item("f", CRITICAL))
    desk.work()
    assert desk.order[-2:] == ["e", "f"]


@pytest.mark.parametrize(
    ("failure", "tries"),
    [(Failure.REFUSED, [0, 10, 60]), (Failure.UNANSWERED, [0, 20, 320])],
)
def test_when_a_message_is_tried_again(failure: Failure, tries: list[float]) -> None:
    """Soon, once more, and then no more; later where it may have arrived."""
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
    desk = Desk(*(Item(f"{n}") for n in range(50)), backlog=Backlog.EACH)
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


def test_no_message_waits_behind_one_that_is_not_answered() -> None:
    """Others begin two seconds later, three at a time; critical ones six at a time."""
    desk = Desk(*(Item(f"{n}") for n in range(5)))
    for number, delay in (("0", SLOW_SECONDS), ("1", SLOW_SECONDS), ("2", None)):
        assert desk.begin() == ((number, 1),)
        assert desk.begin() == delay
        desk.clock.pass_seconds(SLOW_SECONDS)
    desk.post(*(Item(life, CRITICAL) for life in "wxyz"))
    for life in "wxy":
        assert desk.begin() == ((life, 1),)
        desk.clock.pass_seconds(SLOW_SECONDS)
    assert desk.begin() is None


def test_more_than_ten_that_waited_are_a_digest() -> None:
    """All of them, in their order; what is tried again is the same."""
    items = [Item(f"{n % 6}", sequence=n) for n in range(11)]
    desk = Desk(*items, recovering=True)
    desk.answer = lambda _: Failure.TARGET
    desk.work()
    desk.post(Item("new"))
    desk.answer = lambda _: None
    desk.run(60)
    whole = tuple(one.id for one in items)
    assert desk.sent == [whole, whole, (("new", 1),)]


@pytest.mark.parametrize(("others", "messages"), [(10, 1), (11, 11)])
def test_what_is_held_up_is_in_no_digest(others: int, messages: int) -> None:
    """Neither does it count, nor what is being sent; both leave the others late."""
    desk = Desk(Item("bad"), Item("busy"), recovering=True)
    desk.begin()
    desk.end((("bad", 1),), Failure.REFUSED)
    assert desk.begin() == (("busy", 1),)
    assert desk.begin() == 10
    desk.post(*(Item(f"{n}") for n in range(others)))
    desk.clock.pass_seconds(SLOW_SECONDS)
    found = desk.begin()
    assert isinstance(found, tuple)
    assert len(found) == messages


def test_a_single_message_that_shows_the_target_is_up_counts_with_the_others() -> None:
    """Of eleven that waited, ten are left after it; they are still a digest."""
    desk = Desk(*(Item(str(n)) for n in range(11)), recovering=True)
    desk.answer = lambda ids: Failure.TARGET if len(ids) > 1 and not desk.got else None
    desk.run(60)
    assert [len(ids) for ids in desk.got] == [1, 10]


@pytest.mark.parametrize("failure", [Failure.REFUSED, Failure.TARGET])
def test_a_digest_that_fails_for_one_message_comes_apart(failure: Failure) -> None:
    """One message that the target does not accept, or that makes it fail, takes no other with it."""
    desk = Desk(*(Item(f"{n}") for n in range(20)), recovering=True)
    desk.answer = refusing("7", failure)
    desk.run(600)
    assert sorted(desk.order, key=int) == [f"{n}" for n in range(20) if n != 7]
    # Where the target fails, it is one in three digests, and one after a message that was accepted alone.
    assert sum(len(ids) > 1 for ids in desk.sent) == (4 if failure is Failure.TARGET else 1)


def test_a_target_that_was_well_before_an_outage() -> None:
    """That it took single messages then says nothing about digests now, three of which precede a message."""
    desk = Desk(Item("well"))
    desk.work()
    desk.post(*(Item(f"{n}") for n in range(12)))
    desk.answer = lambda _: Failure.TARGET
    desk.run(90)
    assert [len(ids) for ids in desk.sent] == [1, 1, 1, 12, 1, 12, 12, 12, 1, 12]
    assert desk.schedule.has_failed
    desk.answer = lambda _: None
    desk.run(40)
    assert [len(ids) for ids in desk.got] == [1, 12]


def test_each_outage_begins_anew() -> None:
    """After a delivery or a reload two messages find out again, and the pauses begin with the shortest."""
    desk = Desk(*(Item(f"{n}") for n in range(9)), Item("0", INFO, 2), backlog=Backlog.EACH)
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


def test_incidents_are_told_their_newest_state() -> None:
    """Of each event that waited the last message alone goes out, and stands for those before it."""
    items = Item("b", CRITICAL), Item("a"), Item("a", WARNING, 2), Item("b", INFO, 2)
    desk = Desk(*items, recovering=True, backlog=Backlog.LAST)
    desk.work()
    assert desk.got == [(("a", 1), ("a", 2)), (("b", 1), ("b", 2))]


class Driver(Desk):
    """Goes through random steps, with attempts that stay open, and checks each attempt as it begins."""

    def __init__(self, backlog: Backlog) -> None:
        super().__init__(backlog=backlog)
        self.under_way: list[Ids] = []
        self.posted: dict[str, int] = {}

    def do(self, what: str, number: int, value: object) -> None:
        if what == "post":
            life = str(number)
            self.posted[life] = self.posted.get(life, 0) + 1
            self.post(Item(life, Severity(str(value)), self.posted[life]))
        elif what == "begin":
            turn = self.begin()
            if isinstance(turn, tuple):
                self.check(turn)
                self.under_way.append(turn)
        elif what == "end" and self.under_way:
            ids = self.under_way.pop(number % len(self.under_way))
            self.end(ids, value if isinstance(value, Failure) else None)
        elif what == "wait":
            self.clock.pass_seconds(number)
        elif what == "reset":
            self.schedule.reset(waited=bool(number % 2))

    def check(self, turn: Ids) -> None:
        """Check that an event has one attempt at a time, and begins with what waited longest."""
        lives = {life for life, _ in turn}
        assert not lives & {life for ids in self.under_way for life, _ in ids}
        for life in lives:
            mine = [number for one, number in turn if one == life]
            assert mine == [key.sequence for key in self.lane.queue if key.life_key == life][: len(mine)]
        assert len(self.under_way) < MOST_ATTEMPTS_CRITICAL


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.integers(0, 7), st.sampled_from([INFO, WARNING, CRITICAL])),
        st.tuples(st.just("begin"), st.just(0), st.none()),
        st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from([None, None, *Failure])),
        st.tuples(st.just("wait"), st.sampled_from([1, 3, 20, 300]), st.none()),
        st.tuples(st.just("reset"), st.just(0), st.none()),
    ),
    max_size=80,
)


@settings(max_examples=300)
@given(steps=STEPS, backlog=st.sampled_from(Backlog))
def test_whatever_happens(steps: list[tuple[str, int, object]], backlog: Backlog) -> None:
    """No event has two attempts at once or goes back, attempts are bounded, and all is sent in the end."""
    driver = Driver(backlog)
    for step in steps:
        driver.do(*step)
    while driver.under_way:
        driver.do("end", 0, None)
    driver.run(700)
    assert driver.lane.queue == {}
    newest = dict.fromkeys(driver.posted, 0)
    for life, sequence in (one for ids in driver.got for one in ids):
        assert sequence > newest[life]
        newest[life] = sequence


def test_what_may_have_arrived_waits_while_the_target_is_down() -> None:
    """Other messages find out that it is up again."""
    desk = Desk(*map(Item, "abc"), backlog=Backlog.EACH)
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


def test_whether_a_target_hangs() -> None:
    """It does if its last attempt was not answered, until there is an answer of any kind."""
    desk = Desk(Item("a"), Item("b"), Item("c"))
    found = []
    for failure in (Failure.UNANSWERED, Failure.TARGET, Failure.UNANSWERED, None):
        desk.clock.pass_seconds(600)
        ids = desk.begin()
        assert isinstance(ids, tuple)
        desk.end(ids, failure)
        found.append(desk.schedule.hangs)
    assert found == [True, False, True, False]
