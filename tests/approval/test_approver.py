"""Tests of `exporter.approval.approver`: acting on decisions, whatever IMDS and the disk do."""

import logging
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
from exporter.health import Health
from exporter.hooks.jobs import compose
from exporter.metrics import ApprovalOutcome
from exporter.model.advance import advance, approve
from exporter.model.events import Document, ScheduledEvent
from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import Known, Occurrence, Step, TrackedEvent, Transition
from exporter.model.snapshot import Snapshot
from exporter.state import Store
from exporter.timefmt import Duration
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


class Court:
    """An approver with everything around it."""

    def __init__(self, directory: Path, **fields: Any) -> None:
        self.directory = directory
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.azure = Azure()
        self.counted: list[tuple[str, ApprovalOutcome]] = []
        self.traced: list[str] = []
        self.polls = 0
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
            counts=self,
            tracer=self,
            clock=self.clock,
            known=self.known,
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
        self, tracked: TrackedEvent, rule: str, begun: datetime, sent: datetime, *, instance: str | None
    ) -> None:
        """Trace."""
        assert begun <= sent
        assert instance == VM
        self.traced.append(f"{tracked.key} by {rule}")

    def show(self, *events: ScheduledEvent) -> Step:
        """Have the poller see a document; return what it did."""
        step = advance(self.known, Document(1, events), self.clock.now(), instance=VM, watching=True)
        self.store.record(step)
        self.known = step.known
        self.snapshot = msgspec.structs.replace(
            self.snapshot, current=tuple(reversed(step.known.current.values()))
        )
        self.approver._ages.note(self.snapshot.current)
        return step

    def change(self, **fields: Any) -> None:
        """Change the approvals' settings, as a reload does."""
        self.settings = Config(approval=msgspec.structs.replace(self.settings.approval, **fields))
        self.approver._config = self.settings

    def view(self) -> tuple[str | None, str | None]:
        """Return how the only event stands, and why."""
        found = self.approver.view(self.snapshot.current[0])
        return found.state, found.reason


@pytest.fixture
def court(tmp_path: Path) -> Iterator[Court]:
    """Set up one Freeze of this VM, and a rule that approves it."""
    found = Court(tmp_path)
    yield found
    found.store.close()


def test_an_event_is_approved_once(court: Court) -> None:
    """It is fetched again, sent, counted, traced, logged and told, and all that once."""
    assert court.view() == ("due", "the rule approves it")
    assert court.approver.look()
    court.approver.look()
    assert (court.azure.fetches, court.azure.posts) == (1, [FREEZE_ID])
    assert court.counted == [("all", APPROVED)]
    assert court.traced == [f"{FREEZE_ID.lower()} by all"]
    assert court.view() == ("approved", "this exporter approved it")
    assert [approval.key for approval in court.approver.take_sent()] == [FREEZE_ID.lower()]
    assert court.approver.take_sent() == []


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
def test_what_changed_meanwhile_is_not_approved(court: Court, fresh: bytes) -> None:
    """What the newest document says counts, not what was known when it was decided."""
    court.azure.body = fresh
    court.approver.look()
    assert court.azure.posts == []
    assert court.store.approvals.find(FREEZE_ID.lower()) is None


def test_an_id_in_other_letters(court: Court) -> None:
    """The id is sent as the newest document writes it, once the watch has seen it."""
    court.azure.body = body(raw_event(EventId=FREEZE_ID.lower()))
    court.approver.look()
    assert (court.azure.posts, court.polls) == ([], 1)
    court.show(scheduled(event_id=FREEZE_ID.lower()))
    court.approver.look()
    assert court.azure.posts == [FREEZE_ID.lower()]


def test_errors_are_tried_again(court: Court, caplog: pytest.LogCaptureFixture) -> None:
    """Soon at first, at most 20 s apart, each time after a fetch; said once; and then it is approved once."""
    caplog.set_level(logging.INFO)
    court.azure.error = DOWN
    at = []
    for _ in range(90):
        before = len(court.azure.posts)
        court.approver.look()
        at += [court.clock.monotonic() - 1000] * (len(court.azure.posts) - before)
        court.clock.pass_seconds(1)
    assert at == [0, 1, 3, 7, 15, 31, 51, 71]
    assert court.azure.fetches == len(at)
    assert court.view() == ("failed", "POST: status 500")
    assert caplog.text.count("approval failed; trying again") == 1
    court.azure.error = None
    court.clock.pass_seconds(20)
    court.approver.look()
    assert court.view()[0] == "approved"
    assert court.counted == [("all", FAILED)] * 8 + [("all", APPROVED)]
    assert len(court.approver.take_sent()) == 1


def test_errors_end_with_not_before(court: Court, caplog: pytest.LogCaptureFixture) -> None:
    """From then on nothing is sent any more; it is reported once."""
    court.azure.error = DOWN
    court.approver.look()
    court.clock.set_wall(NOT_BEFORE)
    court.clock.pass_seconds(60)
    court.approver.look()
    court.approver.look()
    assert len(court.azure.posts) == 1
    assert court.view() == ("failed", "given up, as NotBefore has passed: POST: status 500")
    assert caplog.text.count("approval failed until NotBefore; given up") == 1


