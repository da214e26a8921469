"""Which hooks are still to run, and how those that ran ended, so that a restart runs none twice."""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from exporter.hooks.jobs import HookOutcome, Job
from exporter.lifecycle import HISTORY, Transition
from exporter.state.database import Database, Transaction

log = logging.getLogger(__name__)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Job)

_INSERT = """
    INSERT INTO hook_jobs (hook, key, sequence, position, at, job, attempts, event, transition)
    VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?)
    ON CONFLICT (hook, key, sequence) DO NOTHING
"""
_DROP = "DELETE FROM hook_jobs WHERE key = ? AND done IS NULL AND attempts = 0"
_SUPERSEDE = f"{_DROP} AND hook = ? AND transition = ?"
_BEGIN = "UPDATE hook_jobs SET attempts = attempts + 1 WHERE hook = ? AND key = ? AND sequence = ?"
_FINISH = "UPDATE hook_jobs SET done = ?, outcome = ?, job = '' WHERE hook = ? AND key = ? AND sequence = ?"
_WAITING = "SELECT event FROM hook_jobs WHERE done IS NULL GROUP BY event ORDER BY min(position)"
_OPEN = "SELECT count(*) FROM hook_jobs WHERE key = ? AND transition = ? AND done IS NULL"
_NEXT = """
    SELECT hook, key, sequence, attempts, CAST(job AS BLOB) FROM hook_jobs
    WHERE event = ? AND done IS NULL ORDER BY position LIMIT 1
"""
_RESULTS = "SELECT hook, done, outcome FROM hook_jobs WHERE key = ? ORDER BY sequence"


class WaitingJob(NamedTuple):
    """A job that is still to run: what names it, how often it was begun; None where it cannot be read."""

    hook: str
    key: str
    sequence: int
    attempts: int
    job: Job | None


class HookJobs:
    """The jobs of all hooks; for any number of threads.

    One event, transition and hook make one row, which stays as long as the event's history does.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, transaction: Transaction, jobs: Sequence[Job]) -> None:
        """Write jobs down, in the transaction of the transitions that cause them; known ones stay.

        A job for an update replaces one that has not begun.
        """
        if not jobs:
            return
        updates = [
            (job.key, job.hook, job.transition) for job in jobs if job.transition is Transition.UPDATED
        ]
        if updates:
            transaction.write(_SUPERSEDE, updates)
        oldest = (jobs[0].at - HISTORY).timestamp()
        transaction.write("DELETE FROM hook_jobs WHERE at < ? AND done IS NOT NULL", [(oldest,)])
        ((newest,),) = transaction.read("SELECT coalesce(max(position), 0) FROM hook_jobs")
        transaction.write(_INSERT, [_row(job, newest + number) for number, job in enumerate(jobs, start=1)])

    def drop(self, transaction: Transaction, keys: Sequence[str]) -> None:
        """Drop the jobs of lives that are over, in the transaction of their end, unless they have begun."""
        if keys:
            transaction.write(_DROP, [(key,) for key in keys])

    def events(self) -> list[str]:
        """List the events that have jobs to run, by their first id; the one that waits longest first."""
        return [event for (event,) in self._database.read(_WAITING)]

    def has_open_updates(self, key: str) -> bool:
        """Return whether hooks for an update of this life have still to run, or to end."""
        ((count,),) = self._database.read(_OPEN, (key, Transition.UPDATED))
        return bool(count)

    def next_of(self, event: str) -> WaitingJob | None:
        """Return the next job of an event, if there is one."""
        for hook, of, sequence, attempts, data in self._database.read(_NEXT, (event,)):
            return WaitingJob(hook, of, sequence, attempts, _decode(data))
        return None

    def begin(self, waiting: WaitingJob) -> int:
        """Note that a job begins; return which attempt it is, from 1, or 0 where it was dropped meanwhile."""
        with self._database.transaction() as transaction:
            found = transaction.write(_BEGIN, [(waiting.hook, waiting.key, waiting.sequence)])
        return waiting.attempts + 1 if found else 0

    def finish(self, waiting: WaitingJob, outcome: HookOutcome | None, at: datetime) -> None:
        """Note that a job ended; without an outcome it is not to run at all any more."""
        row = (at.timestamp(), outcome, waiting.hook, waiting.key, waiting.sequence)
        with self._database.transaction() as transaction:
            transaction.write(_FINISH, [row])

    def results(self, key: str) -> dict[str, HookOutcome | None]:
        """Tell how each hook's newest run for an event ended; None where it has not, or never will."""
        return {
            hook: HookOutcome(outcome) if done is not None and outcome is not None else None
            for hook, done, outcome in self._database.read(_RESULTS, (key,))
        }


def _row(job: Job, position: int) -> tuple[object, ...]:
    data = _encoder.encode(job).decode()
    event = job.event.id.lower()
    return job.hook, job.key, job.sequence, position, job.at.timestamp(), data, event, job.transition


def _decode(data: bytes) -> Job | None:
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        log.warning("a hook's job in the state cannot be read", extra={"error": str(error)})
        return None
