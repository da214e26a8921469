"""Tests of `exporter.health`: what is wrong is said once, until it is right again."""

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from exporter.health import DegradedReason, Health
from tests.clocks import HandClock

UNWRITABLE, FAILING = DegradedReason.STATE_UNWRITABLE, DegradedReason.NOTIFICATIONS_FAILING


def test_each_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A repeated report is not logged; another message and the end are."""
    caplog.set_level(logging.INFO, "exporter")
    health = Health(HandClock())
    for message in ("full", "full", "gone", "gone"):
        health.report(UNWRITABLE, message)
    health.clear(UNWRITABLE)
    health.clear(UNWRITABLE)
    said = [(record.getMessage(), record.__dict__["problem"]) for record in caplog.records]
    assert said == [("degraded", "full"), ("degraded", "gone"), ("recovered", "gone")]


def test_a_trouble_keeps_the_time_of_its_beginning() -> None:
    """A new reason for the same trouble does not make it younger."""
    clock = HandClock()
    health = Health(clock)
    begun = clock.now()
    health.report(UNWRITABLE, "full")
    clock.pass_seconds(60)
    health.report(UNWRITABLE, "gone")
    assert [(p.message, p.since) for p in health.problems()] == [("gone", begun)]


def test_several_of_one_kind_are_told_apart() -> None:
    """One target's recovery does not hide that another still fails."""
    health = Health(HandClock())
    health.report(FAILING, "a fails", "a")
    health.report(FAILING, "b fails", "b")
    health.clear(FAILING, "a")
    assert [problem.message for problem in health.problems()] == ["b fails"]


def test_many_threads_may_tell_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """The first thread logs the change; nothing is lost or logged twice."""
    caplog.set_level(logging.INFO, "exporter")
    health = Health(HandClock())

    def tell(number: int) -> None:
        for _ in range(50):
            health.report(FAILING, f"{number % 4} fails", str(number % 4))
            health.problems()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(tell, range(8)))
    assert sorted(problem.message for problem in health.problems()) == [f"{n} fails" for n in range(4)]
    assert len(caplog.records) == 4
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: health.clear(FAILING, str(number % 4)), range(8)))
    assert health.problems() == ()
    assert len(caplog.records) == 8