def test_a_fetch_that_fails_is_a_failure(court: Court) -> None:
    """Without a fresh document nothing is sent."""
    court.azure.body = b"{"
    court.approver.look()
    assert court.azure.posts == []
    assert court.counted == [("all", FAILED)]


def test_the_limit_counts_across_restarts(tmp_path: Path) -> None:
    """Only as many as allowed in an hour, whoever counts; an hour later it goes on."""
    court = Court(tmp_path, max_per_hour=1)
    court.approver.look()
    court.show(scheduled(), scheduled(event_id=REBOOT_ID))
    court.azure.body = body(raw_event(), raw_event(EventId=REBOOT_ID))
    court.restart()
    court.approver.look()
    court.approver.look()
    assert court.azure.posts == [FREEZE_ID]
    assert court.counted[1:] == [("all", ApprovalOutcome.LIMITED)]
    court.clock.pass_seconds(3601)
    court.approver.look()
    assert court.azure.posts == [FREEZE_ID, REBOOT_ID]
    court.store.close()


def test_two_at_once_keep_to_the_limit(tmp_path: Path) -> None:
    """What was sent a moment ago counts for the next one of the same look."""
    court = Court(tmp_path, max_per_hour=1)
    court.show(scheduled(), scheduled(event_id=REBOOT_ID))
    court.azure.body = body(raw_event(), raw_event(EventId=REBOOT_ID))
    court.approver.look()
    assert len(court.azure.posts) == 1
    court.store.close()


def test_a_crash_before_the_answer(court: Court) -> None:
    """What was sent without an answer is known, counts for the limit, and is sent again after the restart."""
    court.azure.error = DOWN
    court.approver.look()
    court.restart()
    (known,) = [court.store.approvals.find(FREEZE_ID.lower())]
    assert known is not None
    assert known.sent is None
    assert [approval.event_id for approval in court.store.approvals.known()] == [FREEZE_ID]
    court.azure.error = None
    court.approver.look()
    assert court.azure.posts == [FREEZE_ID, FREEZE_ID]
    assert court.view()[0] == "approved"


def test_a_crash_before_the_answer_and_rules_that_changed(court: Court) -> None:
    """What was decided before a restart is decided again after it."""
    court.azure.error = DOWN
    court.approver.look()
    court.restart()
    court.change(rules=(Rule("none", "hold"),))
    court.clock.pass_seconds(20)
    court.approver.look()
    assert court.azure.posts == [FREEZE_ID]
    assert court.view() == ("hold", "the rule holds it")


def test_a_crash_after_the_answer(court: Court) -> None:
    """An approval that is not a transition yet when the process dies becomes one after the restart, once."""
    court.approver.look()
    court.restart()
    court.approver.look()
    assert court.azure.posts == [FREEZE_ID]
    (approval,) = court.approver.take_sent()
    step = approve(court.known, approval.key, court.clock.now())
    assert step is not None
    court.store.record(step)
    court.known = Known()
    court.restart()
    assert court.approver.take_sent() == []


def test_it_is_known_before_it_is_sent(court: Court) -> None:
    """At the moment of the request the disk has it already."""

    def look_from_outside() -> None:
        (approval,) = on_disk(court.directory, "approval").values()
        assert (approval["key"], approval["sent"]) == (FREEZE_ID.lower(), None)

    court.azure.before_answer = look_from_outside
    court.approver.look()
    assert court.view()[0] == "approved"


def test_a_disk_that_takes_nothing(court: Court) -> None:
    """What could not be remembered is not sent, and the reason is shown; later it is."""
    with no_room_for_files():
        court.approver.look()
    assert court.azure.posts == []
    assert court.view() == ("failed", "the state cannot be written, so nothing would remember it")
    court.clock.pass_seconds(30)
    court.store.retry()
    court.approver.look()
    assert court.azure.posts == [FREEZE_ID]


def test_a_required_hook(court: Court) -> None:
    """An event waits for its hook, and is approved once that has succeeded."""
    court.change(rules=(msgspec.structs.replace(RULE, require_hooks=("drain",)),))
    court.approver.look()
    assert court.view() == ("waiting", "the hook drain did not run for it")
    occurrence = Occurrence(court.snapshot.current[0], Transition.SCHEDULED, court.clock.now())
    jobs = compose([Hook("drain", ("true",))], [occurrence], instance=VM, now=court.clock.now())
    queue(court.store, jobs)
    assert court.view() == ("waiting", "the hook drain has not ended yet")
    waiting = court.store.hook_jobs.next_of(FREEZE_ID.lower())
    assert waiting is not None
    court.store.hook_jobs.finish(waiting, HookOutcome.SUCCEEDED, court.clock.now())
    court.approver.look()
    assert court.azure.posts == [FREEZE_ID]


