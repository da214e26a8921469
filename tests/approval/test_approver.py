"""Tests of `exporter.approval.approver`: acting on decisions, whatever IMDS and the disk do."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.approval import Approver
from exporter.config import Approval, Config, Hook, Mode, Rule
from exporter.config.match import Match
from exporter.errors import ImdsError, PollOutcome
from exporter.health import DegradedReason, Health
from exporter.hooks.jobs import compose
from exporter.metrics import ApprovalOutcome
from exporter.model.advance import advance
from exporter.model.documents import Document
from exporter.model.events import ScheduledEvent
from exporter.model.jobs import Finding, HookOutcome, Span, note
from exporter.model.lifecycle import Known, Occurrence, Step, TrackedEvent, Transition
from exporter.model.views import Snapshot
from exporter.state import Store
from exporter.timefmt import Duration, rfc3339
from tests.builders import FREEZE_ID, NOT_BEFORE, REBOOT_ID, body, raw_event, scheduled
from tests.clocks import HandClock
from tests.end_to_end.program import eventually
from tests.state_support import no_room_for_files, on_disk, queue

VM = "WestNO_0"
RULE = Rule("all", "approve", Match(event_types=("Freeze",)))
DOWN = ImdsError(PollOutcome.HTTP_ERROR, "POST: status 500")
APPROVED, FAILED = ApprovalOutcome.APPROVED, ApprovalOutcome.FAILED


class Azure:
    """Serves a document, and keeps what is approved."""

    def __init__(self) -> None:
        self.body = body(raw_event())
        self.error: ImdsError | None = None
        self.before_answer: Callable[[], None] = lambda: None
        self.posts: list[str] = []
        self.fetches = 0

    def fetch(self) -> bytes:
        """Return the document."""
        self.fetches += 1
        return self.body

    def approve(self, event_ids: Sequence[str]) -> None:
        """Take ids, or raise."""
        self.posts += event_ids
        self.before_answer()
        if self.error is not None:
            raise self.error


class ApproverFixture:
    """An approver with everything around it."""

    def __init__(self, directory: Path, **fields: Any) -> None:
        self.directory = directory
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.azure = Azure()
        self.counted: list[tuple[str, ApprovalOutcome]] = []
        self.traced: list[str] = []
        self.polls = 0
        self.reported: list[Finding] = []
        self.settings = Config(approval=Approval(**({"mode": Mode.ON, "rules": (RULE,)} | fields)))
        self.known = Known()
        self.open()
        self.show(scheduled())

    def open(self) -> None:
        """Start as a new process does."""
        self.store = Store.open(self.directory, health=self.health, clock=self.clock)
        loaded = self.store.load()
        self.known = loaded if loaded.current else self.known
        self.snapshot = Snapshot(
            instance=VM, ready=True, up=True, current=tuple(reversed(self.known.current.values()))
        )
        self.approver = Approver(
            approvals=self.store.approvals,
            jobs=self.store.hook_jobs,
            snapshot=lambda: self.snapshot,
            count=self.decided,
            trace=self.approved,
            clock=self.clock,
            known=self.known,
            report=self.reported.append,
            poll=self.poll,
        )
        self.approver._config, self.approver._azure = self.settings, self.azure

    def restart(self) -> None:
        """End this process without a word, and start another at the same state."""
        self.store.close()
        self.open()

    def poll(self) -> None:
        """Count."""
        self.polls += 1

    def decided(self, rule: str, outcome: ApprovalOutcome) -> None:
        """Count."""
        self.counted.append((rule, outcome))

    def approved(
        self, tracked: TrackedEvent, rule: str, times: tuple[datetime, datetime], instance: str | None
    ) -> list[Span]:
        """Trace."""
        assert times[0] <= times[1]
        assert instance == VM
        self.traced.append(f"{tracked.key} by {rule}")
        return []

    def show(self, *events: ScheduledEvent) -> Step:
        """Process a document as the poller does, and return the step."""
        step = advance(self.known, Document(1, events), self.clock.now(), instance=VM, watching=True)
        self.record(step)
        return step

    def record(self, step: Step) -> None:
        """Write a step down and publish it, as the watch does."""
        self.store.record(step)
        self.known = step.known
        self.snapshot = msgspec.structs.replace(
            self.snapshot, current=tuple(reversed(step.known.current.values()))
        )
        self.approver._ages.note(self.snapshot.current)

    def end_hook(self, outcome: HookOutcome) -> None:
        """End the only hook that waits."""
        ((key, _),) = self.store.hook_jobs.first(FREEZE_ID.lower(), 2)
        self.store.hook_jobs.finish(key, outcome, self.clock.now())

    def change(self, **fields: Any) -> None:
        """Change the approvals' settings, as a reload does."""
        self.settings = Config(approval=msgspec.structs.replace(self.settings.approval, **fields))
        self.approver._config = self.settings

    def view(self) -> tuple[str | None, str | None]:
        """Return the state of the only event's approval, and why."""
        found = self.approver.view(self.snapshot.current[0])
        return found.state, found.reason


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ApproverFixture]:
    """Set up one Freeze of this VM, and a rule that approves it."""
    found = ApproverFixture(tmp_path)
    yield found
    found.store.close()


