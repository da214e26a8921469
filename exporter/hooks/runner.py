"""Runs the hooks: of one event in order, of different events side by side, each once across restarts."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from exporter.clock import Clock
from exporter.config import Hook
from exporter.hooks import jobs
from exporter.hooks.environment import environment
from exporter.hooks.jobs import Command
from exporter.model.events import trace_id
from exporter.model.jobs import CommandResult, Finding, HookOutcome, Job, Span, hook_failure
from exporter.model.lifecycle import Occurrence
from exporter.state.jobs import HookJobs
from exporter.state.queues import JobKey
from exporter.work import Loop

log = logging.getLogger(__name__)

# Events whose hooks run at the same time; more of them wait their turn.
MOST_AT_ONCE = 8


class Traces(Protocol):
    """What is needed of `exporter.tracing.Tracer`."""

    def hook_traceparent(self, job: Job) -> str:
        """Return the W3C header that makes what a hook does a part of the event's trace."""
        ...

    def hooked(self, job: Job, begun: datetime, ended: datetime, result: CommandResult) -> Sequence[Span]:
        """Return the spans of a run."""
        ...

    def wake(self) -> None:
        """Export what was recorded."""
        ...


class HookRunner:
    """Works off the hooks' jobs; without any there are no threads."""

    def __init__(
        self,
        waiting: HookJobs,
        count: Callable[[str, HookOutcome, float], None],
        tracer: Traces,
        clock: Clock,
        *,
        ended: Callable[[], None] = lambda: None,
        report: Callable[[Finding], None] = lambda _: None,
    ) -> None:
        """Prepare.

        ``count`` is called with each run's hook, outcome and seconds, ``report`` with each that failed, and
        ``ended`` whenever a hook has ended.
        """
        self._jobs = waiting
        self._count = count
        self._tracer = tracer
        self._clock = clock
        self._ended = ended
        self._report = report
        self._hooks: Mapping[str, Hook] = {}
        self._inherited: Mapping[str, str] = {}
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._stop = threading.Event()
        self._loops = [Loop("hooks", self._work) for _ in range(MOST_AT_ONCE)]

    def configure(self, hooks: Sequence[Hook], inherited: Mapping[str, str]) -> None:
        """Take over the configured hooks, in their order; what waits runs as they say now.

        ``inherited`` are the variables that each gets beside those about the event.
        """
        self._inherited = inherited
        self._hooks = {hook.name: hook for hook in hooks}
        self.wake()

    def compose(
        self, occurrences: Sequence[Occurrence], instance: str | None, now: datetime
    ) -> tuple[Job, ...]:
        """Return the jobs to write down with what just happened."""
        return jobs.compose(tuple(self._hooks.values()), occurrences, instance=instance, now=now)

    def wake(self) -> None:
        """Run what was written down; as many threads as there were ever events at once are kept."""
        for loop, _ in zip(self._loops, self._jobs.events(), strict=False):
            loop.start()
        for loop in self._loops:
            loop.wake()

    def begin_stop(self) -> None:
        """End the commands that run now; they run again after the next start."""
        self._stop.set()
        for loop in self._loops:
            loop.stop()

    def join(self, timeout: float) -> bool:
        """Wait for the end of all work, and return whether it came within ``timeout`` seconds."""
        deadline = self._clock.monotonic() + timeout
        return all(loop.join(deadline - self._clock.monotonic()) for loop in self._loops)

    def _work(self) -> float | None:
        """Run the next hook of an event whose hooks do not run yet; return None if there is none."""
        with self._lock:
            event = next((event for event in self._jobs.events() if event not in self._busy), None)
            if event is None:
                return None
            self._busy.add(event)
        try:
            for key, record in self._jobs.first(event, 1):
                self._run(key, record.work)
        finally:
            with self._lock:
                self._busy.discard(event)
        return 0.0

    def _run(self, key: JobKey, job: Job | None) -> None:
        hook = self._hooks.get(key.name)
        if job is None or hook is None:
            if job is not None:
                log.warning("a hook that was to run is not configured any more", extra=_facts(job))
            self._jobs.finish(key, None, self._clock.now())
            return
        attempt = self._jobs.begin(key)
        if not attempt:
            return
        facts = _facts(job) | {"attempt": attempt}
        log.info("hook begins", extra=facts)
        begun = self._clock.now()
        # Most VMs have no hooks.
        from exporter.hooks import command

        result = command.run(
            self._command(hook, job, attempt),
            output=lambda line: log.info("hook says", extra=facts | {"line": line}),
            stop=self._stop,
            clock=self._clock,
        )
        if result.stopped:
            log.warning("hook ended early; it runs again after the next start", extra=facts)
            return
        now = self._clock.now()
        self._jobs.finish(key, result.outcome, now, self._tracer.hooked(job, begun, now, result))
        self._tracer.wake()
        self._count(hook.name, result.outcome, result.seconds)
        level = logging.INFO if result.outcome is HookOutcome.SUCCEEDED else logging.WARNING
        ends = {"outcome": result.outcome, "reason": result.reason, "seconds": result.seconds}
        log.log(level, "hook ended", extra=facts | ends)
        if result.outcome is not HookOutcome.SUCCEEDED:
            run = (job.hook, job.sequence)
            failure = hook_failure(job.key, run, result.outcome, now, reason=result.reason)
            self._report(replace(failure, instance=job.instance))
        self._ended()

    def _command(self, hook: Hook, job: Job, attempt: int) -> Command:
        variables = environment(
            job.event,
            resource_type=job.resource_type,
            transition=job.transition,
            attempt=attempt,
            instance=job.instance,
            traceparent=self._tracer.hook_traceparent(job),
        )
        return Command(hook.command, job.document(attempt), variables, float(hook.timeout), self._inherited)


def _facts(job: Job) -> dict[str, object]:
    return {
        "hook": job.hook,
        "transition": job.transition,
        "event_id": job.event.id,
        "trace_id": trace_id(job.event.id),
        "event_type": job.event.type,
    }
