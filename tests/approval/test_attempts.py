"""Tests of `exporter.approval.approver`: errors of IMDS, several events at once, limits, crashes."""

import itertools
import logging
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.config import Rule
from exporter.errors import ImdsError, PollOutcome
from exporter.health import DegradedReason, Health
from exporter.metrics import ApprovalOutcome
from exporter.model.jobs import note
from exporter.model.lifecycle import Known
from exporter.state.directory import FILE_NAME
from exporter.timefmt import rfc3339
from tests.approval.support import REFUSED, VM, ApproverFixture
from tests.builders import FREEZE_ID, NOT_BEFORE, REBOOT_ID, body, raw_event, scheduled
from tests.clocks import NOW
from tests.state_support import no_room_for_files, on_disk

SILENT = ImdsError(PollOutcome.TIMEOUT, "no answer")
FAILED = ApprovalOutcome.FAILED
IDS = ("a", "b", "c")


def test_errors_are_tried_again(fixture: ApproverFixture, caplog: pytest.LogCaptureFixture) -> None:
    """Soon at first, at most 20 s apart, each time after a fetch; said once; and then it is approved once."""
    caplog.set_level(logging.INFO)
    fixture.azure.error = REFUSED
    fixture.look_for(90)
    assert fixture.azure.tries == [0, 1, 3, 7, 15, 31, 51, 71]
    assert fixture.azure.asked == [(), (FREEZE_ID,)] * 8
    assert fixture.view() == ("failed", "POST: status 400")
    assert caplog.text.count("approval failed; trying again") == 1
    fixture.azure.error = None
    fixture.clock.pass_seconds(20)
    fixture.approver.look()
    assert fixture.view()[0] == "approved"
    assert fixture.counted == [("all", FAILED)] * 8 + [("all", ApprovalOutcome.APPROVED)]
    assert len(fixture.reported) == 1


@pytest.mark.parametrize("takes", [10.0, 30.0])
def test_tries_are_at_most_20_s_apart(fixture: ApproverFixture, takes: float) -> None:
    """From one try to the next, however long IMDS keeps a try waiting, unless that alone is longer."""
    fixture.azure.error, fixture.azure.takes = SILENT, takes
    fixture.look_for(300)
    gaps = [later - earlier for earlier, later in itertools.pairwise(fixture.azure.tries)]
    assert len(gaps) > 5
    # The thread looks once a second.
    assert max(gaps) <= max(20.0, takes + 1) + 1
    assert fixture.counted == [("all", FAILED)] * len(fixture.azure.tries)


