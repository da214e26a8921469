"""Jobs and their records, so that a restart does not repeat them: queues with a lane per worker."""

import itertools
import logging
import queue
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from exporter.clock import HOUR, Clock, Moment, moment, renewed, seconds_since
from exporter.model.facts import Fact, WorkKind, work_fact
from exporter.model.jobs import HookOutcome, Job
from exporter.model.lifecycle import HISTORY, Life, Transition, weight
from exporter.model.reports import WorkerReport, hook_failure
from exporter.state.facts import Facts
from exporter.state.journal import Journal, K, Table, Transaction, V
from exporter.timefmt import UtcTime

log = logging.getLogger(__name__)

# Per exporter; enough for some hundred events.
CAPACITY = 2048
# Of the tables, by kind, as `weight` has it. Together with the bounds of current and past lives, this bounds
# the state, and its memory to some four times as much.
MOST_BYTES = {
    "message": 6 * 2**20,
    "hook": 2**19,
    "approval": 2**19,
}

W = TypeVar("W")


class BoundedTable(Table[K, V]):
    """A table with a bound of its bytes on disk."""

    size = 0

    def apply(self, key: K, value: V | None) -> None:
        self.size += self._bytes(key, value) - self._bytes(key, self.entries.get(key))
        super().apply(key, value)

    def add_newest(
        self, transaction: Transaction, added: Sequence[tuple[K, V]], oldest: Iterable[K], surplus: int = 0
    ) -> tuple[list[K], int]:
        """Add entries, after deleting as many of the ``oldest`` as they need room for, or a ``surplus``.

        Return the keys of those deleted, and how many at the start of ``added`` there is no room for at all.
        """
        room = MOST_BYTES[self.kind] - self.size
        first, needed = len(added), 0
        while first and needed + self._bytes(*added[first - 1]) <= MOST_BYTES[self.kind]:
            first -= 1
            needed += self._bytes(*added[first])
        deleted: list[K] = []
        for key in oldest:
            if needed <= room and len(deleted) >= surplus:
                break
            room += self._bytes(key, self.entries[key])
            transaction.delete(self, key)
            deleted.append(key)
        for key, value in added[first:]:
            transaction.put(self, key, value)
        return deleted, first

    def _bytes(self, key: K, value: V | None) -> int:
        return 0 if value is None else sum(map(weight, filter(None, self.row(key, value)[1:])))


class JobKey(NamedTuple):
    """The permanent identity of a job."""

    # Jobs of one lane are done in order.
    lane: str
    # `Life.key`, or `Outage.key`.
    life_key: str
    # The transition's number in that life, from 1.
    sequence: int
    # Distinguishes jobs of one lane for the same transition.
    name: str = ""


class Record(msgspec.Struct, Generic[W], frozen=True, omit_defaults=True):
    """The state of a job."""

    # None once it is done, or if it cannot be read.
    work: W | None = None
    # How often a hook was started, or a message refused or not answered.
    attempts: int = 0
    # When it ended, None while it is pending or running.
    done: datetime | None = None
    outcome: str | None = None
    # Those behind the target that have the message, while others do not.
    services: tuple[str, ...] = ()
    # Since when a message waits, None if that is unknown.
    queued: Moment | None = None
    # The key of the incident that a message may have opened, once it is done, "" for none.
    incident: str = ""


