"""The loop that approves events by the rules, and retries after errors.

Before an approval, the document is fetched again. An event that changed is not approved: the watch processes
the change first, with the hooks that it causes. Otherwise the decision is made again. The approval is
recorded on disk before it is sent, so that none is lost in a crash.
"""

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from exporter.approval.deciding import Ages, ApprovalState, Decision, Facts, decide
from exporter.clock import Clock
from exporter.config import Config, Mode
from exporter.errors import ImdsError, PollOutcome
from exporter.imds import ImdsClient
from exporter.metrics import ApprovalOutcome
from exporter.model.documents import decode_document
from exporter.model.events import SCHEDULED, trace_id
from exporter.model.jobs import Finding, HookOutcome, Span
from exporter.model.lifecycle import Known, TrackedEvent, Transition
from exporter.model.views import ApprovalView, Snapshot
from exporter.state.jobs import Approvals, HookJobs
from exporter.work import Backoff, Loop

log = logging.getLogger(__name__)

# Rules depend on the time of day and on the time left, so they are evaluated this often.
_LOOK_SECONDS = 1.0
_COUNTED = {ApprovalState.DRY_RUN: ApprovalOutcome.DRY_RUN, ApprovalState.LIMITED: ApprovalOutcome.LIMITED}
_LONGEST_RETRY_SECONDS = 20.0

_Due = tuple[TrackedEvent, Decision]


