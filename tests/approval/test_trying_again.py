"""When a failed approval is tried again: at most 20 s apart, until NotBefore, whatever that is by then."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from exporter.approval import Approver
from exporter.config import Approval, Config, Mode, Rule
from exporter.errors import ImdsError, PollOutcome
from exporter.health import Health
from exporter.metrics import ApprovalOutcome
from exporter.model.jobs import Span
from exporter.model.lifecycle import Known, TrackedEvent
from exporter.model.views import Snapshot
from exporter.state import Store
from tests.builders import FREEZE_ID, NOT_BEFORE, body, raw_event, scheduled
from tests.clocks import NOW, HandClock

ON = Config(approval=Approval(mode=Mode.ON, rules=(Rule("all", "approve"),)))


class ApproverFixture:
    """An approver with an IMDS that lists one event and refuses POSTs, each after so many seconds."""

    def __init__(self, store: Store, clock: HandClock, takes: float) -> None:
        self.clock = clock
        self.takes = takes
        self.tries: list[float] = []
        self.failures = 0
        self.event = scheduled()
        self.approver = Approver(
            approvals=store.approvals,
            jobs=store.hook_jobs,
            snapshot=self.snapshot,
            count=self.decided,
            trace=self.approved,
            clock=clock,
            known=Known(),
            report=lambda _: None,
        )
        self.approver.configure(Config(), self)
        # Not `configure`, which would start a thread.
        self.approver._config = ON

    @property
    def tracked(self) -> TrackedEvent:
        """The event as the watch knows it."""
        return TrackedEvent(self.event, (FREEZE_ID,), first_seen=NOW)

    def snapshot(self) -> Snapshot:
        """Return what the watch knows."""
        return Snapshot(instance="WestNO_0", up=True, ready=True, current=(self.tracked,))

    def fetch(self) -> bytes:
        """Return the document."""
        not_before = self.event.not_before
        assert not_before is not None
        return body(raw_event(NotBefore=not_before.isoformat()))

    def approve(self, event_ids: list[str]) -> None:
        """Refuse it."""
        assert event_ids == [FREEZE_ID]
        self.tries.append(self.clock.monotonic())
        self.clock.pass_seconds(self.takes)
        raise ImdsError(PollOutcome.TIMEOUT, "no answer")

    def decided(self, rule: str, outcome: ApprovalOutcome) -> None:
        """Count failures."""
        assert rule == "all"
        self.failures += outcome is ApprovalOutcome.FAILED

    def approved(
        self, tracked: TrackedEvent, rule: str, times: tuple[datetime, datetime], instance: str | None
    ) -> list[Span]:
        """Refuse to be told: nothing is ever approved here."""
        raise AssertionError((tracked, rule, times, instance))

    def look_for(self, seconds: float) -> None:
        """Look every second, as the thread does."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.approver.look()
            self.clock.pass_seconds(1)

    def reschedule(self, by: timedelta) -> None:
        """Move the event's NotBefore."""
        self.event = msgspec.structs.replace(self.event, not_before=NOT_BEFORE + by)


@contextmanager
def fixture(folder: Path, takes: float) -> Iterator[ApproverFixture]:
    """Return an fixture with a state of its own, until the end of the block."""
    clock = HandClock()
    store = Store.open(folder, health=Health(clock), clock=clock)
    try:
        yield ApproverFixture(store, clock, takes)
    finally:
        store.close()


@pytest.mark.parametrize("takes", [0.0, 10.0, 30.0])
def test_tries_are_at_most_20_s_apart(tmp_path: Path, takes: float) -> None:
    """From one try to the next, however long IMDS keeps a try waiting, unless that alone is longer."""
    with fixture(tmp_path, takes) as tried:
        tried.look_for(300)
        gaps = [later - earlier for earlier, later in itertools.pairwise(tried.tries)]
        assert len(gaps) > 5
        # The thread looks once a second.
        assert max(gaps) <= max(20.0, takes + 1) + 1
        assert tried.failures == len(tried.tries)


def test_it_gives_up_at_not_before(tmp_path: Path) -> None:
    """Nothing is tried once NotBefore has passed, and the reason tells both."""
    with fixture(tmp_path, 0.0) as tried:
        tried.look_for(15 * 60 + 60)
        assert NOW.timestamp() + tried.tries[-1] - 1000.0 < NOT_BEFORE.timestamp()
        assert tried.approver.view(tried.tracked).reason == "given up, as NotBefore has passed: no answer"


def test_it_takes_up_again_when_azure_waits_longer(tmp_path: Path) -> None:
    """An event that is put off after its NotBefore is tried again until the new one."""
    with fixture(tmp_path, 0.0) as tried:
        tried.look_for(15 * 60 + 60)
        before = len(tried.tries)
        tried.reschedule(timedelta(hours=1))
        tried.look_for(60)
        assert len(tried.tries) >= before + 2
        assert tried.approver.view(tried.tracked).reason == "no answer"
