"""Several approvals at a time: one document, one request, and what one id does to the others."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from exporter.approval import Approver
from exporter.config import Approval, Config, Mode, Rule
from exporter.errors import ImdsError, PollOutcome
from exporter.health import Health
from exporter.metrics import ApprovalOutcome
from exporter.model.jobs import Finding, Span
from exporter.model.lifecycle import Known, TrackedEvent
from exporter.model.views import Snapshot
from exporter.state import Store
from tests.builders import body, raw_event, scheduled
from tests.clocks import NOW, HandClock

IDS = ("a", "b", "c")
REFUSED = ImdsError(PollOutcome.HTTP_ERROR, "status 400")
SILENT = ImdsError(PollOutcome.TIMEOUT, "no answer")


class ApproverFixture:
    """An approver of three events, and an IMDS that refuses some ids, or all with an error."""

    def __init__(self, store: Store, clock: HandClock) -> None:
        self.asked: list[str] = []
        self.bad: set[str] = set()
        self.error: ImdsError | None = None
        self.fetch_error: ImdsError | None = None
        self.listed: tuple[str, ...] = IDS
        self.outcomes: list[ApprovalOutcome] = []
        self.reported: list[Finding] = []
        self.approver = Approver(
            approvals=store.approvals,
            jobs=store.hook_jobs,
            snapshot=self.snapshot,
            count=self.decided,
            trace=self.approved,
            clock=clock,
            known=Known(),
            report=self.reported.append,
        )
        self.approver.configure(Config(), self)

    def set_limit(self, limit: int) -> None:
        """Approve everything, up to a limit; not by `configure`, which would start a thread."""
        rules = (Rule("all", "approve"),)
        self.approver._config = Config(approval=Approval(mode=Mode.ON, max_per_hour=limit, rules=rules))

    @property
    def tracked(self) -> dict[str, TrackedEvent]:
        """The events as the watch knows them."""
        return {key: TrackedEvent(scheduled(event_id=key), (key,), first_seen=NOW) for key in IDS}

    def snapshot(self) -> Snapshot:
        """Return what the watch knows, newest first."""
        current = tuple(reversed(self.tracked.values()))
        return Snapshot(instance="WestNO_0", up=True, ready=True, current=current)

    def fetch(self) -> bytes:
        """Return the document."""
        self.asked.append("document")
        if self.fetch_error is not None:
            raise self.fetch_error
        return body(*(raw_event(EventId=key) for key in self.listed))

    def approve(self, event_ids: list[str]) -> None:
        """Take them, all or none."""
        self.asked.append("".join(event_ids))
        if self.error is not None:
            raise self.error
        if self.bad & set(event_ids):
            raise REFUSED

    def decided(self, rule: str, outcome: ApprovalOutcome) -> None:
        """Count."""
        assert rule == "all"
        self.outcomes.append(outcome)

    def approved(
        self, tracked: TrackedEvent, rule: str, times: tuple[datetime, datetime], instance: str | None
    ) -> list[Span]:
        """Take it in."""
        assert (tracked.key in IDS, rule, times, instance) == (True, "all", (NOW, NOW), "WestNO_0")
        return []

    @property
    def states(self) -> list[str | None]:
        """What is shown of each event."""
        return [self.approver.view(tracked).state for tracked in self.tracked.values()]


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ApproverFixture]:
    """Return an fixture that approves everything, until the end of the test."""
    with opened(tmp_path) as found:
        found.set_limit(10)
        yield found


@contextmanager
def opened(folder: Path) -> Iterator[ApproverFixture]:
    """Open an fixture with a state of its own."""
    clock = HandClock()
    store = Store.open(folder, health=Health(clock), clock=clock)
    try:
        yield ApproverFixture(store, clock)
    finally:
        store.close()


def test_one_document_and_one_request(fixture: ApproverFixture) -> None:
    """What is due at the same time goes together, the oldest first, and once."""
    fixture.approver.look()
    fixture.approver.look()
    assert fixture.asked == ["document", "abc"]
    assert fixture.states == ["approved"] * 3
    assert [finding.key for finding in fixture.reported] == list(IDS)


def test_the_limit_holds_within_a_request(fixture: ApproverFixture) -> None:
    """What goes together counts one by one."""
    fixture.set_limit(2)
    fixture.approver.look()
    assert fixture.asked == ["document", "ab"]
    assert fixture.states == ["approved", "approved", "limited"]


def test_only_what_the_fresh_document_lists_goes(fixture: ApproverFixture) -> None:
    """An event that has gone meanwhile is no part of the request; with none left there is none."""
    fixture.listed = ("a", "c")
    fixture.approver.look()
    assert fixture.asked == ["document", "ac"]
    fixture.listed = ()
    fixture.approver.look()
    assert fixture.asked[2:] == ["document"]


def test_an_id_that_is_refused_holds_back_no_other(fixture: ApproverFixture) -> None:
    """Where Azure refuses a request, each id is decided anew and sent by itself; only the bad one failed."""
    fixture.bad = {"b"}
    fixture.approver.look()
    assert fixture.asked == ["document", "abc", "document", "a", "document", "b", "document", "c"]
    assert fixture.states == ["approved", "failed", "approved"]
    assert fixture.outcomes.count(ApprovalOutcome.FAILED) == 1


@pytest.mark.parametrize("step", ["fetch_error", "error"])
def test_silence_is_waited_for_once(fixture: ApproverFixture, step: str) -> None:
    """An IMDS that does not answer costs one timeout for all, not one for each."""
    setattr(fixture, step, SILENT)
    fixture.approver.look()
    assert fixture.asked == (["document"] if step == "fetch_error" else ["document", "abc"])
    assert fixture.states == ["failed"] * 3
    assert fixture.outcomes == [ApprovalOutcome.FAILED] * 3
