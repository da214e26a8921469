"""Where the loop reports: results of the drain like those of hooks, and problems of the API server."""

import logging
from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from exporter.clock import Clock
from exporter.config.kubernetes import DRAIN
from exporter.health import DegradedReason, Health
from exporter.inbox import Inbox
from exporter.kubernetes.objects import KubernetesError
from exporter.metrics import Metrics
from exporter.model.events import trace_id
from exporter.model.jobs import CommandResult, HookOutcome, Job, hook_failure
from exporter.model.lifecycle import Life, Transition
from exporter.model.views import event_view
from exporter.state.jobs import HookJobs
from exporter.state.queues import JobKey
from exporter.tracing import Tracer

log = logging.getLogger(__name__)


class Reports:
    """Records how drains end and which calls fail; outlives a configuration."""

    def __init__(
        self, jobs: HookJobs, metrics: Metrics, tracer: Tracer, inbox: Inbox, *, health: Health, clock: Clock
    ) -> None:
        self.metrics = metrics
        self.clock = clock
        self._jobs = jobs
        self._tracer = tracer
        self._inbox = inbox
        self._health = health
        # The calls that have failed, and those that did since `begin`.
        self._known: set[str] = set()
        self._current: set[str] = set()

    def record(self, life: Life, instance: str, outcome: HookOutcome, begun: datetime, reason: str) -> None:
        """Record the outcome for a life, unless it is known, or the drain has succeeded already."""
        if self._jobs.results(life.key).get(DRAIN) in (outcome, HookOutcome.SUCCEEDED):
            return
        now, sequence = self.clock.now(), _sequence(life)
        job = Job(
            hook=DRAIN,
            key=life.key,
            sequence=sequence,
            transition=life.transitions[sequence - 1].transition,
            at=begun,
            instance=life.instance or instance,
            event=event_view(life),
            resource_type=life.event.resource_type,
            nameless=life.nameless,
        )
        result = CommandResult(outcome, None, max((now - begun).total_seconds(), 0.0), reason)
        key = JobKey(life.ids[0].lower(), life.key, sequence, DRAIN)
        self._jobs.note(key, outcome, now, self._tracer.hooked(job, begun, now, result))
        facts = {"event_id": life.ids[0], "trace_id": trace_id(life.ids[0]), "outcome": outcome.value}
        facts["reason"] = reason
        self._tracer.wake()
        self.metrics.hook_ended(DRAIN, outcome, result.seconds)
        succeeded = outcome is HookOutcome.SUCCEEDED
        log.log(logging.INFO if succeeded else logging.WARNING, "drain ended", extra=facts)
        if succeeded:
            # An approval may have waited for it.
            self._inbox.put()
            return
        failure = hook_failure(life.key, (DRAIN, sequence), outcome, now, reason=reason)
        self._inbox.put(replace(failure, instance=instance))

    def withdraw(self, lives: Iterable[Life]) -> None:
        """Forget the outcomes for these lives: pods may run on the Node again."""
        self._jobs.withdraw([life.key for life in lives], DRAIN)

    @property
    def is_failing(self) -> bool:
        return bool(self._current)

    def begin(self) -> None:
        self._current = set()

    def report(self, error: KubernetesError) -> None:
        self._current.add(error.call)
        self._known.add(error.call)
        self._health.report(DegradedReason.KUBERNETES_FAILING, str(error), error.call)

    def end(self) -> None:
        """Clear the problems with calls that have not failed since `begin`; call it if all were made."""
        for call in self._known - self._current:
            self._health.clear(DegradedReason.KUBERNETES_FAILING, call)
        self._known = set(self._current)


def _sequence(life: Life) -> int:
    """Return the number of the newest transition that a document showed."""
    numbered = enumerate(life.transitions, start=1)
    reported = (Transition.HOOK_FAILED, Transition.APPROVED)
    return max(number for number, one in numbered if one.transition not in reported)
