"""The jobs of outputs and their records, so that a restart does not repeat them."""

import itertools
import logging
import queue
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from exporter.clock import Clock, Moment, moment
from exporter.model.facts import Fact, WorkFact
from exporter.model.jobs import Job, JobKey
from exporter.model.lifecycle import HISTORY, Life, weight
from exporter.model.views import WorkView
from exporter.state.facts import Facts
from exporter.state.journal import Journal, Table, Transaction

log = logging.getLogger(__name__)

NOTHING = msgspec.Raw(b"{}")

W = TypeVar("W")


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    payload: msgspec.Raw = NOTHING  # that of the `Job`; once it is done, what its output keeps
    attempts: int = 0  # how often it was begun
    done: datetime | None = None  # when it ended, None while it is pending or running
    outcome: str | None = None
    queued: Moment | None = None  # since when it waits, None if that is unknown

    def read(self, decoder: msgspec.json.Decoder[W]) -> W | None:
        """Return the payload; None if it cannot be decoded."""
        try:
            return decoder.decode(self.payload)
        except (msgspec.MsgspecError, ValueError):
            return None


class End(NamedTuple):
    """How a job ended; without an outcome there was nothing to do."""

    outcome: str | None
    at: datetime
    begun: datetime | None = None  # None for work that begins with its transition
    problem: str = ""  # "" for a success


class Parts(NamedTuple):
    """What the jobs of all outputs share."""

    journal: Journal
    lives: Table[str, Life]
    facts: Facts
    clock: Clock


