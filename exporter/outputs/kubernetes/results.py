"""Records of what the loops bring about: results of the drain, like those of hooks, and failed calls."""

import logging
import math
import threading
from collections.abc import Container, Iterable
from datetime import datetime
from enum import StrEnum

from exporter.clock import Clock
from exporter.config.kubernetes import DRAIN
from exporter.health import DegradedReason, Health
from exporter.metrics import Outcomes
from exporter.model.events import trace_id
from exporter.model.jobs import HookOutcome, JobKey
from exporter.model.lifecycle import Life, Transition
from exporter.model.reports import hook_failure
from exporter.outputs.kubernetes.client import KubernetesError
from exporter.outputs.output import Core, failures
from exporter.state.jobs import End, Jobs
from exporter.work import Backoff

log = logging.getLogger(__name__)

_LONGEST_RETRY_SECONDS = 5.0


class EvictionOutcome(StrEnum):
    EVICTED = "evicted"
    REFUSED = "refused"
    DELETED = "deleted"
    FAILED = "failed"
    DRY_RUN = "dry_run"


class DrainResults:
    """Records how drains end, and which calls of which loop fail; outlives a configuration."""

    def __init__(self, core: Core) -> None:
        self.metrics, self.clock, self._inbox = core.metrics, core.clock, core.inbox
        text = "Attempts to evict a pod of this Node, by outcome."
        self.evictions = Outcomes(core.metrics.registry, "pod_evictions", text, EvictionOutcome)
        self.jobs = core.store.jobs("kubernetes", Jobs)
        self._inbox.put(*failures(self.jobs))
        self._problems = Problems(core.health)

    def record(self, life: Life, outcome: HookOutcome, begun: datetime, reason: str) -> None:
        """Record the outcome for a life, unless it is known, or the drain has succeeded already."""
        if self._newest(life) in (outcome, HookOutcome.SUCCEEDED):
            return
        now, succeeded = self.clock.now(), outcome is HookOutcome.SUCCEEDED
        key = JobKey(life.ids[0].lower(), life.key, _sequence(life), DRAIN)
        self.jobs.record_end(key, End(outcome, now, begun, "" if succeeded else reason))
        facts = {"event_id": life.ids[0], "trace_id": trace_id(life.ids[0]), "outcome": outcome.value}
        facts["reason"] = reason
        self.metrics.hooks.ended(DRAIN, outcome, max((now - begun).total_seconds(), 0.0))
        log.log(logging.INFO if succeeded else logging.WARNING, "drain ended", extra=facts)
        if succeeded:
            # An approval may have waited for it.
            self._inbox.put()
            return
        self._inbox.put(hook_failure(key, outcome, now, reason))

    def has_succeeded(self, lives: Iterable[Life]) -> bool:
        """Return whether the drain has succeeded for one of these lives."""
        return any(self._newest(life) == HookOutcome.SUCCEEDED for life in lives)

    def withdraw(self, lives: Iterable[Life]) -> None:
        """Forget the outcomes for these lives: pods may run on the Node again."""
        self.jobs.withdraw(life.key for life in lives)

    def _newest(self, life: Life) -> str | None:
        """Return the newest outcome for a life; None if there is none."""
        return next((record.outcome for _, record in reversed(self.jobs.of(life.key))), None)

    def calls(self) -> "Calls":
        """Return where a loop reports the calls that it makes."""
        return Calls(self._problems, self.clock)


class Problems:
    """The calls that fail, each with the loops that make it: a problem is over once none of them has it."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._lock = threading.Lock()
        self._loops: dict[str, set[Calls]] = {}

    def report(self, loop: "Calls", error: KubernetesError) -> None:
        with self._lock:
            if loop.is_closed:
                return
            self._loops.setdefault(error.call, set()).add(loop)
            self._health.report(DegradedReason.KUBERNETES_FAILING, str(error), error.call)

    def clear(self, loop: "Calls", failed: Container[str] = ()) -> None:
        """Clear the problems of a loop with all calls but those that have ``failed`` again."""
        with self._lock:
            for call, loops in self._loops.items():
                if call not in failed and loops:
                    loops.discard(loop)
                    if not loops:
                        self._health.clear(DegradedReason.KUBERNETES_FAILING, call)


class Calls:
    """The calls of one loop: which of them fail, and when to try again; for one step at a time."""

    def __init__(self, problems: Problems, clock: Clock) -> None:
        self._problems = problems
        self._clock = clock
        # One Node and one server, so there is no jitter.
        self._backoff = Backoff(
            clock, early=math.inf, early_longest=_LONGEST_RETRY_SECONDS, chance=lambda: 0.0
        )
        self._failed: set[str] = set()  # those that have failed since `begin`
        self._began = clock.monotonic()
        self.is_closed = False

    def begin(self) -> None:
        self._failed = set()
        self._began = self._clock.monotonic()

    def report(self, error: KubernetesError) -> None:
        """Report a failed call; safe from any thread."""
        self._failed.add(error.call)
        self._problems.report(self, error)

    def end(self, delay: float, *, complete: bool) -> float:
        """Return the seconds until the next step, of which there are ``delay`` if nothing has failed.

        If all calls were made (``complete``), the problems with those that have not failed are over.
        """
        if complete:
            self._problems.clear(self, self._failed)
        if self._failed:
            return min(delay, self._backoff.failed(self._clock.monotonic() - self._began))
        self._backoff.succeeded()
        return delay

    def close(self) -> None:
        """Clear all problems, and ignore those of calls that are still in progress."""
        self.is_closed = True
        self._problems.clear(self)


def _sequence(life: Life) -> int:
    """Return the number of the newest transition that a document showed."""
    numbered = enumerate(life.transitions, start=1)
    reported = (Transition.HOOK_FAILED, Transition.APPROVED)
    return max(number for number, record in numbered if record.transition not in reported)