def test_an_event_is_approved_once(fixture: ApproverFixture) -> None:
    """It is fetched again, sent, counted, traced, logged and told, and all that once."""
    assert fixture.view() == ("due", "the rule approves it")
    assert fixture.approver.look()
    fixture.approver.look()
    assert (fixture.azure.fetches, fixture.azure.posts) == (1, [FREEZE_ID])
    assert fixture.counted == [("all", APPROVED)]
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
    """What the newest document says counts, not what was known when it was decided."""
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


def test_errors_are_tried_again(fixture: ApproverFixture, caplog: pytest.LogCaptureFixture) -> None:
    """Soon at first, at most 20 s apart, each time after a fetch; said once; and then it is approved once."""
    caplog.set_level(logging.INFO)
    fixture.azure.error = DOWN
    at = []
    for _ in range(90):
        before = len(fixture.azure.posts)
        fixture.approver.look()
        at += [fixture.clock.monotonic() - 1000] * (len(fixture.azure.posts) - before)
        fixture.clock.pass_seconds(1)
    assert at == [0, 1, 3, 7, 15, 31, 51, 71]
    assert fixture.azure.fetches == len(at)
    assert fixture.view() == ("failed", "POST: status 500")
    assert caplog.text.count("approval failed; trying again") == 1
    fixture.azure.error = None
    fixture.clock.pass_seconds(20)
    fixture.approver.look()
    assert fixture.view()[0] == "approved"
    assert fixture.counted == [("all", FAILED)] * 8 + [("all", APPROVED)]
    assert len(fixture.reported) == 1


def test_errors_end_with_not_before(fixture: ApproverFixture, caplog: pytest.LogCaptureFixture) -> None:
    """From then on nothing is sent any more; it is reported once."""
    fixture.azure.error = DOWN
    fixture.approver.look()
    fixture.clock.set_wall(NOT_BEFORE)
    fixture.clock.pass_seconds(60)
    fixture.approver.look()
    fixture.approver.look()
    assert len(fixture.azure.posts) == 1
    assert fixture.view() == ("failed", "given up, as NotBefore has passed: POST: status 500")
    assert caplog.text.count("approval failed until NotBefore; given up") == 1


def test_a_fetch_that_fails_is_a_failure(fixture: ApproverFixture) -> None:
    """Without a fresh document nothing is sent."""
    fixture.azure.body = b"{"
    fixture.approver.look()
    assert fixture.azure.posts == []
    assert fixture.counted == [("all", FAILED)]


def test_the_limit_counts_across_restarts(tmp_path: Path) -> None:
    """Only as many as allowed in an hour, whoever counts; an hour later it goes on."""
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


def test_two_at_once_keep_to_the_limit(tmp_path: Path) -> None:
    """What was sent a moment ago counts for the next one of the same look."""
    fixture = ApproverFixture(tmp_path, max_per_hour=1)
    fixture.show(scheduled(), scheduled(event_id=REBOOT_ID))
    fixture.azure.body = body(raw_event(), raw_event(EventId=REBOOT_ID))
    fixture.approver.look()
    assert len(fixture.azure.posts) == 1
    fixture.store.close()


def test_a_crash_before_the_answer(fixture: ApproverFixture) -> None:
    """What was sent without an answer is known, counts for the limit, and is sent again after the restart."""
    fixture.azure.error = DOWN
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
    fixture.azure.error = DOWN
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


