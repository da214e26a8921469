"""Which hooks are still to run, and how those that ran ended, so that a restart runs none twice."""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from exporter.hooks.jobs import HookOutcome, Job
from exporter.lifecycle import HISTORY
from exporter.state.database import Database, Transaction

log = logging.getLogger(__name__)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Job)

_INSERT = """
    INSERT INTO hook_jobs (hook, key, sequence, position, at, job, attempts) VALUES (?, ?, ?, ?, ?, ?, 0)
    ON CONFLICT (hook, key, sequence) DO NOTHING
"""
_BEGIN = "UPDATE hook_jobs SET attempts = attempts + 1 WHERE hook = ? AND key = ? AND sequence = ?"
_FINISH = "UPDATE hook_jobs SET done = ?, outcome = ?, job = '' WHERE hook = ? AND key = ? AND sequence = ?"
_WAITING = "SELECT key FROM hook_jobs WHERE done IS NULL GROUP BY key ORDER BY min(position)"
_NEXT = """
    SELECT hook, key, sequence, attempts, CAST(job AS BLOB) FROM hook_jobs
    WHERE key = ? AND done IS NULL ORDER BY position LIMIT 1
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
        """Write jobs down, in the transaction of the transitions that cause them; known ones stay."""
        if not jobs:
            return
        oldest = (jobs[0].at - HISTORY).timestamp()
        transaction.write("DELETE FROM hook_jobs WHERE at < ? AND done IS NOT NULL", [(oldest,)])
        ((newest,),) = transaction.read("SELECT coalesce(max(position), 0) FROM hook_jobs")
        transaction.write(_INSERT, [_row(job, newest + number) for number, job in enumerate(jobs, start=1)])

    def events(self) -> list[str]:
        """List the keys of the events that have jobs to run, the one that waits longest first."""
        return [key for (key,) in self._database.read(_WAITING)]

    def next_of(self, key: str) -> WaitingJob | None:
        """Give the next job of an event, if there is one."""
        for hook, of, sequence, attempts, data in self._database.read(_NEXT, (key,)):
            return WaitingJob(hook, of, sequence, attempts, _decode(data))
        return None

    def begin(self, waiting: WaitingJob) -> int:
        """Note that a job begins, and give which attempt it is, from 1."""
        with self._database.transaction() as transaction:
            transaction.write(_BEGIN, [(waiting.hook, waiting.key, waiting.sequence)])
        return waiting.attempts + 1

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
    return job.hook, job.key, job.sequence, position, job.at.timestamp(), _encoder.encode(job).decode()


def _decode(data: bytes) -> Job | None:
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        log.warning("a hook's job in the state cannot be read", extra={"error": str(error)})
        return None