class _FailedAttempts:
    """Failed attempts to approve an event; ``try_at`` is on the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        # No jitter: only one of an event's VMs leads, so they do not try at the same time.
        self.backoff = Backoff(
            clock, early=math.inf, early_longest=_LONGEST_RETRY_SECONDS, chance=lambda: 0.0
        )
        self.rule = ""
        self.try_at = 0.0
        self.problem = ""
        self.given_up = False

    @property
    def decision(self) -> Decision:
        """The decision to show instead of the one that cannot be carried out."""
        reason = f"given up, as NotBefore has passed: {self.problem}" if self.given_up else self.problem
        return Decision(ApprovalState.FAILED, self.rule, reason)


class Approver:
    """Approves events by the rules; `view` is thread-safe."""

    def __init__(  # noqa: PLR0913  # it is built in one place, by names
        self,
        *,
        approvals: Approvals,
        jobs: HookJobs,
        snapshot: Callable[[], Snapshot],
        count: Callable[[str, ApprovalOutcome], None],
        trace: Callable[[TrackedEvent, str, tuple[datetime, datetime], str | None], Sequence[Span]],
        clock: Clock,
        known: Known,
        report: Callable[[Finding], None],
        poll: Callable[[], None] = lambda: None,
    ) -> None:
        """Create it, without starting a thread.

        ``count`` is called with the rule and the outcome of each attempt, ``report`` with each approval that
        Azure accepted, and ``poll`` to have the watch process the document now. ``trace`` returns the spans
        of an approval, from the event, the rule, its start and end, and this VM's name.
        """
        self._approvals = approvals
        self._jobs = jobs
        self._snapshot = snapshot
        self._count = count
        self._trace = trace
        self._clock = clock
        self._ages = Ages(clock, known)
        self._report = report
        self._poll = poll
        self._config = Config()
        self._azure: ImdsClient | None = None
        self._trials: dict[str, _FailedAttempts] = {}
        self._logged: dict[str, Decision] = {}
        self._lock = threading.Lock()
        self._loop = Loop("approver", self.look)

    def configure(self, settings: Config, azure: ImdsClient) -> None:
        """Apply a configuration and a client, and decide about all events again."""
        with self._lock:
            self._config, self._azure = settings, azure
            self._trials = {}
        self.wake()

    def wake(self) -> None:
        """Decide about pending events now; the thread is started with the first one."""
        with self._lock:
            self._ages.note(self._snapshot().current)
        if self._config.approval.mode is not Mode.OFF and self._snapshot().current:
            self._loop.start()
        self._loop.wake()

    def view(self, tracked: TrackedEvent) -> ApprovalView:
        """Return the state of an event's approval."""
        decision = self._decide(tracked, self._snapshot().instance)
        trial = self._trials.get(tracked.key)
        if decision.state is ApprovalState.DUE and trial is not None:
            decision = replace(trial.decision, rule=decision.rule)
        return decision.view

    def stop(self, timeout: float) -> bool:
        """Stop the thread; return whether it ended within ``timeout`` seconds."""
        self._loop.stop()
        return self._loop.join(timeout)

    def look(self) -> float | None:
        """Decide about all pending events and approve those that are due.

        Return the seconds until the next call; None while nothing is pending.
        """
        snapshot = self._snapshot()
        keys = {tracked.key for tracked in snapshot.current}
        self._logged = {key: said for key, said in self._logged.items() if key in keys}
        self._trials = {key: trial for key, trial in self._trials.items() if key in keys}
        if self._config.approval.mode is Mode.OFF or not keys:
            return None
        if snapshot.instance is None and not snapshot.ready:
            # The first poll of this process requests the name; until then it is not reported as missing.
            return _LOOK_SECONDS
        due = []
        for tracked in reversed(snapshot.current):
            decision = self._decide(tracked, snapshot.instance)
            self._log_change(tracked, decision)
            if decision.state is ApprovalState.DUE and self._may_try(tracked):
                due.append((tracked, decision))
        if due:
            self._approve(due)
        return _LOOK_SECONDS

    def _decide(self, tracked: TrackedEvent, instance: str | None) -> Decision:
        return decide(tracked, self._config.approval, instance, self._clock.now(), self._facts(tracked))

    def _facts(self, tracked: TrackedEvent) -> Facts:
        known = self._approvals.find(tracked.key)
        rule = known.rule if known is not None else ""
        approved_by, asked_by = (rule, "") if known is not None and known.sent is not None else ("", rule)
        if tracked.ended is not None or tracked.event.event_status != SCHEDULED:
            return Facts(approved_by, asked_by)
        asks_hooks = any(one.require_hooks for one in self._config.approval.rules)
        return Facts(
            approved_by,
            asked_by,
            hooks=self._hook_results(tracked) if asks_hooks else {},
            is_updating=self._is_updating(tracked),
            age=self._ages.of_life(tracked),
            within_hour=self._ages.count_recent(self._approvals.known(), but=tracked.key),
            unknown_until=self._approvals.unknown_until(),
        )

    def _hook_results(self, tracked: TrackedEvent) -> Mapping[str, HookOutcome | None]:
        """Return the outcomes of hooks, without those of runs for ``hook_failed``."""
        numbered = enumerate(tracked.transitions, start=1)
        failures = {number for number, one in numbered if one.transition is Transition.HOOK_FAILED}
        return self._jobs.results(tracked.key, but=failures)

    def _is_updating(self, tracked: TrackedEvent) -> bool:
        """Return whether hooks for a change of the event are not yet queued, pending or running."""
        if not self._config.hooks:
            return False
        return tracked.untold is not None or self._jobs.has_open_updates(tracked.key)

    def _log_change(self, tracked: TrackedEvent, decision: Decision) -> None:
        """Log and count a decision when it changes."""
        before = self._logged.get(tracked.key)
        if decision == before or decision.state is None:
            return
        self._logged[tracked.key] = decision
        if decision.state in (ApprovalState.DUE, ApprovalState.APPROVED):
            return
        log.info("approval", extra=_facts(tracked, decision))
        new = before is None or (before.state, before.rule) != (decision.state, decision.rule)
        if decision.state in _COUNTED and new:
            self._count(decision.rule, _COUNTED[decision.state])

    def _may_try(self, tracked: TrackedEvent) -> bool:
        """Return whether to send now: immediately, with a delay after errors, and not after NotBefore."""
        trial = self._trials.get(tracked.key)
        if trial is None:
            return True
        not_before = tracked.event.not_before
        if not_before is None or self._clock.now() < not_before:
            return self._clock.monotonic() >= trial.try_at
        if not trial.given_up:
            log.error("approval failed until NotBefore; given up", extra=_facts(tracked, trial.decision))
            trial.given_up = True
        return False

    def _approve(self, due: Sequence[_Due]) -> None:
        """Approve, in one request, the events that are still due by a newly fetched document."""
        azure = self._azure
        if azure is None or self._loop.stopping:
            return
        begun, asked = self._clock.now(), self._clock.monotonic()
        try:
            fresh = {event.key: event for event in decode_document(azure.fetch()).events}
        except ImdsError as error:
            for tracked, decision in due:
                self._failed(tracked, decision, str(error), asked)
            return
        lives = {tracked.key: tracked for tracked in self._snapshot().current}
        listed = [lives[tracked.key] for tracked, _ in due if tracked.key in lives]
        unchanged = [tracked for tracked in listed if fresh.get(tracked.event.key) == tracked.event]
        if len(unchanged) < len(due):
            self._poll()
        self._send(azure, [(t, d) for t in unchanged if (d := self._remember(t, begun, asked))], begun, asked)

    def _remember(self, tracked: TrackedEvent, begun: datetime, asked: float) -> Decision | None:
        """Decide again, and record the approval on disk; None if it is not to be sent now."""
        decision = self._decide(tracked, self._snapshot().instance)
        if decision.state is not ApprovalState.DUE:
            return None
        self._ages.note_approval(tracked.key)
        if self._approvals.decide(tracked.key, tracked.event.event_id, decision.rule, begun):
            return decision
        problem = "the state cannot be written, so nothing would remember it"
        self._failed(tracked, decision, problem, asked)
        return None

    def _send(self, azure: ImdsClient, due: Sequence[_Due], begun: datetime, asked: float) -> None:
        if not due:
            return
        try:
            azure.approve([tracked.event.event_id for tracked, _ in due])
        except ImdsError as error:
            if error.reason is PollOutcome.HTTP_ERROR and len(due) > 1:
                # One id that Azure refuses must not block the others; each is decided again.
                for one in due:
                    self._approve([one])
                return
            for tracked, decision in due:
                self._failed(tracked, decision, str(error), asked)
        else:
            for tracked, decision in due:
                self._succeeded(tracked, decision, begun)

    def _succeeded(self, tracked: TrackedEvent, decision: Decision, begun: datetime) -> None:
        now, instance = self._clock.now(), self._snapshot().instance
        spans = self._trace(tracked, decision.rule, (begun, now), instance)
        self._approvals.note_sent(tracked.key, now, spans)
        self._trials.pop(tracked.key, None)
        self._count(decision.rule, ApprovalOutcome.APPROVED)
        log.info("approved", extra=_facts(tracked, decision))
        self._report(Finding(tracked.key, Transition.APPROVED, now, instance))

    def _failed(self, tracked: TrackedEvent, decision: Decision, problem: str, asked: float) -> None:
        trial = self._trials.get(tracked.key) or _FailedAttempts(self._clock)
        now = self._clock.monotonic()
        trial.try_at = now + trial.backoff.failed(now - asked)
        is_new = trial.problem != problem
        trial.problem, trial.rule, trial.given_up = problem, decision.rule, False
        self._trials[tracked.key] = trial
        self._count(decision.rule, ApprovalOutcome.FAILED)
        if is_new:
            log.warning("approval failed; trying again", extra=_facts(tracked, trial.decision))


def _facts(tracked: TrackedEvent, decision: Decision) -> Mapping[str, object]:
    return {
        "event_id": tracked.event.event_id,
        "trace_id": trace_id(tracked.ids[0]),
        "event_type": tracked.event.event_type,
        "state": decision.state,
        "rule": decision.rule,
        "reason": decision.reason,
    }