def test_what_the_fresh_document_brings_about_comes_first(court: Court) -> None:
    """An event that changed since the last poll is approved only after the hooks for the change have run."""
    hooks = (Hook("prepare", ("true",), Match(transitions=(Transition.UPDATED,))),)
    court.settings = msgspec.structs.replace(court.settings, hooks=hooks)
    court.approver._config = court.settings
    moved = scheduled(description="another host")
    court.azure.body = body(raw_event(Description="another host"))
    court.approver.look()
    assert (court.azure.posts, court.polls) == ([], 1)
    step = court.show(moved)
    queue(court.store, compose(hooks, step.hookable, instance=VM, now=court.clock.now()))
    court.approver.look()
    assert court.view() == ("waiting", "the hooks for its last update have not ended yet")
    waiting = court.store.hook_jobs.next_of(FREEZE_ID.lower())
    assert waiting is not None
    court.store.hook_jobs.finish(waiting, HookOutcome.FAILED, court.clock.now())
    court.approver.look()
    assert court.azure.posts == [FREEZE_ID]


def test_a_new_life_needs_its_own_hooks_and_delay(court: Court) -> None:
    """What was done and waited for before an event ended says nothing about the event that returned."""
    rule = msgspec.structs.replace(RULE, delay=Duration(60), require_hooks=("drain",))
    court.change(rules=(rule,))
    court.clock.pass_seconds(3600)
    court.show()
    court.show(scheduled())
    assert court.snapshot.current[0].life == 2
    assert court.view()[0] == "waiting"
    court.clock.pass_seconds(60)
    assert court.view() == ("waiting", "the hook drain did not run for it")


def test_a_step_of_the_clock_makes_nothing_come_earlier(court: Court) -> None:
    """Delays and the hourly limit count by the monotonic clock while the process lives."""
    court.change(rules=(msgspec.structs.replace(RULE, delay=Duration(60)),), max_per_hour=1)
    court.clock.set_wall(court.clock.now() + timedelta(hours=5))
    court.approver.look()
    assert (court.view()[0], court.azure.posts) == ("waiting", [])
    court.clock.pass_seconds(60)
    court.approver.look()
    assert court.azure.posts == [FREEZE_ID]
    court.change(rules=(RULE,))
    court.clock.set_wall(court.clock.now() + timedelta(hours=5))
    court.azure.body = body(raw_event(EventId="b"))
    court.show(scheduled(event_id="b"))
    court.approver.look()
    assert court.view()[0] == "limited"


def test_a_dry_run_sends_nothing(court: Court, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted and logged once, and shown."""
    caplog.set_level(logging.INFO)
    court.change(mode=Mode.DRY_RUN)
    court.approver.look()
    court.approver.look()
    assert (court.azure.fetches, court.azure.posts) == (0, [])
    assert court.counted == [("all", ApprovalOutcome.DRY_RUN)]
    assert court.view()[0] == "dry_run"
    assert [record.getMessage() for record in caplog.records] == ["approval"]


def test_the_reason_is_logged_once(court: Court, caplog: pytest.LogCaptureFixture) -> None:
    """Why an event is held is said once, and again when it changes."""
    caplog.set_level(logging.INFO)
    court.change(rules=())
    for _ in range(3):
        court.approver.look()
    court.change(rules=(Rule("none", "hold"),))
    for _ in range(3):
        court.approver.look()
    assert [vars(record)["reason"] for record in caplog.records] == ["no rule matches", "the rule holds it"]


def test_off_does_nothing(court: Court) -> None:
    """With approvals off there is no thread, no request, and nothing is said."""
    court.change(mode=Mode.OFF)
    court.approver.wake()
    assert court.approver._thread.ident is None
    assert not court.approver.look()
    assert court.view() == (None, None)


def test_the_thread_works_when_something_is_pending(court: Court) -> None:
    """It begins with the first event, approves it, and ends when told to."""
    empty, court.snapshot = court.snapshot, msgspec.structs.replace(court.snapshot, current=())
    court.approver.configure(court.settings, court.azure)
    assert court.approver._thread.ident is None
    court.snapshot = empty
    court.approver.wake()
    eventually(lambda: court.azure.posts == [FREEZE_ID])
    eventually(lambda: court.view()[0] == "approved")
    assert court.approver.stop(10)


def test_an_error_of_ours_ends_no_thread(court: Court) -> None:
    """A bug is logged, and the next look may go well."""

    def fail() -> bytes:
        court.azure.fetch = Azure.fetch.__get__(court.azure)  # type: ignore[method-assign]  # as it was
        raise KeyError("x")

    court.azure.fetch = fail  # type: ignore[method-assign]  # an error where none is expected
    court.approver.configure(court.settings, court.azure)
    eventually(lambda: court.azure.posts == [FREEZE_ID])
    assert court.approver.stop(10)
