"""Approvals on the bench: errors of IMDS, several events at once, limits, crashes."""

import itertools
import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from exporter.timefmt import rfc3339
from exporter.work import Inbox
from tests.bench import Bench, Build
from tests.builders import FREEZE_ID, raw_event
from tests.clocks import NOW
from tests.outputs.approval.support import (
    REFUSED,
    SILENT,
    approving,
    failing,
    state,
    states,
    transitions,
    tries,
)
from tests.state_support import no_room_for_files

IDS = ("a", "b", "c")
THREE = [raw_event(EventId=event_id) for event_id in IDS]
ONE_AN_HOUR = {"max_per_hour": 1}
SLOWLY = {"poll_interval": "1m"}
OPEN = {"NotBefore": ""}


def counted(bench: Bench, outcome: str) -> float | None:
    return bench.metric("approvals_total", rule="all", outcome=outcome)


def test_errors_are_tried_again(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """Soon at first, at most 20 s apart, each after a fetch, and after a reload; logged once."""
    caplog.set_level(logging.INFO)
    bench = build(approving())
    bench.before_answer = failing(REFUSED)
    bench.show(raw_event(**OPEN), wait=80)
    assert tries(bench) == pytest.approx([0, 1, 3, 7, 15, 31, 51, 71], abs=0.01)
    posts = [number for number, (_, ids) in enumerate(bench.asked) if ids]
    assert all(bench.asked[number - 1][1] == "" for number in posts)
    assert state(bench) == ("failed", "POST: status 400")
    assert caplog.text.count("approval failed; trying again") == 1
    bench.before_answer = lambda _: None
    bench.reload()
    bench.advance(1)
    assert (state(bench)[0], bench.approved) == ("approved", [FREEZE_ID])
    assert (counted(bench, "failed"), counted(bench, "approved")) == (8, 1)


def test_a_fault_of_this_program_is_tried_again(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged with its traceback, shown, and ends nothing."""
    bench = build(approving())
    bench.before_answer = lambda _: (_ for _ in ()).throw(ZeroDivisionError("ours"))
    bench.show(raw_event())
    assert state(bench) == ("failed", "ours")
    assert "ZeroDivisionError: ours" in caplog.text
    bench.before_answer = lambda _: None
    bench.advance(20)
    assert bench.approved == [FREEZE_ID]


@pytest.mark.parametrize("takes", [10.0, 30.0])
def test_tries_are_at_most_20_s_apart(build: Build, takes: float) -> None:
    """From one try to the next, however long IMDS keeps a try waiting, unless that alone is longer."""
    bench = build(approving())

    def wait(_: str) -> None:
        bench.clock.pass_seconds(takes)
        raise SILENT

    bench.before_answer = wait
    bench.show(raw_event())
    bench.reload(approving(imds={"poll_interval": "1h"}))
    bench.advance(300)
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries(bench))]
    assert len(gaps) > 5
    assert max(gaps) <= max(20.0, takes + 1) + 1
    assert counted(bench, "failed") == len(gaps) + 1


def test_errors_end_with_not_before(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sent once NotBefore has passed, which is logged once, until Azure puts the event off."""
    bench = build(approving())
    bench.before_answer = failing(REFUSED)
    bench.show(raw_event(NotBefore=(NOW + timedelta(minutes=2)).isoformat()), wait=180)
    assert 60 < tries(bench)[-1] < 119
    assert state(bench) == ("failed", "given up, as NotBefore has passed: POST: status 400")
    assert caplog.text.count("approval failed until NotBefore; given up") == 1
    before = len(bench.posts)
    bench.show(raw_event(NotBefore=(NOW + timedelta(hours=1)).isoformat()), wait=60)
    assert len(bench.posts) >= before + 2
    assert state(bench) == ("failed", "POST: status 400")


def test_without_a_fresh_document_nothing_is_sent(build: Build) -> None:
    """An event that is due while IMDS fails is a failure, which is tried again at most 20 s later."""
    bench = build(approving({"delay": "60s"}))
    bench.show(raw_event(), wait=59)
    bench.outage(300)
    assert bench.posts == []
    assert state(bench)[0] == "failed"
    assert 12 <= (counted(bench, "failed") or 0) <= 30
    bench.advance(20)
    assert bench.approved == [FREEZE_ID]


def test_the_limit_counts_across_restarts(build: Build) -> None:
    """Only as many as allowed in an hour; an hour later approvals continue."""
    bench = build(approving(approval=ONE_AN_HOUR, imds=SLOWLY))
    bench.show(raw_event(), wait=60)
    bench.restart()
    bench.show(raw_event(), raw_event(EventId="b", **OPEN), wait=60)
    assert (bench.approved, counted(bench, "limited")) == ([FREEZE_ID], 1)
    (reason,) = (one["approval"]["reason"] for one in bench.api("current") if one["id"] == "b")
    assert reason == "1 approval within 1h; approval.max_per_hour is 1"
    bench.advance(3600)
    assert bench.approved == [FREEZE_ID, "b"]


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize(("error", "second"), [(REFUSED, "approved"), (SILENT, "limited")])
def test_what_uses_up_the_limit(build: Build, error: Exception, second: str, *, kill: bool) -> None:
    """A request that was refused for good has approved nothing; one without an answer may have."""
    bench = build(approving(approval=ONE_AN_HOUR))

    def answer(event_id: str) -> None:
        if event_id == FREEZE_ID:
            raise error

    bench.before_answer = answer
    bench.show(raw_event(), wait=5)
    if kill:
        bench.kill()
    bench.show(raw_event(), raw_event(EventId="b"), wait=5)
    assert states(bench)["b"] == second


def test_an_id_that_is_refused_holds_back_no_other(build: Build) -> None:
    """Only the bad one failed; it is tried again later."""
    bench = build(approving())

    def answer(event_id: str) -> None:
        if event_id == "b":
            raise REFUSED

    bench.before_answer = answer
    bench.show(*THREE)
    assert [event_id for _, event_id in bench.posts][:3] == ["a", "b", "c"]
    assert states(bench) == {"a": "approved", "b": "failed", "c": "approved"}
    assert counted(bench, "failed") == len(bench.posts) - 2
    bench.before_answer = lambda _: None
    bench.advance(5)
    assert (states(bench)["b"], counted(bench, "approved")) == ("approved", 3)


def test_silence_is_a_failure_of_each(build: Build) -> None:
    """Whether Azure took it is not known, which is shown once the event has started."""
    bench = build(approving())
    bench.before_answer = failing(SILENT)
    bench.show(*THREE)
    assert [event_id for _, event_id in bench.posts][:3] == ["a", "b", "c"]
    assert states(bench) == dict.fromkeys(IDS, "failed")
    assert state(bench)[1] == "no answer"
    assert counted(bench, "failed") == len(bench.posts)
    bench.show(*(one | {"EventStatus": "Started"} for one in THREE))
    assert state(bench) == ("failed", "sent, but whether Azure took it is not known")
    bench.show()
    assert {one["approval"]["state"] for one in bench.api("past")} == {None}


def test_a_crash_between_the_answer_and_its_transition(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """An approval that is not a transition yet when the process dies becomes one after the restart, once."""
    bench = build(approving())
    with monkeypatch.context() as patch:
        patch.setattr(Inbox, "put", lambda *_: None)
        bench.show(raw_event())
        assert transitions(bench) == ["scheduled"]
        bench.kill()
    for _ in range(2):
        bench.kill()
        bench.advance(3)
        assert transitions(bench) == ["scheduled", "approved"]
    assert bench.approved == [FREEZE_ID]


@pytest.mark.parametrize("later", [FREEZE_ID, "b"])
def test_a_disk_that_takes_nothing(build: Build, later: str) -> None:
    """What could not be recorded is not sent, and the limit does not count it; later it is sent."""
    bench = build(approving(approval=ONE_AN_HOUR))
    with no_room_for_files():
        bench.show(raw_event())
    assert bench.posts == []
    assert state(bench) == ("failed", "the state cannot be written, so nothing would remember it")
    bench.show(raw_event(EventId=later), wait=30)
    assert bench.approved == [later]


def test_a_lost_state_holds_rules_for_an_hour(build: Build) -> None:
    """What was approved before is not known to the limit; a restart shortens neither hour nor problem."""
    bench = build(approving(imds=SLOWLY))
    until = rfc3339(bench.clock.now() + timedelta(hours=1))
    bench.app.stop()
    (bench.state / "state.db").write_bytes(b"garbage" * 1000)
    bench.start()
    bench.show(raw_event(**OPEN))
    reason = f"the state was lost, and with it what was approved in the last hour; held until {until}"
    for _ in range(3):
        bench.advance(1150)
        assert state(bench) == ("hold", reason)
        (problem,) = bench.api("problems")
        assert problem.endswith(f"rules approve nothing until {until}")
        bench.restart()
    assert bench.posts == []
    bench.advance(160)
    assert bench.approved == [FREEZE_ID]
    assert bench.api("problems") == []


def test_the_limit_counts_what_the_state_file_has_once_it_can_be_read(build: Build) -> None:
    """A file that could not be read at the start brings its approvals later."""
    bench = build(approving(approval=ONE_AN_HOUR))
    bench.show(raw_event())
    bench.app.stop()
    path = bench.state / "state.db"
    hidden = path.rename(bench.folder / "hidden")
    path.mkdir()
    bench.start()
    path.rmdir()
    hidden.rename(path)
    bench.show(wait=60)
    bench.show(raw_event(EventId="b"))
    assert bench.approved == [FREEZE_ID]
    assert state(bench)[0] == "limited"


LATER = {"NotBefore": "Thu, 04 Mar 2027 22:15:00 GMT"}
Restart = Callable[[Bench], None]


def one_hour_ahead(bench: Bench) -> None:
    """Restart with a clock that was an hour behind and is right now."""
    bench.clock.set_wall(bench.clock.now() + timedelta(hours=1))
    bench.restart()


def rebooted(bench: Bench) -> None:
    """Reboot, after which nothing tells how long it took: the wall clock says a day, and may be wrong."""
    bench.clock.set_wall(bench.clock.now() + timedelta(days=1))
    bench.clock.reboot()
    bench.restart()


@pytest.mark.parametrize(("restart", "left"), [(one_hour_ahead, 1740), (rebooted, 1800)])
def test_a_step_of_the_clock_shortens_no_delay_across_restarts(
    build: Build, restart: Restart, left: float
) -> None:
    """Within a boot a delay goes on, whatever the wall clock says; on another it begins anew, once."""
    bench = build(approving({"delay": "30m"}, imds=SLOWLY))
    bench.show(raw_event(**LATER), wait=120)
    restart(bench)
    until = rfc3339(bench.clock.now() + timedelta(seconds=left))
    for _ in range(2):
        assert state(bench) == ("waiting", f"not before {until}")
        bench.advance(left / 2 - 5)
        assert bench.posts == []
        bench.restart()
    bench.advance(15)
    assert bench.approved == [FREEZE_ID]


@pytest.mark.parametrize("restart", [one_hour_ahead, rebooted])
def test_a_step_of_the_clock_does_not_undo_the_limit(build: Build, restart: Restart) -> None:
    """An approval counts for a whole hour of the boot; after a reboot as if it had just been made, once."""
    bench = build(approving(approval=ONE_AN_HOUR, imds=SLOWLY))
    bench.show(raw_event(**LATER), wait=60)
    restart(bench)
    bench.show(raw_event(EventId="b", **LATER), wait=1700)
    bench.restart()
    bench.advance(1700)
    assert (bench.approved, state(bench)[0]) == ([FREEZE_ID], "limited")
    bench.advance(260)
    assert bench.approved == [FREEZE_ID, "b"]
    bench.clock.reboot("boot 3")
    bench.restart()
    bench.advance(3600)
    bench.clock.reboot("boot 4")
    bench.restart()
    bench.show(raw_event(EventId="c", **LATER))
    assert state(bench)[0] == "approved"
