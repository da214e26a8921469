"""Tests of `exporter.approval.approver`: what it acts on, and what it waits for."""

import logging
import threading
from datetime import timedelta

import pytest
from msgspec.structs import replace

from exporter.config import Hook, Mode, Rule
from exporter.config.match import Match
from exporter.metrics import ApprovalOutcome
from exporter.model.jobs import Finding, HookOutcome, note
from exporter.model.lifecycle import Occurrence, Transition
from exporter.timefmt import Duration
from tests.approval.support import RULE, VM, ApproverFixture
from tests.builders import FREEZE_ID, body, raw_event, scheduled
from tests.end_to_end.program import eventually


def test_an_event_is_approved_once(fixture: ApproverFixture) -> None:
    """The document is fetched again; the approval is sent, counted, traced, logged and reported once."""
    assert fixture.view() == ("due", "the rule approves it")
    assert fixture.approver.look()
    fixture.approver.look()
    assert fixture.azure.asked == [(), (FREEZE_ID,)]
    assert fixture.counted == [("all", ApprovalOutcome.APPROVED)]
    assert fixture.traced == [f"{FREEZE_ID.lower()} by all"]
    assert fixture.view() == ("approved", "this exporter approved it")
    assert fixture.reported == [
        Finding(FREEZE_ID.lower(), Transition.APPROVED, fixture.clock.now(), instance=VM)
    ]


@pytest.mark.parametrize(
    "fresh",
    [
        body(),
        body(raw_event(EventStatus="Started", NotBefore="")),
        body(raw_event(EventType="Reboot")),
        body(raw_event(Resources=["other"])),
        body(raw_event(Resources=[])),
    ],
)
def test_what_changed_meanwhile_is_not_approved(fixture: ApproverFixture, fresh: bytes) -> None:
    """The newest document counts, not the one at the time of the decision."""
    fixture.azure.body = fresh
    fixture.approver.look()
    assert fixture.azure.posts == []
    assert fixture.store.approvals.find(FREEZE_ID.lower()) is None


def test_an_id_in_other_letters(fixture: ApproverFixture) -> None:
    """The id is sent as the newest document writes it, once the watch has seen it."""
    fixture.azure.body = body(raw_event(EventId=FREEZE_ID.lower()))
    fixture.approver.look()
    assert (fixture.azure.posts, fixture.polls) == ([], 1)
    fixture.show(scheduled(event_id=FREEZE_ID.lower()))
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID.lower()]


def test_a_required_hook(fixture: ApproverFixture) -> None:
    """An event waits for its hook, and is approved once that has succeeded."""
    fixture.change(rules=(replace(RULE, require_hooks=("drain",)),))
    fixture.approver.look()
    assert fixture.view() == ("waiting", "the hook drain did not run for it")
    occurrence = Occurrence(fixture.snapshot.current[0], Transition.SCHEDULED, fixture.clock.now())
    fixture.queue_hooks([Hook("drain", ("true",))], [occurrence])
    assert fixture.view() == ("waiting", "the hook drain has not ended yet")
    fixture.end_hook(HookOutcome.SUCCEEDED)
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]


def test_a_required_hook_that_runs_again_for_its_failure(fixture: ApproverFixture) -> None:
    """A hook that failed holds the approval, also if it succeeds when it runs for `hook_failed`."""
    fixture.change(rules=(replace(RULE, require_hooks=("drain",)),))
    transitions = (Transition.SCHEDULED, Transition.HOOK_FAILED)
    hooks = [Hook("drain", ("true",), Match(transitions=transitions))]
    occurrence = Occurrence(fixture.snapshot.current[0], Transition.SCHEDULED, fixture.clock.now())
    fixture.queue_hooks(hooks, [occurrence])
    fixture.end_hook(HookOutcome.FAILED)
    step = note(fixture.known, fixture.store.findings()[0], VM)
    assert step is not None
    fixture.record(step)
    fixture.queue_hooks(hooks, step.hookable)
    fixture.end_hook(HookOutcome.SUCCEEDED)
    fixture.approver.look()
    assert fixture.view() == ("hold", "the hook drain failed")