class Queue(BoundedTable[JobKey, Record[W]]):
    """The jobs of one kind; for any number of threads."""

    def __init__(self, journal: Journal, kind: str, record_type: type[Record[W]]) -> None:
        super().__init__(journal, kind, JobKey, record_type)
        # Jobs that are not done, by lane.
        self._open: dict[str, dict[JobKey, Record[W]]] = {}

    def decode(self, key: bytes, value: bytes) -> tuple[JobKey, Record[W]]:
        """Return a job; undecodable work must not make the file unusable."""
        try:
            return super().decode(key, value)
        except (msgspec.MsgspecError, ValueError) as error:
            found = self._key_decoder.decode(key)
            log.warning(
                "job in the state file cannot be decoded", extra={"kind": self.kind, "error": str(error)}
            )
            return found, Record()

    def apply(self, key: JobKey, value: Record[W] | None) -> None:
        super().apply(key, value)
        lane = self._open.setdefault(key.lane, {})
        if value is not None and value.done is None:
            lane[key] = value
        else:
            lane.pop(key, None)
        if not lane:
            del self._open[key.lane]

    def counts(self) -> dict[str, int]:
        """Return the number of jobs that are not done, by lane; lanes without one are left out."""
        with self.lock:
            return {lane: len(jobs) for lane, jobs in self._open.items()}

    def first(self, lane: str, limit: int) -> list[tuple[JobKey, Record[W]]]:
        with self.lock:
            return list(itertools.islice(self._open.get(lane, {}).items(), limit))


# The transitions that no document brings about.
_REPORTED = (Transition.APPROVED, Transition.HOOK_FAILED)


class _Ended(NamedTuple):
    keys: Sequence[JobKey]
    outcome: str | None
    at: datetime
    begun: datetime | None
    problem: str


class Jobs(Queue[W]):
    """Jobs that are done once: a record without the work is kept for `HISTORY`."""

    def __init__(
        self,
        journal: Journal,
        kind: WorkKind,
        record_type: type[Record[W]],
        *,
        lives: Table[str, Life],
        facts: Facts,
    ) -> None:
        super().__init__(journal, kind, record_type)
        self._work_kind = kind
        self._lives = lives
        # By life: they are looked up for each event in turn, and there may be thousands of both.
        self._by_life: dict[str, dict[JobKey, Record[W]]] = {}
        self._facts = facts
        self._dropped: Counter[str] = Counter()
        self._ended: queue.SimpleQueue[_Ended] = queue.SimpleQueue()

    def apply(self, key: JobKey, value: Record[W] | None) -> None:
        super().apply(key, value)
        jobs = self._by_life.setdefault(key.life_key, {})
        if value is not None:
            jobs[key] = value
        else:
            jobs.pop(key, None)
        if not jobs:
            del self._by_life[key.life_key]

    def of(self, life_key: str) -> list[tuple[JobKey, Record[W]]]:
        """Return the jobs of a life, oldest first."""
        with self.lock:
            return list(self._by_life.get(life_key, {}).items())

    def take_dropped(self) -> dict[str, int]:
        """Return how many jobs were dropped for lack of room since the last call, by target or hook."""
        dropped, self._dropped = self._dropped, Counter()
        return dropped

    def forget(self, transaction: Transaction, lives: Iterable[str]) -> None:
        """Delete the records of done jobs for lives that are forgotten."""
        for life in lives:
            for key, record in self.of(life):
                if record.done is not None:
                    transaction.delete(self, key)

    def _queue(
        self, transaction: Transaction, jobs: Iterable[tuple[JobKey, Record[W]]], now: datetime
    ) -> None:
        """Add jobs that are not known yet, and delete records that are older than `HISTORY`."""
        oldest = now - HISTORY
        outdated = {
            key for key, record in self.entries.items() if record.done is not None and record.done < oldest
        }
        for key in outdated:
            transaction.delete(self, key)
        added = [(key, job) for key, job in jobs if key not in self.entries or key in outdated]
        done = (
            key for key, record in self.entries.items() if record.done is not None and record.done >= oldest
        )
        still_open = (key for key, record in self.entries.items() if record.done is None)
        deleted, left_out = self.add_newest(transaction, added, itertools.chain(done, still_open))
        dropped = [key for key in deleted if self.entries[key].done is None]
        dropped += [key for key, _ in added[:left_out]]
        self._dropped.update(key.name or key.lane for key in dropped)

    def finish(
        self,
        keys: Sequence[JobKey],
        outcome: str | None,
        at: datetime,
        *,
        begun: datetime | None = None,
        problem: str = "",
    ) -> None:
        """Record that jobs are done, and the facts of them, before this returns.

        Without an outcome there was nothing to do. ``begun`` is None for work that begins with its
        transition, and ``problem`` is "" for a success. What several threads have to record while the disk is
        busy is written in one transaction.
        """
        self._ended.put(_Ended(keys, outcome, at, begun, problem))
        with self._journal.transaction() as transaction:
            facts: list[Fact] = []
            while not self._ended.empty():
                ended = self._ended.get()
                for key in ended.keys:
                    if key in self.entries:
                        transaction.put(self, key, self._done(self.entries[key], ended.at, ended.outcome))
                        facts += self._fact(key, ended)
            self._facts.add(transaction, facts)

    def _fact(self, key: JobKey, ended: _Ended) -> list[Fact]:
        life = self._lives.entries.get(key.life_key)
        _, outcome, at, begun, problem = ended
        if life is None or outcome is None:
            return []
        work = (self._work_kind, key.name or key.lane, key.sequence)
        return [work_fact(life, work, begun=begun, at=at, outcome=outcome, problem=problem)]

    def _done(self, record: Record[W], at: datetime, outcome: str | None) -> Record[W]:
        """Return what is kept of a job that is done."""
        return Record(attempts=record.attempts, done=at, outcome=outcome)


