"""Tests of the record of the last hour's polls."""

from datetime import timedelta

from exporter.errors import PollOutcome
from exporter.model.views import Minute
from exporter.watch.polls import Polls
from tests.clocks import NOW


def test_polls_are_counted_by_minute() -> None:
    """Each minute has its successes and failures, with the reason of the last; others are empty."""
    polls = Polls()
    for second in range(120):
        failed = second in (70, 71)
        polls.count(PollOutcome.TIMEOUT if failed else PollOutcome.SUCCESS, NOW + timedelta(seconds=second))
    hour = polls.last_hour(NOW + timedelta(minutes=3))
    assert len(hour) == 60
    assert hour[-4:] == (
        Minute(NOW, succeeded=60),
        Minute(NOW + timedelta(minutes=1), succeeded=58, failed=2, reason="timeout"),
        Minute(NOW + timedelta(minutes=2)),
        Minute(NOW + timedelta(minutes=3)),
    )
    assert all(minute == Minute(minute.at) for minute in hour[:-4])


def test_an_hour_is_kept() -> None:
    """However long the exporter runs, and however the clock steps, there are sixty minutes."""
    polls = Polls()
    for minute in (*range(600), 3, 4, 600):
        polls.count(PollOutcome.SUCCESS, NOW + timedelta(minutes=minute))
    hour = polls.last_hour(NOW + timedelta(minutes=600))
    assert len(hour) == 60
    assert [minute.at for minute in hour] == [NOW + timedelta(minutes=541 + number) for number in range(60)]
    assert hour[-1].succeeded == 1