def test_what_the_fresh_document_brings_about_comes_first(fixture: ApproverFixture) -> None:
    """An event that changed since the last poll is approved only after the hooks for the change have run."""
    hooks = (Hook("prepare", ("true",), Match(transitions=(Transition.UPDATED,))),)
    fixture.change(hooks)
    moved = scheduled(description="another host")
    fixture.azure.body = body(raw_event(Description="another host"))
    fixture.approver.look()
    assert (fixture.azure.posts, fixture.polls) == ([], 1)
    step = fixture.show(moved)
    fixture.queue_hooks(hooks, step.hookable)
    fixture.approver.look()
    assert fixture.view() == ("waiting", "the hooks for its last update have not ended yet")
    fixture.end_hook(HookOutcome.FAILED)
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]


def test_a_new_life_needs_its_own_hooks_and_delay(fixture: ApproverFixture) -> None:
    """Approvals and delays before an event ended do not affect the event that returned."""
    rule = replace(RULE, delay=Duration(60), require_hooks=("drain",))
    fixture.change(rules=(rule,))
    fixture.clock.pass_seconds(3600)
    fixture.show()
    fixture.show(scheduled())
    assert fixture.snapshot.current[0].life == 2
    assert fixture.view()[0] == "waiting"
    fixture.clock.pass_seconds(60)
    assert fixture.view() == ("waiting", "the hook drain did not run for it")


def test_a_step_of_the_clock_makes_nothing_come_earlier(fixture: ApproverFixture) -> None:
    """Delays and the hourly limit count by the monotonic clock while the process lives."""
    fixture.change(rules=(replace(RULE, delay=Duration(60)),), max_per_hour=1)
    fixture.clock.set_wall(fixture.clock.now() + timedelta(hours=5))
    fixture.approver.look()
    assert (fixture.view()[0], fixture.azure.posts) == ("waiting", [])
    fixture.clock.pass_seconds(60)
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]
    fixture.change(rules=(RULE,))
    fixture.clock.set_wall(fixture.clock.now() + timedelta(hours=5))
    fixture.azure.body = body(raw_event(EventId="b"))
    fixture.show(scheduled(event_id="b"))
    fixture.approver.look()
    assert fixture.view()[0] == "limited"


def test_a_dry_run_sends_nothing(fixture: ApproverFixture, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted and logged once, and shown."""
    caplog.set_level(logging.INFO)
    fixture.change(mode=Mode.DRY_RUN)
    fixture.approver.look()
    fixture.approver.look()
    assert fixture.azure.asked == []
    assert fixture.counted == [("all", ApprovalOutcome.DRY_RUN)]
    assert fixture.view()[0] == "dry_run"
    assert [record.getMessage() for record in caplog.records] == ["approval"]


def test_the_reason_is_logged_once(fixture: ApproverFixture, caplog: pytest.LogCaptureFixture) -> None:
    """Why an event is held is said once, and again when it changes."""
    caplog.set_level(logging.INFO)
    fixture.change(rules=())
    for _ in range(3):
        fixture.approver.look()
    fixture.change(rules=(Rule("none", "hold"),))
    for _ in range(3):
        fixture.approver.look()
    assert [vars(record)["reason"] for record in caplog.records] == ["no rule matches", "the rule holds it"]


def has_thread() -> bool:
    """Return whether an approver works."""
    return any(thread.name == "approver" for thread in threading.enumerate())


def test_off_does_nothing(fixture: ApproverFixture) -> None:
    """With approvals off there is no thread, no request, and nothing is said."""
    fixture.change(mode=Mode.OFF)
    fixture.approver.wake()
    assert not has_thread()
    assert not fixture.approver.look()
    assert fixture.view() == (None, None)


def test_the_thread_works_when_something_is_pending(fixture: ApproverFixture) -> None:
    """It starts with the first event, approves it, and ends when stopped."""
    empty, fixture.snapshot = fixture.snapshot, replace(fixture.snapshot, current=())
    fixture.approver.configure(fixture.settings, fixture.azure)
    assert not has_thread()
    fixture.snapshot = empty
    fixture.approver.wake()
    eventually(lambda: fixture.azure.posts == [FREEZE_ID])
    eventually(lambda: fixture.view()[0] == "approved")
    assert fixture.approver.stop(10)


def test_an_error_of_ours_ends_no_thread(fixture: ApproverFixture) -> None:
    """A bug is logged, and the next look may go well."""
    fixture.azure.fetch_error = KeyError("x")
    fixture.approver.configure(fixture.settings, fixture.azure)
    eventually(lambda: fixture.azure.asked)
    fixture.azure.fetch_error = None

    def posted() -> bool:
        # It would look again by itself, but not at once.
        fixture.approver.wake()
        return fixture.azure.posts == [FREEZE_ID]

    eventually(posted)
    assert fixture.approver.stop(10)
