"""Tests of `exporter.watch.poller`: the thread that polls, how it ends, and the record of its last hour."""

from datetime import timedelta

import pytest

from exporter.errors import PollOutcome
from exporter.model.views import Minute
from exporter.simulator import Fault
from exporter.transport import Answer, Request, Transport
from exporter.watch.poller import Polls
from tests.bench import Build
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
        Minute(NOW + timedelta(minutes=2), 0, 0),
        Minute(NOW + timedelta(minutes=3), 0, 0),
    )
    assert all(minute == Minute(minute.at, 0, 0) for minute in hour[:-4])


def test_an_hour_is_kept() -> None:
    """However long the exporter runs, and however the clock steps, there are sixty minutes."""
    polls = Polls()
    for minute in (*range(600), 3, 4, 600):
        polls.count(PollOutcome.SUCCESS, NOW + timedelta(minutes=minute))
    hour = polls.last_hour(NOW + timedelta(minutes=600))
    assert len(hour) == 60
    assert [minute.at for minute in hour] == [NOW + timedelta(minutes=541 + number) for number in range(60)]
    assert hour[-1].succeeded == 1


def test_the_first_answer_may_take_150_s(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call switches the service on, which takes up to two minutes; 10 s are enough from then on.

    Also after a reload during an outage. The facts about the VM are asked for once.
    """
    timeouts = []
    send = Transport.send

    def note(transport: Transport, request: Request, timeout: float) -> Answer:
        timeouts.append(("scheduledevents" in request.url, timeout))
        return send(transport, request, timeout)

    monkeypatch.setattr(Transport, "send", note)
    bench = build()
    bench.advance(301)
    assert timeouts[:3] == [(True, 150.0), (False, 10.0), (True, 10.0)]
    assert bench.metric("poll_duration_seconds_sum") == 0
    bench.outage(5)
    bench.reload()
    assert set(timeouts[3:]) == {(True, 10.0)}


@pytest.mark.parametrize("fault", [Fault("error"), None])
def test_the_state_is_written_again(build: Build, fault: Fault | None) -> None:
    """A state file that is removed comes back, also while no poll succeeds."""
    bench = build()
    (file := bench.state / "state.db").unlink()
    bench.simulator.set_fault(fault)
    bench.advance(15)
    assert file.exists()
