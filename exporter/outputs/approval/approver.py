"""Approval of events by the rules.

The poller decides about the document that it has just fetched. A thread sends what is due: it records the
approval on disk before the request, so that none is lost in a crash, and reports the result to the inbox.

The disk and the rate limit may delay a request, while the poller goes on deciding. Immediately before the
request, the newest decisions must still allow it.
"""

import contextlib
import logging
import math
import queue
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from exporter.clock import seconds_since
from exporter.config import Config, Mode
from exporter.config.loading import Loaded
from exporter.errors import ImdsError, cause
from exporter.imds.client import WINDOW_SECONDS, ImdsClient
from exporter.metrics import Outcomes
from exporter.model.events import trace_id
from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import Life, Transition
from exporter.model.reports import WorkerReport
from exporter.model.views import ApprovalView, Snapshot, WorkView
from exporter.outputs.approval.approvals import Approvals
from exporter.outputs.approval.deciding import ApprovalInputs, ApprovalState, Decision, concluded, decide
from exporter.outputs.approval.section import ApprovalSection
from exporter.outputs.output import Core, Decider
from exporter.state.jobs import End
from exporter.work import Backoff, Loop

log = logging.getLogger(__name__)


class ApprovalOutcome(StrEnum):
    APPROVED = "approved"
    DRY_RUN = "dry_run"
    FAILED = "failed"
    LIMITED = "limited"


_COUNTED = {ApprovalState.DRY_RUN: ApprovalOutcome.DRY_RUN, ApprovalState.LIMITED: ApprovalOutcome.LIMITED}
_RETRY_SECONDS = 20.0

_Due = tuple[Life, str]


def attempts_counter(registry: CollectorRegistry) -> Outcomes:
    text = "Approval attempts by rule and outcome."
    return Outcomes(registry, "approvals", text, ApprovalOutcome, ["rule"])


class _Attempt(msgspec.Struct, frozen=True):
    """An attempt to approve an event; without ``approved`` and ``problem`` it was withdrawn."""

    life: Life
    rule: str  # by which it is approved
    asked: float  # its start on the monotonic clock
    approved: datetime | None = None  # when IMDS accepted it
    problem: str = ""  # why it failed


class _WithdrawnError(Exception):
    """An approval is no longer due."""


class _FailedAttempts(msgspec.Struct):
    backoff: Backoff
    try_at: float  # on the monotonic clock
    problem: str
    given_up: bool = False

    def decision(self, rule: str) -> Decision:
        """Return the decision to show instead of the one that cannot be carried out."""
        reason = f"given up, as NotBefore has passed: {self.problem}" if self.given_up else self.problem
        return Decision(ApprovalState.FAILED, rule, reason)


