"""The thread that approves: it looks at what is decided, acts where that is due, and tries again on errors.

Before anything is sent the document is fetched again. An event that changed is not approved: the watch takes
the change in first, with the hooks that it makes due. Otherwise the decision is taken again; then the
approval is written down, so that a crash can never leave one behind that nobody knows of; only then is it
sent.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from exporter.approval.ages import Ages
from exporter.approval.deciding import Decision, Facts, Stand, decide
from exporter.approval.ports import Azure, Counts, Traces
from exporter.clock import Clock
from exporter.config import Config, Mode
from exporter.errors import ImdsError, PollOutcome
from exporter.metrics import ApprovalOutcome
from exporter.model.events import SCHEDULED, decode_document, trace_id
from exporter.model.lifecycle import Known, TrackedEvent, Transition
from exporter.model.snapshot import Snapshot
from exporter.model.views import ApprovalView
from exporter.state.approvals import Approval, Approvals
from exporter.state.hook_jobs import HookJobs

log = logging.getLogger(__name__)

# Rules depend on the time of day and on the time left: while something is pending, they are asked so often.
_LOOK_SECONDS = 1.0
_FIRST_RETRY_SECONDS = 1.0
_MOST_RETRY_SECONDS = 20.0
_COUNTED = {Stand.DRY_RUN: ApprovalOutcome.DRY_RUN, Stand.LIMITED: ApprovalOutcome.LIMITED}


class _Trial(NamedTuple):
    """A try to approve that failed; ``try_at`` is on the monotonic clock."""

    failures: int
    try_at: float
    problem: str
    rule: str
    given_up: bool = False

    @property
    def reason(self) -> str:
        """Return what is wrong."""
        return f"given up, as NotBefore has passed: {self.problem}" if self.given_up else self.problem


_Due = tuple[TrackedEvent, Decision]


class Approver:
    """Approves what rules let proceed; `view` and `take_sent` are for any thread."""

    def __init__(  # noqa: PLR0913  # it is built in one place, by names
        self,
        *,
        approvals: Approvals,
        jobs: HookJobs,
        snapshot: Callable[[], Snapshot],
        counts: Counts,
        tracer: Traces,
        clock: Clock,
        known: Known,
        poll: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; ``poll`` is called to have the watch look at the document now."""
        self._approvals = approvals
        self._jobs = jobs
        self._snapshot = snapshot
        self._counts = counts
        self._tracer = tracer
        self._clock = clock
        self._ages = Ages(clock, known)
        self._poll = poll
        self._config = Config()
        self._azure: Azure | None = None
        self._trials: dict[str, _Trial] = {}
        self._said: dict[str, Decision] = {}
        self._sent: queue.SimpleQueue[Approval] = queue.SimpleQueue()
        for approval in approvals.sent():
            tracked = known.current.get(approval.key) or known.past.get(approval.key)
            if tracked is not None and not tracked.has(Transition.APPROVED):
                self._sent.put(approval)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        # IMDS may keep a request waiting; the end of the process must not.
        self._thread = threading.Thread(target=self._run, name="approver", daemon=True)

    def configure(self, settings: Config, azure: Azure) -> None:
        """Take over a configuration and a client, and look at everything again."""
        with self._lock:
            self._config, self._azure = settings, azure
            self._trials = {}
        self.wake()

    def wake(self) -> None:
        """Look at what is pending; the thread is started when there is something for the first time."""
        with self._lock:
            self._ages.note(self._snapshot().current)
            due = self._config.approval.mode is not Mode.OFF and bool(self._snapshot().current)
            if due and self._thread.ident is None and not self._stopping:
                self._thread.start()
        self._wake.set()

    def view(self, tracked: TrackedEvent) -> ApprovalView:
        """Return how approving an event stands, and why."""
        decision = self._decide(tracked, self._snapshot().instance)
        trial = self._trials.get(tracked.key)
        if decision.stand is Stand.DUE and trial is not None:
            decision = Decision(Stand.FAILED, decision.rule, trial.reason)
        return decision.view

    def take_sent(self) -> list[Approval]:
        """Return the approvals that Azure took and that are not transitions yet; each once."""
        found = []
        while not self._sent.empty():
            found.append(self._sent.get())
        return found

    def stop(self, timeout: float) -> bool:
        """Ask the thread to end, and return whether it did within ``timeout`` seconds."""
        with self._lock:
            self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                pending = self.look()
            except Exception:
                # A thread that ended would not be missed by anybody.
                log.exception("approving failed")
                pending = True
            self._wake.wait(_LOOK_SECONDS if pending else None)

    def look(self) -> bool:
        """Decide about all that is pending and act where that is due; return whether to look again soon."""
        snapshot = self._snapshot()
        keys = {tracked.key for tracked in snapshot.current}
        self._said = {key: said for key, said in self._said.items() if key in keys}
        self._trials = {key: trial for key, trial in self._trials.items() if key in keys}
        if self._config.approval.mode is Mode.OFF:
            return False
        if snapshot.instance is None and not snapshot.ready:
            # The first poll of this process will tell the name; that it is missing is no reason yet.
            return bool(keys)
        due = []
        for tracked in reversed(snapshot.current):
            decision = self._decide(tracked, snapshot.instance)
            self._say(tracked, decision)
            if decision.stand is Stand.DUE and self._may_try(tracked):
                due.append((tracked, decision))
        if due and not self._stopping:
            self._approve(due)
        return bool(keys)

    def _decide(self, tracked: TrackedEvent, instance: str | None) -> Decision:
        settings = self._config.approval
        known = self._approvals.find(tracked.key)
        facts = Facts(
            approved_by=known.rule if known is not None and known.sent is not None else "",
            asked_by=known.rule if known is not None and known.sent is None else "",
        )
        if tracked.ended is None and tracked.event.event_status == SCHEDULED:
            asks_hooks = any(rule.require_hooks for rule in settings.rules)
            facts = msgspec.structs.replace(
                facts,
                hooks=self._jobs.results(tracked.key) if asks_hooks else {},
                is_updating=self._is_updating(tracked),
                age=self._ages.of_life(tracked),
                within_hour=self._ages.count_recent(self._approvals.known(), but=tracked.key),
            )
        return decide(tracked, settings, instance, self._clock.now(), facts)

    def _is_updating(self, tracked: TrackedEvent) -> bool:
        """Return whether hooks for a change of the event have still to be queued, to run or to end."""
        if not self._config.hooks:
            return False
        return tracked.untold is not None or self._jobs.has_open_updates(tracked.key)

    def _say(self, tracked: TrackedEvent, decision: Decision) -> None:
        """Log, and count, what is decided, once for as long as it stays so."""
        before = self._said.get(tracked.key)
        if decision == before or decision.stand is None:
            return
        self._said[tracked.key] = decision
        if decision.stand in (Stand.DUE, Stand.APPROVED):
            return
        log.info("approval", extra=_facts(tracked, decision))
        new = before is None or (before.stand, before.rule) != (decision.stand, decision.rule)
        if decision.stand in _COUNTED and new:
            self._counts.decided(decision.rule, _COUNTED[decision.stand])

    def _may_try(self, tracked: TrackedEvent) -> bool:
        """Return whether to send now: at once, after an error some time later, and not beyond NotBefore."""
        trial = self._trials.get(tracked.key)
        if trial is None:
            return True
        not_before = tracked.event.not_before
        if not_before is None or self._clock.now() < not_before:
            return self._clock.monotonic() >= trial.try_at
        if not trial.given_up:
            self._trials[tracked.key] = trial._replace(given_up=True)
            failed = Decision(Stand.FAILED, trial.rule, trial.problem)
            log.error("approval failed until NotBefore; given up", extra=_facts(tracked, failed))
        return False

    def _approve(self, due: Sequence[_Due]) -> None:
        """Approve what is due and still is by a fresh document, in one request; note what fails."""
        azure = self._azure
        if azure is None or self._stopping:
            return
        begun, asked = self._clock.now(), self._clock.monotonic()
        try:
            document = decode_document(azure.fetch())
        except ImdsError as error:
            for tracked, decision in due:
                self._failed(tracked, decision, str(error), asked)
            return
        lives = {tracked.key: tracked for tracked in self._snapshot().current}
        unchanged = [lives[t.key] for t, _ in due if t.key in lives and lives[t.key].event in document.events]
        if len(unchanged) < len(due):
            self._poll()
        self._send(azure, [(t, d) for t in unchanged if (d := self._remember(t, begun, asked))], begun, asked)

    def _remember(self, tracked: TrackedEvent, begun: datetime, asked: float) -> Decision | None:
        """Decide again, and write it down; None where it is not to be approved now."""
        decision = self._decide(tracked, self._snapshot().instance)
        if decision.stand is not Stand.DUE:
            return None
        self._ages.note_approval(tracked.key)
        if self._approvals.decide(tracked.key, tracked.event.event_id, decision.rule, begun):
            return decision
        problem = "the state cannot be written, so nothing would remember it"
        self._failed(tracked, decision, problem, asked)
        return None

    def _send(self, azure: Azure, due: Sequence[_Due], begun: datetime, asked: float) -> None:
        if not due:
            return
        try:
            azure.approve([tracked.event.event_id for tracked, _ in due])
        except ImdsError as error:
            if error.reason is PollOutcome.HTTP_ERROR and len(due) > 1:
                # One id that Azure does not take must not hold back the others; each is decided anew.
                for one in due:
                    self._approve([one])
                return
            for tracked, decision in due:
                self._failed(tracked, decision, str(error), asked)
        else:
            for tracked, decision in due:
                self._succeeded(tracked, decision, begun)

    def _succeeded(self, tracked: TrackedEvent, decision: Decision, begun: datetime) -> None:
        now = self._clock.now()
        self._approvals.note_sent(tracked.key, now)
        self._trials.pop(tracked.key, None)
        self._counts.decided(decision.rule, ApprovalOutcome.APPROVED)
        log.info("approved", extra=_facts(tracked, decision))
        self._sent.put(Approval(tracked.key, tracked.event.event_id, decision.rule, begun, now))
        self._tracer.approved(tracked, decision.rule, begun, now, instance=self._snapshot().instance)

    def _failed(self, tracked: TrackedEvent, decision: Decision, problem: str, asked: float) -> None:
        before = self._trials.get(tracked.key)
        failures = before.failures + 1 if before else 1
        now = self._clock.monotonic()
        # From try to try: an IMDS that keeps one waiting must not make the next one late.
        delay = min(_FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 10), _MOST_RETRY_SECONDS - (now - asked))
        try_at = now + max(delay, _FIRST_RETRY_SECONDS)
        self._trials[tracked.key] = _Trial(failures, try_at, problem, decision.rule)
        self._counts.decided(decision.rule, ApprovalOutcome.FAILED)
        if before is None or before.problem != problem:
            failed = Decision(Stand.FAILED, decision.rule, problem)
            log.warning("approval failed; trying again", extra=_facts(tracked, failed))


def _facts(tracked: TrackedEvent, decision: Decision) -> Mapping[str, object]:
    return {
        "event_id": tracked.event.event_id,
        "trace_id": trace_id(tracked.ids[0]),
        "event_type": tracked.event.event_type,
        "stand": decision.stand,
        "rule": decision.rule,
        "reason": decision.reason,
    }