def test_a_required_hook(fixture: ApproverFixture) -> None:
    """An event waits for its hook, and is approved once that has succeeded."""
    fixture.change(rules=(msgspec.structs.replace(RULE, require_hooks=("drain",)),))
    fixture.approver.look()
    assert fixture.view() == ("waiting", "the hook drain did not run for it")
    occurrence = Occurrence(fixture.snapshot.current[0], Transition.SCHEDULED, fixture.clock.now())
    jobs = compose([Hook("drain", ("true",))], [occurrence], instance=VM, now=fixture.clock.now())
    queue(fixture.store, jobs)
    assert fixture.view() == ("waiting", "the hook drain has not ended yet")
    fixture.end_hook(HookOutcome.SUCCEEDED)
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]


def test_a_required_hook_that_runs_again_for_its_failure(fixture: ApproverFixture) -> None:
    """A hook that failed holds the approval, also if it succeeds when it runs for `hook_failed`."""
    fixture.change(rules=(msgspec.structs.replace(RULE, require_hooks=("drain",)),))
    transitions = (Transition.SCHEDULED, Transition.HOOK_FAILED)
    hooks = [Hook("drain", ("true",), Match(transitions=transitions))]
    occurrence = Occurrence(fixture.snapshot.current[0], Transition.SCHEDULED, fixture.clock.now())
    queue(fixture.store, compose(hooks, [occurrence], instance=VM, now=fixture.clock.now()))
    fixture.end_hook(HookOutcome.FAILED)
    step = note(fixture.known, fixture.store.findings()[0], VM)
    assert step is not None
    fixture.record(step)
    queue(fixture.store, compose(hooks, step.hookable, instance=VM, now=fixture.clock.now()))
    fixture.end_hook(HookOutcome.SUCCEEDED)
    fixture.approver.look()
    assert fixture.view() == ("hold", "the hook drain failed")


def test_what_the_fresh_document_brings_about_comes_first(fixture: ApproverFixture) -> None:
    """An event that changed since the last poll is approved only after the hooks for the change have run."""
    hooks = (Hook("prepare", ("true",), Match(transitions=(Transition.UPDATED,))),)
    fixture.settings = msgspec.structs.replace(fixture.settings, hooks=hooks)
    fixture.approver._config = fixture.settings
    moved = scheduled(description="another host")
    fixture.azure.body = body(raw_event(Description="another host"))
    fixture.approver.look()
    assert (fixture.azure.posts, fixture.polls) == ([], 1)
    step = fixture.show(moved)
    queue(fixture.store, compose(hooks, step.hookable, instance=VM, now=fixture.clock.now()))
    fixture.approver.look()
    assert fixture.view() == ("waiting", "the hooks for its last update have not ended yet")
    fixture.end_hook(HookOutcome.FAILED)
    fixture.approver.look()
    assert fixture.azure.posts == [FREEZE_ID]


def test_a_new_life_needs_its_own_hooks_and_delay(fixture: ApproverFixture) -> None:
    """What was done and waited for before an event ended says nothing about the event that returned."""
    rule = msgspec.structs.replace(RULE, delay=Duration(60), require_hooks=("drain",))
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
    fixture.change(rules=(msgspec.structs.replace(RULE, delay=Duration(60)),), max_per_hour=1)
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
    assert (fixture.azure.fetches, fixture.azure.posts) == (0, [])
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
    """It begins with the first event, approves it, and ends when told to."""
    empty, fixture.snapshot = fixture.snapshot, msgspec.structs.replace(fixture.snapshot, current=())
    fixture.approver.configure(fixture.settings, fixture.azure)
    assert not has_thread()
    fixture.snapshot = empty
    fixture.approver.wake()
    eventually(lambda: fixture.azure.posts == [FREEZE_ID])
    eventually(lambda: fixture.view()[0] == "approved")
    assert fixture.approver.stop(10)


def test_an_error_of_ours_ends_no_thread(fixture: ApproverFixture) -> None:
    """A bug is logged, and the next look may go well."""

    def fail() -> bytes:
        fixture.azure.fetch = Azure.fetch.__get__(fixture.azure)  # type: ignore[method-assign]  # as it was
        raise KeyError("x")

    fixture.azure.fetch = fail  # type: ignore[method-assign]  # an error where none is expected
    fixture.approver.configure(fixture.settings, fixture.azure)

    def posted() -> bool:
        # It would look again by itself, but not at once.
        fixture.approver.wake()
        return fixture.azure.posts == [FREEZE_ID]

    eventually(posted)
    assert fixture.approver.stop(10)


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