class HookJobs(Jobs[Job]):
    """The jobs of all hooks. The lane is the event's first id: hooks of all its lives run in order."""

    def __init__(self, journal: Journal, lives: Table[str, Life], facts: Facts) -> None:
        super().__init__(journal, "hook", Record[Job], lives=lives, facts=facts)

    def add(self, transaction: Transaction, jobs: Sequence[Job]) -> None:
        """Add unknown jobs; one for an update replaces one of the same hook that has not started."""
        updates = {(job.life_key, job.hook) for job in jobs if job.transition is Transition.UPDATED}
        for life, hook in updates:
            for key, record in self._not_begun(life):
                if key.name == hook and _is_update(record):
                    transaction.delete(self, key)
        if jobs:
            keyed = [
                (JobKey(job.event.id.lower(), job.life_key, job.sequence, job.hook), Record(job))
                for job in jobs
            ]
            self._queue(transaction, keyed, jobs[0].at)

    def drop(self, transaction: Transaction, lives: Sequence[str]) -> None:
        """Delete the jobs of lives that end in this transaction, unless they have started."""
        for life in lives:
            for key, _ in self._not_begun(life):
                transaction.delete(self, key)

    def open_for(self, event: str) -> list[str]:
        """Return the hooks that documents brought about for an event and that are pending or running.

        ``event`` is its first id in lower case: all its lives count. Hooks for reports of workers do not.
        """
        with self.lock:
            return [
                key.name
                for key, record in self._open.get(event, {}).items()
                if record.work is None or record.work.transition not in _REPORTED
            ]

    def begin(self, key: JobKey) -> int:
        """Record that a job starts; return the attempt, from 1, or 0 if the job was dropped meanwhile."""
        with self._journal.transaction() as transaction:
            record = self.entries.get(key)
            if record is None:
                return 0
            transaction.put(self, key, begun := replace(record, attempts=record.attempts + 1))
        return begun.attempts

    def record_end(
        self, key: JobKey, outcome: HookOutcome, at: datetime, *, begun: datetime, problem: str
    ) -> None:
        """Record the end of a run that was not queued."""
        with self._journal.transaction() as transaction:
            transaction.put(self, key, Record(done=at, outcome=outcome))
            self._facts.add(transaction, self._fact(key, _Ended([key], outcome, at, begun, problem)))

    def withdraw(self, lives: Iterable[str], hook: str) -> None:
        """Forget the runs of a hook for these lives, because what they did was undone."""
        with self._journal.transaction() as transaction:
            for key in [key for life in lives for key, _ in self.of(life) if key.name == hook]:
                transaction.delete(self, key)

    def results(self, life_key: str, but: Container[int] = ()) -> dict[str, HookOutcome | None]:
        """Return the outcome of each hook's newest run for a life; None while it is pending or running.

        Runs for the transitions with the numbers ``but`` are left out, and those that were dropped because
        the hook was not configured.
        """
        return {
            key.name: HookOutcome(record.outcome) if record.outcome else None
            for key, record in sorted(self.of(life_key), key=lambda run: run[0].sequence)
            if key.sequence not in but and (record.outcome or not record.done)
        }

    def failures(self) -> list[WorkerReport]:
        return [
            hook_failure(key.life_key, (key.name, key.sequence), HookOutcome(record.outcome), record.done)
            for key, record in self.snapshot()
            if record.done is not None and record.outcome in (HookOutcome.FAILED, HookOutcome.TIMED_OUT)
        ]

    def _not_begun(self, life_key: str) -> Iterator[tuple[JobKey, Record[Job]]]:
        for key, record in self.of(life_key):
            if record.done is None and not record.attempts:
                yield key, record