class Approver(Decider):
    name = "approval"
    section = ApprovalSection()

    def __init__(self, core: Core) -> None:
        self._store, self._views = core.store, core.views
        self._approvals = core.store.jobs(self.name, Approvals)
        self._approvals.renew()
        self._metrics, self._clock, self._inbox = core.metrics, core.clock, core.inbox
        self._attempts = attempts_counter(core.metrics.registry)
        # By which the poller decides, and the newest one, which it takes over after the poll in progress.
        self._config = self._newest = Config()
        self._lives: Sequence[Life] = ()
        self._fetched = -math.inf  # when the newest document was fetched, on the monotonic clock
        # What is due by the newest document. Replaced whole, because the approver's thread reads it.
        self._due: Sequence[_Due] = ()
        self._posting = threading.Lock()  # held while a request is being sent
        self._decisions: Mapping[str, Decision] = {}  # replaced whole, because other threads read it
        self._sending = False  # from a request until its result is known there is no other
        self._request: tuple[_Attempt, ImdsClient] | None = None
        self._over: queue.SimpleQueue[_Attempt] = queue.SimpleQueue()  # attempts that are over
        self._loop = Loop("approver", self._send_request)
        self._inbox.put(*self._approvals.reports())

    def configure(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        """Send nothing by other rules once this returns; a request that is being sent is waited for."""
        rules = loaded.config.approval.rules
        for rule in rules:
            self._attempts.expect(rule.name)
        if rules:
            self._metrics.expect(Transition.APPROVED)
        self._newest = loaded.config
        with self._posting:
            pass

    def use(self, settings: Config, imds: ImdsClient) -> None:
        """Decide by these rules and send by this client; failed attempts are repeated at once."""
        self.outdate()
        self._config, self._azure = settings, imds
        self._trials: dict[str, _FailedAttempts] = {}

    def polled(self, error: ImdsError | None, seconds: float, *, changed: bool) -> None:
        """Record that a document was fetched just now, or that there is no fresh one to send what is due.

        What is due by the document before it is not, if it differs.
        """
        self._approvals.renew()
        due = self._due
        if changed or error:
            self.outdate()
        self._fetched = -math.inf if error else self._clock.monotonic()
        if error and not self._sending:
            for life, rule in due:
                self._failed(life, rule, str(error), seconds)

    def outdate(self) -> None:
        """Send nothing before the next `look`, because what is known is about to change."""
        self._due = ()

    def look(self, seen: Snapshot, *, fresh: bool = False) -> bool:
        """Decide about all pending events; send the first that is due if the document is ``fresh``.

        Return whether some are due, but the document was not fetched just now.
        """
        self._conclude()
        snapshot, settings = seen, self._config
        due: Sequence[_Due] = ()
        if snapshot.current is not self._lives:
            self._lives = snapshot.current
            keys = {life.key for life in self._lives}
            self._trials = {key: trial for key, trial in self._trials.items() if key in keys}
        if self._lives and settings.approval.mode is not Mode.OFF and snapshot.ready:
            due = self._decide_all(settings, snapshot.instance)
        else:
            self._decisions = {}
        self._due = due
        if not due or self._sending:
            return False
        if fresh:
            self._send(due[0])
        return not fresh

    @property
    def is_pending(self) -> bool:
        """Whether there are events to decide about: rules depend on the time, too."""
        return bool(self._lives) and self._config.approval.mode is not Mode.OFF

    def approval(self, life: Life) -> ApprovalView:
        """Return the state of an event's approval."""
        done = concluded(life, self._recorded(life))
        # A life is published before the decisions that follow from it.
        is_open = done.state is None and life.event.is_scheduled and life.ended is None
        return (self._decisions.get(life.key, done) if is_open else done).view

    def stop(self, timeout: float) -> bool:
        self._loop.stop()
        return self._loop.join(timeout)

    def _conclude(self) -> None:
        """Go on after an attempt that is over; a failed one is repeated later."""
        while not self._over.empty():
            attempt = self._over.get()
            self._sending = False
            if attempt.problem:
                seconds = self._clock.monotonic() - attempt.asked
                self._failed(attempt.life, attempt.rule, attempt.problem, seconds)

    def _decide_all(self, settings: Config, instance: str | None) -> list[_Due]:
        """Decide about each event, the most urgent first; log and count changes; return what is due."""
        now, decisions, due = self._clock.now(), {}, []
        recent = self._approvals.of_last_hour()
        for life in self._lives:
            inputs = self._inputs(life, settings, recent)
            decision = decide(life, settings.approval, instance, now, inputs)
            if decision.state is ApprovalState.DUE:
                if self._may_try(life, decision.rule):
                    due.append((life, decision.rule))
                    recent.add(life.key)
                if life.key in self._trials:
                    decision = self._trials[life.key].decision(decision.rule)
            if decision.state is not None:
                decisions[life.key] = decision
                self._log_change(life, decision)
        self._decisions = decisions
        return due

    def _recorded(self, life: Life) -> ApprovalInputs:
        for key, record in self._approvals.of(life.key):
            return ApprovalInputs(approved_by=key.lane) if record.done else ApprovalInputs(asked_by=key.lane)
        return ApprovalInputs()

    def _inputs(self, life: Life, settings: Config, recent: set[str]) -> ApprovalInputs:
        recorded = self._recorded(life)
        if not life.event.is_scheduled:
            return recorded
        asks_hooks = any(rule.require_hooks for rule in settings.approval.rules)
        return replace(
            recorded,
            hooks=self._hook_results(life) if asks_hooks else {},
            has_unreported=life.last_reported is not None and bool(settings.hooks),
            open_hooks=self._open_hooks(life),
            age=seconds_since(life.begun, self._clock) or 0.0,
            within_hour=len(recent) - (life.key in recent),
            unknown_until=self._store.unknown_until(),
        )

    def _hook_results(self, life: Life) -> Mapping[str, HookOutcome | None]:
        """Return the outcome of each hook's newest run, except of runs for ``hook_failed``.

        It is None until the run has ended. What was dropped, as its hook is not configured, is left out.
        """
        return {
            run.name: None if run.at is None else HookOutcome(run.state)
            for run in self._runs([life.key])
            if run.transition is not Transition.HOOK_FAILED and run.state
        }

    def _open_hooks(self, life: Life) -> list[str]:
        """Return the hooks of all lives of an event, except those for reports, that have not ended."""
        lives = [replace(life, number=number).key for number in range(1, life.number + 1)]
        reported = (Transition.APPROVED, Transition.HOOK_FAILED)
        return [run.name for run in self._runs(lives) if run.at is None and run.transition not in reported]

    def _runs(self, lives: Collection[str]) -> Iterator[WorkView]:
        for work in self._views.work(lives).values():
            yield from (run for run in work if run.kind == "hook")

    def _log_change(self, life: Life, decision: Decision) -> None:
        before = self._decisions.get(life.key)
        silent = (ApprovalState.DUE, ApprovalState.APPROVED, ApprovalState.FAILED)
        if decision == before or decision.state in silent:
            return
        log.info("approval", extra=_log_facts(life, decision))
        new = before is None or (before.state, before.rule) != (decision.state, decision.rule)
        if decision.state in _COUNTED and new:
            self._attempts.count(_COUNTED[decision.state], decision.rule)

    def _may_try(self, life: Life, rule: str) -> bool:
        """Return whether to send now: immediately, with a delay after errors, and not after NotBefore."""
        trial = self._trials.get(life.key)
        if trial is None:
            return True
        not_before = life.event.not_before
        if not_before is None or self._clock.now() < not_before:
            return self._clock.monotonic() >= trial.try_at
        if not trial.given_up:
            facts = _log_facts(life, trial.decision(rule))
            log.error("approval failed until NotBefore; given up", extra=facts)
            trial.given_up = True
        return False

    def _failed(self, life: Life, rule: str, problem: str, seconds: float) -> None:
        before = self._trials.get(life.key)
        # No jitter: only one of an event's VMs leads, so they do not try at the same time.
        backoff = (
            Backoff(self._clock, early=math.inf, early_longest=_RETRY_SECONDS, chance=lambda: 0.0)
            if before is None
            else before.backoff
        )
        trial = _FailedAttempts(backoff, self._clock.monotonic() + backoff.failed(seconds), problem)
        self._trials[life.key] = trial
        self._attempts.count(ApprovalOutcome.FAILED, rule)
        if before is None or before.problem != problem:
            log.warning("approval failed; trying again", extra=_log_facts(life, trial.decision(rule)))

    def _send(self, due: _Due) -> None:
        self._sending = True
        attempt = _Attempt(*due, self._clock.monotonic())
        self._request = attempt, self._azure
        self._loop.start()
        self._loop.wake()

    def _send_request(self) -> None:
        """Send the request, on the approver's own thread."""
        if self._request is None or self._loop.stopping:
            return
        # Not cleared without one: the poller may be setting the next.
        (attempt, azure), self._request = self._request, None
        try:
            attempt = self._sent(attempt, azure)
        except Exception as error:
            log.exception("approval failed")
            attempt = replace(attempt, problem=cause(error))
        self._over.put(attempt)
        if attempt.approved is not None:
            self._inbox.put(WorkerReport(attempt.life.key, Transition.APPROVED, attempt.approved))
        else:
            self._inbox.put()

    def _sent(self, attempt: _Attempt, azure: ImdsClient) -> _Attempt:
        """Record an attempt on disk and carry it out; return it with its result."""
        life, rule, begun = attempt.life, attempt.rule, self._clock.now()
        before = self._approvals.of(life.key)
        if not self._approvals.decide(life.key, rule):
            self._approvals.restore(life.key, before)
            return replace(attempt, problem="the state cannot be written, so nothing would remember it")
        try:
            with contextlib.ExitStack() as posting:
                azure.approve(life.event.event_id, lambda: self._confirm(attempt, azure, posting))
        except _WithdrawnError:
            self._approvals.restore(life.key, before)
            facts = _log_facts(life, Decision(ApprovalState.DUE, rule, "it is not due any more"))
            log.info("approval not sent", extra=facts)
            return attempt
        except ImdsError as error:
            # Azure has refused it: nothing was approved for certain.
            if 400 <= error.status < 500:
                self._approvals.restore(life.key, before)
            return replace(attempt, problem=str(error))
        now = self._clock.now()
        keys = [key for key, _ in self._approvals.of(life.key)]
        self._approvals.finish(keys, End("approved", now, begun))
        self._attempts.count(ApprovalOutcome.APPROVED, rule)
        log.info("approved", extra=_log_facts(life, Decision(ApprovalState.DUE, rule)))
        return replace(attempt, approved=now)

    def _confirm(self, attempt: _Attempt, azure: ImdsClient, posting: contextlib.ExitStack) -> None:
        """Raise `_WithdrawnError` if the newest decisions do not allow an attempt.

        Until ``posting`` is closed, `configure` waits for it.
        """
        posting.enter_context(self._posting)
        # In this order: what is due is replaced before the time of its document.
        age = self._clock.monotonic() - self._fetched
        due = {life.key: (life.event, rule) for life, rule in self._due}
        # Several polls within the window of the rate limit count as one.
        longest = max(self._config.imds.poll_interval, WINDOW_SECONDS)
        if (
            self._config is not self._newest
            or azure is not self._azure
            or age > longest
            or due.get(attempt.life.key) != (attempt.life.event, attempt.rule)
        ):
            raise _WithdrawnError


def _log_facts(life: Life, decision: Decision) -> Mapping[str, object]:
    return {
        "event_id": life.event.event_id,
        "trace_id": trace_id(life.ids[0]),
        "event_type": life.event.event_type,
        "state": decision.state,
        "rule": decision.rule,
        "reason": decision.reason,
    }
