"""Runs the hooks: of one event in order, of different events side by side, each once across restarts."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from exporter.clock import Clock
from exporter.config import Hook
from exporter.hooks import jobs
from exporter.hooks.environment import environment
from exporter.hooks.jobs import Command
from exporter.hooks.withheld import Withheld
from exporter.model.events import trace_id
from exporter.model.jobs import CommandResult, HookOutcome, Job
from exporter.model.lifecycle import Occurrence
from exporter.state.hook_jobs import HookJobs, WaitingJob

log = logging.getLogger(__name__)

# Events whose hooks run at the same time; more of them wait their turn.
MOST_AT_ONCE = 8


class Counts(Protocol):
    """What is needed of `exporter.metrics.Metrics`."""

    def hook_ended(self, hook: str, outcome: HookOutcome, seconds: float) -> None:
        """Count a run."""
        ...


class Traces(Protocol):
    """What is needed of `exporter.tracing.Tracer`."""

    def hook_traceparent(self, job: Job) -> str:
        """Return the W3C header that makes what a hook does a part of the event's trace."""
        ...

    def hooked(self, job: Job, begun: datetime, ended: datetime, result: CommandResult) -> None:
        """Take in that a hook ran."""
        ...


class HookRunner:
    """Works off the hooks' jobs, on threads that exist only while there are some."""

    def __init__(
        self,
        waiting: HookJobs,
        counts: Counts,
        tracer: Traces,
        clock: Clock,
        *,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; ``ended`` is called whenever a hook has ended."""
        self._jobs = waiting
        self._counts = counts
        self._tracer = tracer
        self._clock = clock
        self._ended = ended
        self._hooks: Mapping[str, Hook] = {}
        self._withheld = Withheld()
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Thread] = {}
        self._stop = threading.Event()

    def configure(self, hooks: Sequence[Hook], withheld: Withheld | None = None) -> None:
        """Take over the configured hooks, in their order; what waits runs as they say now.

        ``withheld`` are the variables with secrets, which hooks do not get.
        """
        self._withheld = withheld or Withheld()
        self._hooks = {hook.name: hook for hook in hooks}
        self.wake()

    def compose(
        self, occurrences: Sequence[Occurrence], instance: str | None, now: datetime
    ) -> tuple[Job, ...]:
        """Return the jobs to write down with what just happened."""
        return jobs.compose(tuple(self._hooks.values()), occurrences, instance=instance, now=now)

    def wake(self) -> None:
        """Run what was written down."""
        with self._lock:
            if self._stop.is_set():
                return
            for key in self._jobs.events():
                if len(self._busy) >= MOST_AT_ONCE:
                    return
                if key not in self._busy:
                    # A command may hang for as long as its timeout; the end of the process must not.
                    thread = threading.Thread(target=self._work, args=(key,), name="hooks", daemon=True)
                    self._busy[key] = thread
                    thread.start()

    def begin_stop(self) -> None:
        """End the commands that run now; they run again after the next start."""
        with self._lock:
            self._stop.set()

    def join(self, timeout: float) -> bool:
        """Wait for the end of all work, and return whether it came within ``timeout`` seconds."""
        deadline = self._clock.monotonic() + timeout
        for thread in tuple(self._busy.values()):
            thread.join(max(deadline - self._clock.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in tuple(self._busy.values()))

    def _work(self, key: str) -> None:
        try:
            while not self._stop.is_set():
                with self._lock:
                    waiting = self._jobs.next_of(key)
                    if waiting is None:
                        del self._busy[key]
                        break
                self._run(waiting)
        except Exception:
            log.exception("running hooks failed")
            with self._lock:
                self._busy.pop(key, None)
            return
        self.wake()

    def _run(self, waiting: WaitingJob) -> None:
        job, hook = waiting.job, self._hooks.get(waiting.hook)
        if job is None or hook is None:
            if job is not None:
                log.warning("a hook that was to run is not configured any more", extra=_facts(job))
            self._jobs.finish(waiting, None, self._clock.now())
            return
        attempt = self._jobs.begin(waiting)
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
        self._jobs.finish(waiting, result.outcome, now)
        self._counts.hook_ended(hook.name, result.outcome, result.seconds)
        self._tracer.hooked(job, begun, now, result)
        level = logging.INFO if result.outcome is HookOutcome.SUCCEEDED else logging.WARNING
        ends = {"outcome": result.outcome, "reason": result.reason, "seconds": result.seconds}
        log.log(level, "hook ended", extra=facts | ends)
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
        return Command(hook.command, job.document(attempt), variables, float(hook.timeout), self._withheld)


def _facts(job: Job) -> dict[str, object]:
    return {
        "hook": job.hook,
        "transition": job.transition,
        "event_id": job.event.id,
        "trace_id": trace_id(job.event.id),
        "event_type": job.event.type,
    }