class Jobs(Table[JobKey, Record]):
    """The jobs of one output, done once each and remembered for `HISTORY`; for any number of threads."""

    # On disk, as `weight` has it. Together with the bounds of current and past lives, those of all outputs
    # bound the state, and its memory to some four times as much.
    most_bytes = 2**19
    keeps_open = True  # whether what is done makes room before what waits, else the oldest does

    def __init__(self, output: str, parts: Parts) -> None:
        super().__init__(parts.journal, output, JobKey, Record)
        _, self._lives, self._facts, self._clock = parts
        self.size = 0
        self._open: dict[str, dict[JobKey, Record]] = {}  # jobs that are not done, by lane
        # By life: they are looked up for each event in turn, and there may be thousands of both.
        self._by_life: dict[str, dict[JobKey, Record]] = {}
        self._dropped: Counter[str] = Counter()
        self._ended: queue.SimpleQueue[tuple[Collection[JobKey], End]] = queue.SimpleQueue()

    def decode(self, key: bytes, value: bytes) -> tuple[JobKey, Record]:
        """Return a job; an undecodable record must not make the file unusable."""
        try:
            return super().decode(key, value)
        except (msgspec.MsgspecError, ValueError) as error:
            decoded = self._key_decoder.decode(key)
            facts = {"output": self.kind, "error": str(error)}
            log.warning("job in the state file cannot be decoded", extra=facts)
            return decoded, Record(msgspec.Raw(b"null"), queued=moment(self._clock))

    def apply(self, key: JobKey, value: Record | None) -> None:
        self.size += self._bytes(key, value) - self._bytes(key, self.entries.get(key))
        super().apply(key, value)
        is_open = value is not None and value.done is None
        _index(self._open, key.lane, key, value if is_open else None)
        _index(self._by_life, key.life_key, key, value)

    def counts(self) -> dict[str, int]:
        """Return the number of jobs that are not done, by lane; lanes without one are left out."""
        with self.lock:
            return {lane: len(jobs) for lane, jobs in self._open.items()}

    def first(self, lane: str, limit: int) -> list[tuple[JobKey, Record]]:
        with self.lock:
            return list(itertools.islice(self._open.get(lane, {}).items(), limit))

    def of(self, life_key: str) -> list[tuple[JobKey, Record]]:
        """Return the jobs of a life, oldest first."""
        with self.lock:
            return list(self._by_life.get(life_key, {}).items())

    def views(self, life_key: str, kind: Literal["message", "hook"]) -> list[WorkView]:
        """Return what the page shows of the jobs that transitions of a life have caused, oldest first."""
        jobs = self.of(life_key)
        life = self._lives.entries.get(life_key) if jobs else None
        records = life.transitions if life is not None else ()
        return [
            WorkView(
                kind,
                key.name or key.lane,
                records[key.sequence - 1].transition if key.sequence <= len(records) else None,
                record.outcome or "" if record.done else "running" if record.attempts else "pending",
                record.done,
            )
            for key, record in jobs
            if key.sequence
        ]

    def take_dropped(self) -> dict[str, int]:
        """Return how many jobs were dropped for lack of room since the last call, by name, or by lane."""
        dropped, self._dropped = self._dropped, Counter()
        return dropped

    def forget(self, transaction: Transaction, lives: Iterable[str]) -> None:
        """Delete the records of done jobs for lives that are forgotten."""
        for life in lives:
            for key, record in self.of(life):
                if record.done is not None:
                    transaction.delete(self, key)

    def add(self, transaction: Transaction, jobs: Iterable[Job]) -> None:
        """Add jobs in the transaction of the step that causes them, unless they are known."""
        now, queued = self._clock.now(), moment(self._clock)
        oldest = now - HISTORY
        added: list[tuple[JobKey, Record]] = []
        taken_back: list[JobKey] = []
        for job in jobs:
            present = self.entries.get(job.key)
            if job.payload is None:
                if present is not None and present.done is None and not present.attempts:
                    taken_back.append(job.key)
                    transaction.delete(self, job.key)
            elif present is None or _is_outdated(present, oldest):
                record = Record(job.payload, queued=queued)
                done = Record(job.payload, done=now, outcome=job.outcome)
                added.append((job.key, done if job.outcome else record))
        if added:
            self.put(transaction, added, gone=taken_back)

    def put(
        self,
        transaction: Transaction,
        added: Sequence[tuple[JobKey, Record]],
        *,
        gone: Collection[JobKey] = (),
    ) -> bool:
        """Put records, after deleting those that are older than `HISTORY`, and those that have to make room.

        Return whether there was room for all. Those that are ``gone`` in this transaction make none.
        """
        oldest = self._clock.now() - HISTORY
        outdated = [key for key, record in self.entries.items() if _is_outdated(record, oldest)]
        left = {*outdated, *gone, *(key for key, _ in added)}
        room = self.most_bytes - self.size + sum(self._bytes(key, self.entries.get(key)) for key in left)
        first, needed = len(added), 0
        while first and needed + self._bytes(*added[first - 1]) <= self.most_bytes:
            first -= 1
            needed += self._bytes(*added[first])
        dropped = [key for key, _ in added[:first]]
        spare = sorted(self.entries, key=self._is_kept) if needed > room else ()
        for key in outdated:
            transaction.delete(self, key)
        for key in spare:
            if needed <= room:
                break
            if key not in left:
                room += self._bytes(key, self.entries[key])
                transaction.delete(self, key)
                dropped += [key] if self.entries[key].done is None else []
        for key, record in added[first:]:
            transaction.put(self, key, record)
        self._dropped.update(key.name or key.lane for key in dropped)
        return not first

    def begin(self, key: JobKey) -> int:
        """Record that a job begins; return the attempt, from 1, or 0 if the job was dropped meanwhile."""
        with self._journal.transaction() as transaction:
            record = self.entries.get(key)
            if record is None:
                return 0
            transaction.put(self, key, begun := replace(record, attempts=record.attempts + 1))
        return begun.attempts

    def finish(self, keys: Collection[JobKey], end: End) -> None:
        """Record that jobs are done, with their facts, before this returns.

        What several threads have to record while the disk is busy is written in one transaction.
        """
        self._ended.put((keys, end))
        with self._journal.transaction() as transaction:
            facts: list[Fact] = []
            while not self._ended.empty():
                ended, end = self._ended.get()
                present = [key for key in ended if key in self.entries]
                for key in present:
                    transaction.put(self, key, self._done(self.entries[key], end))
                facts += self._facts_of(present, end)
            self._facts.add(transaction, facts)

    def record_end(self, key: JobKey, end: End) -> None:
        """Record the end of work that was not queued."""
        with self._journal.transaction() as transaction:
            self.put(transaction, [(key, self._done(Record(), end))])
            self._facts.add(transaction, self._facts_of([key], end))

    def withdraw(self, lives: Iterable[str]) -> None:
        """Forget all jobs for these lives, because what they did was undone."""
        with self._journal.transaction() as transaction:
            for key in [key for life in lives for key, _ in self.of(life)]:
                transaction.delete(self, key)

    def _facts_of(self, keys: Iterable[JobKey], end: End) -> list[Fact]:
        """Return the facts of jobs that end in a transaction."""
        if end.outcome is None:
            return []
        lives = ((key, self._lives.entries.get(key.life_key)) for key in keys)
        return [_work_fact(self.kind, key, life, end) for key, life in lives if life is not None]

    def _done(self, record: Record, end: End) -> Record:
        """Return what is kept of a job that is done."""
        return Record(attempts=record.attempts, done=end.at, outcome=end.outcome)

    def _is_kept(self, key: JobKey) -> bool:
        return self.keeps_open and self.entries[key].done is None

    def _bytes(self, key: JobKey, value: Record | None) -> int:
        return 0 if value is None else sum(map(weight, filter(None, self.row(key, value)[1:])))


def _work_fact(output: str, key: JobKey, life: Life, end: End) -> WorkFact:
    records = life.transitions[key.sequence - 1 : key.sequence] if key.sequence else ()
    return WorkFact(
        output=output,
        name=key.name or key.lane,
        event_id=life.ids[0],
        event_type=life.event.event_type,
        affects=life.target,
        life_key=life.key,
        vm=life.identity,
        number=key.sequence,
        transition=records[0].transition if records else None,
        begun=end.begun or (records[0].at if records else end.at),
        at=end.at,
        outcome=end.outcome or "",
        problem=end.problem,
    )


def _is_outdated(record: Record, oldest: datetime) -> bool:
    return record.done is not None and record.done < oldest


def _index(index: dict[str, dict[JobKey, Record]], name: str, key: JobKey, value: Record | None) -> None:
    """Put a job into an index under a name, or delete it; names without jobs are left out."""
    jobs = index.setdefault(name, {})
    if value is not None:
        jobs[key] = value
    else:
        jobs.pop(key, None)
    if not jobs:
        del index[name]