def _is_update(record: Record[Job]) -> bool:
    return record.work is not None and record.work.transition is Transition.UPDATED


class ApprovalRecord(msgspec.Struct, frozen=True):
    """An approval."""

    life_key: str
    event_id: str
    rule: str
    # Just before the newest request.
    decided: UtcTime
    # None if it is not known whether Azure accepted it.
    sent: UtcTime | None
    # When it was decided, for the hourly limit; None once that is over an hour ago.
    counted: Moment | None


class Approvals(BoundedTable[str, ApprovalRecord]):
    """The newest approvals of this exporter, by `Life.key`; for any number of threads."""

    def __init__(self, journal: Journal, lives: Table[str, Life], facts: Facts, clock: Clock) -> None:
        super().__init__(journal, "approval", str, ApprovalRecord)
        self._lives = lives
        self._facts = facts
        self._clock = clock

    def decide(self, life: Life, rule: str, at: datetime) -> bool:
        """Record that an event is about to be approved by a rule; return whether that is on disk."""
        oldest, counted = at - HISTORY, moment(self._clock)
        with self._journal.transaction() as transaction:
            kept = {key: one for key, one in self.entries.items() if one.decided >= oldest}
            for key in self.entries.keys() - kept.keys():
                transaction.delete(self, key)
            sent = kept[life.key].sent if life.key in kept else None
            record = ApprovalRecord(life.key, life.event.event_id, rule, at, sent, counted)
            _, left_out = self.add_newest(transaction, [(life.key, record)], kept)
        return transaction.is_durable and not left_out

    def record_sent(self, key: str, at: datetime) -> None:
        with self._journal.transaction() as transaction:
            before, life = self.entries.get(key), self._lives.entries.get(key)
            if before is None:
                return
            transaction.put(self, key, replace(before, sent=at))
            if life is not None:
                work: tuple[WorkKind, str, int] = ("approval", before.rule, 0)
                fact = work_fact(life, work, begun=before.decided, at=at, outcome="approved")
                self._facts.add(transaction, [fact])

    def restore(self, key: str, before: ApprovalRecord | None) -> None:
        """Record that an attempt approved nothing: put back what was known before it."""
        with self._journal.transaction() as transaction:
            transaction.put(self, key, before)

    def find(self, key: str) -> ApprovalRecord | None:
        with self.lock:
            return self.entries.get(key)

    def unknown_until(self) -> datetime | None:
        return self._journal.unknown_until()

    def known(self) -> list[ApprovalRecord]:
        return [approval for _, approval in self.snapshot()]

    def of_last_hour(self) -> set[str]:
        """Return the lives that were, or may have been, approved within the last hour."""
        return {one.life_key for one in self.known() if self._counted(one) is not None}

    def renew(self) -> None:
        """Count those of another boot from now on, and those of over an hour ago no more."""
        if all(one.counted == self._counted(one) for one in self.known()):
            return
        with self._journal.transaction() as transaction:
            for key, one in self.entries.items():
                if one.counted != (counted := self._counted(one)):
                    transaction.put(self, key, replace(one, counted=counted))

    def _counted(self, approval: ApprovalRecord) -> Moment | None:
        """Return from when an approval counts for the hourly limit, None if it does not any more."""
        if approval.counted is None:
            return None
        age = seconds_since(approval.counted, self._clock)
        return None if age is not None and age >= HOUR else renewed(approval.counted, self._clock)