def test_errors_end_with_not_before(fixture: ApproverFixture, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sent once NotBefore has passed, which is logged once, until Azure puts the event off."""
    fixture.azure.error = REFUSED
    fixture.look_for(15 * 60 + 60)
    assert NOW.timestamp() + fixture.azure.tries[-1] < NOT_BEFORE.timestamp()
    assert fixture.view() == ("failed", "given up, as NotBefore has passed: POST: status 400")
    assert caplog.text.count("approval failed until NotBefore; given up") == 1
    tries = len(fixture.azure.tries)
    later = NOT_BEFORE + timedelta(hours=1)
    fixture.azure.body = body(raw_event(NotBefore=later.isoformat()))
    fixture.show(scheduled(not_before=later))
    fixture.look_for(60)
    assert len(fixture.azure.tries) >= tries + 2
    assert fixture.view() == ("failed", "POST: status 400")


def test_a_fetch_that_fails_is_a_failure(fixture: ApproverFixture) -> None:
    """Without a fresh document nothing is sent."""
    fixture.azure.body = b"{"
    fixture.approver.look()
    assert fixture.azure.posts == []
    assert fixture.counted == [("all", FAILED)]


def test_the_limit_counts_across_restarts(tmp_path: Path) -> None:
    """Only as many as allowed in an hour; an hour later approvals continue."""
    fixture = ApproverFixture(tmp_path, max_per_hour=1)
    fixture.approver.look()
    fixture.show(scheduled(), scheduled(event_id=REBOOT_ID))
    fixture.azure.body = body(raw_event(), raw_event(EventId=REBOOT_ID))
    fixture.restart()
    fixture.approver.look()
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]
    assert fixture.counted[1:] == [("all", ApprovalOutcome.LIMITED)]
    fixture.clock.pass_seconds(3601)
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID, REBOOT_ID]
    fixture.store.close()


def test_the_limit_counts_what_the_state_file_has_once_it_can_be_read(tmp_path: Path) -> None:
    """A file that could not be read at the start brings its approvals later."""
    fixture = ApproverFixture(tmp_path, max_per_hour=1)
    fixture.approver.look()
    fixture.store.close()
    path = tmp_path / FILE_NAME
    hidden = path.rename(tmp_path / "hidden")
    path.mkdir()
    fixture.open()
    fixture.show(scheduled(event_id=REBOOT_ID))
    fixture.azure.body = body(raw_event(EventId=REBOOT_ID))
    path.rmdir()
    hidden.rename(path)
    fixture.clock.pass_seconds(60)
    fixture.store.retry()
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]
    assert fixture.view()[0] == "limited"
    fixture.store.close()


@pytest.fixture
def three(fixture: ApproverFixture) -> ApproverFixture:
    """List three events at once."""
    fixture.list(*IDS)
    fixture.show(*(scheduled(event_id=event_id) for event_id in IDS))
    return fixture


def test_one_document_and_one_request(three: ApproverFixture) -> None:
    """What is due at the same time goes together, the oldest first, and once."""
    three.approver.look()
    three.approver.look()
    assert three.azure.asked == [(), IDS]
    assert three.states == ["approved"] * 3
    assert [finding.key for finding in three.reported] == list(IDS)


def test_the_limit_holds_within_a_request(three: ApproverFixture) -> None:
    """What goes together counts one by one."""
    three.change(max_per_hour=2)
    three.approver.look()
    assert three.azure.asked == [(), ("a", "b")]
    assert three.states == ["approved", "approved", "limited"]


def test_only_what_the_fresh_document_lists_goes(three: ApproverFixture) -> None:
    """An event that has gone meanwhile is no part of the request; with none left there is none."""
    three.list("a", "c")
    three.approver.look()
    assert three.azure.asked == [(), ("a", "c")]
    three.list()
    three.approver.look()
    assert three.azure.asked[2:] == [()]


def test_an_id_that_is_refused_holds_back_no_other(three: ApproverFixture) -> None:
    """Where Azure refuses a request, each id is decided anew and sent by itself; only the bad one failed."""
    three.azure.bad = {"b"}
    three.approver.look()
    assert three.azure.asked == [(), IDS, (), ("a",), (), ("b",), (), ("c",)]
    assert three.states == ["approved", "failed", "approved"]
    assert three.counted.count(("all", FAILED)) == 1


@pytest.mark.parametrize("step", ["fetch_error", "error"])
def test_silence_is_waited_for_once(three: ApproverFixture, step: str) -> None:
    """An IMDS that does not answer costs one timeout for all, not one for each."""
    setattr(three.azure, step, SILENT)
    three.approver.look()
    assert three.azure.asked == ([()] if step == "fetch_error" else [(), IDS])
    assert three.states == ["failed"] * 3
    assert three.counted == [("all", FAILED)] * 3


def test_a_crash_before_the_answer(fixture: ApproverFixture) -> None:
    """What was sent without an answer is known, counts for the limit, and is sent again after the restart."""
    fixture.azure.error = REFUSED
    fixture.approver.look()
    fixture.restart()
    (known,) = [fixture.store.approvals.find(FREEZE_ID.lower())]
    assert known is not None
    assert known.sent is None
    assert [approval.event_id for approval in fixture.store.approvals.known()] == [FREEZE_ID]
    fixture.azure.error = None
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID, FREEZE_ID]
    assert fixture.view()[0] == "approved"


def test_a_crash_before_the_answer_and_rules_that_changed(fixture: ApproverFixture) -> None:
    """What was decided before a restart is decided again after it."""
    fixture.azure.error = REFUSED
    fixture.approver.look()
    fixture.restart()
    fixture.change(rules=(Rule("none", "hold"),))
    fixture.clock.pass_seconds(20)
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]
    assert fixture.view() == ("hold", "the rule holds it")


def test_a_crash_after_the_answer(fixture: ApproverFixture) -> None:
    """An approval that is not a transition yet when the process dies becomes one after the restart, once."""
    fixture.approver.look()
    fixture.restart()
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]
    (finding,) = fixture.store.findings()
    step = note(fixture.known, finding, VM)
    assert step is not None
    fixture.store.record(step)
    fixture.known = Known()
    fixture.restart()
    assert fixture.store.findings() == [finding]
    assert note(fixture.known, finding, VM) is None


def test_it_is_known_before_it_is_sent(fixture: ApproverFixture) -> None:
    """At the moment of the request the disk has it already."""

    def look_from_outside() -> None:
        (approval,) = on_disk(fixture.directory, "approval").values()
        assert (approval["key"], approval["sent"]) == (FREEZE_ID.lower(), None)

    fixture.azure.before_answer = look_from_outside
    fixture.approver.look()
    assert fixture.view()[0] == "approved"


def test_a_disk_that_takes_nothing(fixture: ApproverFixture) -> None:
    """What could not be remembered is not sent, and the reason is shown; later it is."""
    with no_room_for_files():
        fixture.approver.look()
    assert fixture.azure.posts == []
    assert fixture.view() == ("failed", "the state cannot be written, so nothing would remember it")
    fixture.clock.pass_seconds(30)
    fixture.store.retry()
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]


def _lose_the_state(fixture: ApproverFixture) -> None:
    fixture.store.close()
    (fixture.directory / "state.db").write_bytes(b"garbage" * 1000)
    fixture.open()
    fixture.show(scheduled())


def test_a_lost_state_holds_rules_for_an_hour(fixture: ApproverFixture) -> None:
    """What was approved before is not known to the limit; a restart does not shorten the hour."""
    _lose_the_state(fixture)
    until = fixture.clock.now() + timedelta(hours=1)
    reason = (
        f"the state was lost, and with it what was approved in the last hour; held until {rfc3339(until)}"
    )
    for _ in range(3):
        assert fixture.view() == ("hold", reason)
        (problem,) = fixture.health.problems()
        assert problem.reason is DegradedReason.STATE_CORRUPT
        assert problem.message.endswith(f"rules approve nothing until {rfc3339(until)}")
        fixture.clock.pass_seconds(1199)
        fixture.approver.look()
        fixture.health = Health(fixture.clock)
        fixture.restart()
    assert fixture.azure.posts == []
    fixture.clock.pass_seconds(4)
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]
    fixture.restart()
    assert fixture.health.problems()[1:] == ()


def test_a_clock_that_is_set_does_not_shorten_the_hour(fixture: ApproverFixture) -> None:
    """Within a process the hour is one of time; a clock that was set back by a day does not make it a day."""
    _lose_the_state(fixture)
    fixture.clock.set_wall(fixture.clock.now() + timedelta(hours=2))
    fixture.approver.look()
    assert fixture.azure.posts == []
    fixture.clock.set_wall(fixture.clock.now() - timedelta(days=1))
    fixture.restart()
    fixture.clock.pass_seconds(3601)
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]
