"""The hooks that are to run, and how those that ran ended, so that a restart does not run one again."""

from collections.abc import Container, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from exporter.model.findings import Finding, hook_failure
from exporter.model.jobs import HookOutcome, Job
from exporter.model.lifecycle import Transition
from exporter.model.spans import Span
from exporter.state.jobs import JobKey, Jobs, Record
from exporter.state.journal import Journal, Transaction
from exporter.state.spans import Spans


class WaitingJob(NamedTuple):
    """A job that is to run: its identity, how often it was begun; the job, None where it cannot be read."""

    id: JobKey
    attempts: int
    job: Job | None

    @property
    def hook(self) -> str:
        """The hook's name."""
        return self.id.name


class HookJobs(Jobs[Job]):
    """The jobs of all hooks; for any number of threads.

    The hooks of all lives of an event run in one order: the lane is the event's first id, in lower case.
    """

    def __init__(self, journal: Journal, spans: Spans) -> None:
        super().__init__(journal, "hook", Record[Job])
        self._spans = spans

    def add(self, transaction: Transaction, jobs: Sequence[Job]) -> None:
        """Add jobs, in the transaction of the transitions that cause them; known ones stay.

        A job for an update replaces one of the same hook that has not begun.
        """
        updates = {(job.key, job.hook) for job in jobs if job.transition is Transition.UPDATED}
        for key, record in self._not_begun() if updates else ():
            if (key.life, key.name) in updates and _is_update(record):
                transaction.delete(self, key)
        if jobs:
            self._queue(transaction, [(_key(job), job) for job in jobs], jobs[0].at)

    def drop(self, transaction: Transaction, lives: Sequence[str]) -> None:
        """Delete the jobs of lives that are over, in the transaction of their end, unless they have begun."""
        for key, _ in self._not_begun() if lives else ():
            if key.life in lives:
                transaction.delete(self, key)

    def events(self) -> list[str]:
        """Return the events that have jobs to run, by their first id; the one that waits longest first."""
        with self.lock:
            return list(self._open)

    def has_open_updates(self, life: str) -> bool:
        """Return whether hooks for an update of this life have still to run, or to end."""
        with self.lock:
            return any(
                key.life == life and _is_update(record)
                for jobs in self._open.values()
                for key, record in jobs.items()
            )

    def next_of(self, event: str) -> WaitingJob | None:
        """Return the next job of an event, if there is one."""
        for key, record in self._first(event, 1):
            return WaitingJob(key, record.attempts, record.work)
        return None

    def begin(self, waiting: WaitingJob) -> int:
        """Note that a job begins; return which attempt it is, from 1, or 0 where it was dropped meanwhile."""
        with self._journal.transaction() as transaction:
            record = self.entries.get(waiting.id)
            if record is None:
                return 0
            transaction.put(self, waiting.id, replace(record, attempts=record.attempts + 1))
        return record.attempts + 1

    def finish(
        self, waiting: WaitingJob, outcome: HookOutcome | None, at: datetime, spans: Sequence[Span] = ()
    ) -> None:
        """Note that a job ended, with its spans; without an outcome it will not run at all."""
        self._finish([waiting.id], at, outcome, lambda transaction: self._spans.add(transaction, spans))

    def results(self, life: str, but: Container[int] = ()) -> dict[str, HookOutcome | None]:
        """Return how each hook's newest run for a life ended; None where it has not, or never will.

        Runs for the transitions with the numbers ``but`` are left out.
        """
        found = [
            (key, record) for key, record in self.snapshot() if key.life == life and key.sequence not in but
        ]
        found.sort(key=lambda one: one[0].sequence)
        return {key.name: HookOutcome(record.outcome) if record.outcome else None for key, record in found}

    def failures(self) -> list[Finding]:
        """Return a finding for each run that is known to have failed."""
        return [
            hook_failure(key.life, (key.name, key.sequence), HookOutcome(record.outcome), record.done)
            for key, record in self.snapshot()
            if record.done is not None and record.outcome in (HookOutcome.FAILED, HookOutcome.TIMED_OUT)
        ]

    def _not_begun(self) -> Iterator[tuple[JobKey, Record[Job]]]:
        for jobs in self._open.values():
            yield from ((key, record) for key, record in jobs.items() if not record.attempts)


def _key(job: Job) -> JobKey:
    return JobKey(job.event.id.lower(), job.key, job.sequence, job.hook)


def _is_update(record: Record[Job]) -> bool:
    return record.work is not None and record.work.transition is Transition.UPDATED
