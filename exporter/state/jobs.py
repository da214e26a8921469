"""Work that transitions cause, in the order in which it is to be done; each piece is done once."""

import itertools
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

import msgspec

from exporter.model.lifecycle import HISTORY
from exporter.state.journal import Journal, Table, Transaction

log = logging.getLogger(__name__)

W = TypeVar("W")


class JobKey(NamedTuple):
    """The identity of a job for all time.

    Jobs of one ``lane`` are done in order. ``life`` is `TrackedEvent.key`, ``sequence`` the transition's
    number in that life, from 1; ``name`` distinguishes jobs of one lane for the same transition.
    """

    lane: str
    life: str
    sequence: int
    name: str = ""


class Record(msgspec.Struct, Generic[W], frozen=True, omit_defaults=True):
    """The state of a job: what is to be done, None once it is over or where it cannot be read.

    ``done`` is when it ended, None while it waits or runs; ``attempts`` counts how often it was begun.
    """

    work: W | None = None
    attempts: int = 0
    done: datetime | None = None
    outcome: str | None = None


class Jobs(Table[JobKey, Record[W]]):
    """The jobs of one kind; for any number of threads.

    A job that is done leaves a record without its work, for as long as the history lasts, so that it is not
    queued again.
    """

    def __init__(self, journal: Journal, kind: str, record_type: type[Record[W]]) -> None:
        super().__init__(journal, kind, JobKey, record_type)
        self._open: dict[str, dict[JobKey, Record[W]]] = {}

    def decode(self, key: bytes, value: bytes) -> tuple[JobKey, Record[W]]:
        """Return a job; one whose work cannot be read must not hold up the others."""
        try:
            return super().decode(key, value)
        except ValueError as error:
            found = self._key_decoder.decode(key)
            log.warning("a job in the state cannot be read", extra={"kind": self.kind, "error": str(error)})
            return found, Record()

    def apply(self, key: JobKey, value: Record[W] | None) -> None:
        """Put a job, or delete it."""
        super().apply(key, value)
        lane = self._open.setdefault(key.lane, {})
        if value is not None and value.done is None:
            lane[key] = value
        else:
            lane.pop(key, None)
        if not lane:
            del self._open[key.lane]

    def counts(self) -> dict[str, int]:
        """Return the number of jobs that are not done, by lane."""
        with self.lock:
            return {lane: len(jobs) for lane, jobs in self._open.items()}

    def forget(self, transaction: Transaction, lives: Iterable[str]) -> None:
        """Delete the records of what is done for lives that are forgotten."""
        gone = frozenset(lives)
        for key, record in self.entries.items() if gone else ():
            if record.done is not None and key.life in gone:
                transaction.delete(self, key)

    def _queue(self, transaction: Transaction, jobs: Iterable[tuple[JobKey, W]], now: datetime) -> None:
        """Add jobs that are not known yet, and delete the records of those that were done long ago."""
        oldest = now - HISTORY
        for key, record in self.entries.items():
            if record.done is not None and record.done < oldest:
                transaction.delete(self, key)
        for key, work in jobs:
            if key not in self.entries:
                transaction.put(self, key, Record(work))

    def _first(self, lane: str, limit: int) -> list[tuple[JobKey, Record[W]]]:
        """Return the jobs of a lane that are to be done next."""
        with self.lock:
            return list(itertools.islice(self._open.get(lane, {}).items(), limit))

    def _finish(
        self,
        keys: Iterable[JobKey],
        at: datetime,
        outcome: str | None = None,
        also: Callable[[Transaction], None] = lambda _: None,
    ) -> None:
        """Note that jobs are done, in one transaction, in which ``also`` adds something."""
        with self._journal.transaction() as transaction:
            also(transaction)
            for key in keys:
                if key in self.entries:
                    attempts = self.entries[key].attempts
                    transaction.put(self, key, Record(attempts=attempts, done=at, outcome=outcome))
