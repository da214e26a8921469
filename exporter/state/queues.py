"""Queues of jobs in the state, with a lane per worker; and those of spans and log records."""

import itertools
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from exporter.clock import Moment
from exporter.model.jobs import LogRecord, ProcessIdentity, Span, SpanEvent, UtcTime
from exporter.model.lifecycle import weight
from exporter.state.journal import Journal, K, Table, Transaction, V

log = logging.getLogger(__name__)

# Per exporter; enough for some hundred events.
CAPACITY = 2048
# Of the tables, by kind, as `weight` has it. Together with the bounds of current and past lives, this bounds
# the state, and its memory to some four times as much.
MOST_BYTES = {
    "message": 11 * 2**19,
    "hook": 2**19,
    "span": 2**20,
    "span_event": 2**18,
    "log_record": 2**20,
    "approval": 2**19,
}

W = TypeVar("W")


class Exported(Protocol):
    """What is exported: ``identity`` is the same if it is sent twice, ``end`` is when it was over."""

    @property
    def identity(self) -> tuple[str, str]: ...
    @property
    def end(self) -> UtcTime: ...


E = TypeVar("E", bound=Exported)


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
    """The permanent identity of a job.

    Jobs of one ``lane`` are done in order. ``life`` is `Life.key`, ``sequence`` the transition's
    number in that life, from 1; ``name`` distinguishes jobs of one lane for the same transition.
    """

    lane: str
    life: str
    sequence: int
    name: str = ""


class Record(msgspec.Struct, Generic[W], frozen=True, omit_defaults=True):
    """The state of a job; ``work`` is None once it is done, or if it cannot be read.

    ``done`` is when it ended, None while it is pending or running; ``attempts`` counts how often it was
    started. ``process`` is the command of a hook that was started last. The rest is for messages.
    ``services`` are those behind a target that have the message, while others do not. ``queued`` is since
    when it waits, None if that is unknown. ``incident`` is the key of the incident that it may have opened,
    once it is done, "" for none.
    """

    work: W | None = None
    attempts: int = 0
    done: datetime | None = None
    outcome: str | None = None
    services: tuple[str, ...] = ()
    queued: Moment | None = None
    incident: str = ""
    process: ProcessIdentity | None = None


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


class SpanEvents(BoundedTable[tuple[str, int], SpanEvent]):
    """The events of root spans that have not ended, by life and number; for any number of threads."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, "span_event", tuple[str, int], SpanEvent)

    def add(self, transaction: Transaction, events: Mapping[tuple[str, int], SpanEvent]) -> None:
        """Add events in the transaction of what they describe; the oldest are dropped to make room."""
        kept = list(events.items())[-CAPACITY:]
        self.add_newest(transaction, kept, self.entries, len(self.entries) + len(kept) - CAPACITY)

    def forget(self, transaction: Transaction, lives: Collection[str]) -> None:
        """Delete the events of lives that have ended: their root spans contain them now."""
        for key in self.entries if lives else ():
            if key[0] in lives:
                transaction.delete(self, key)

    def of(self, life: str) -> dict[int, SpanEvent]:
        return {key[1]: event for key, event in self.snapshot() if key[0] == life}

    def clear(self) -> None:
        with self._journal.transaction() as transaction:
            for key in self.entries:
                transaction.delete(self, key)


class Exports(Queue[E]):
    """What has not been exported yet, in a lane for each exporter.

    No record of what was exported is kept: if it is sent twice, it has the same identity both times. Without
    ``lanes``, because the signal is off, nothing is stored.
    """

    def __init__(self, journal: Journal, kind: str, record_type: type[Record[E]]) -> None:
        super().__init__(journal, kind, record_type)
        self.lanes: tuple[str, ...] = ()
        self._displaced: Counter[str] = Counter()

    def add(self, transaction: Transaction, items: Sequence[E]) -> None:
        """Add items to every lane in the transaction of what they describe; the oldest make room."""
        for lane in self.lanes if items else ():
            kept = [(JobKey(lane, one.identity[0], 0, one.identity[1]), Record(one)) for one in items]
            del kept[:-CAPACITY]
            waiting = self._open.get(lane, {})
            surplus = len(waiting) + len(kept) - CAPACITY
            deleted, left_out = self.add_newest(transaction, kept, waiting, surplus)
            self._displaced[lane] += len(deleted) + left_out + len(items) - len(kept)

    def put(self, items: Sequence[E]) -> None:
        """Add items in a transaction of their own."""
        if items and self.lanes:
            with self._journal.transaction() as transaction:
                self.add(transaction, items)

    def waiting(self, lane: str) -> list[tuple[JobKey, E | None]]:
        """Return the items of a lane, oldest first; None in place of one that cannot be read."""
        return [(key, record.work) for key, record in self.first(lane, CAPACITY)]

    def remove(self, keys: Iterable[JobKey]) -> int:
        """Remove items, and return how many of them were still there."""
        with self._journal.transaction() as transaction:
            found = [key for key in keys if key in self.entries]
            for key in found:
                transaction.delete(self, key)
        return len(found)

    def take_displaced(self, lane: str) -> int:
        """Return how many items were dropped in favour of newer ones since the last call."""
        return self._displaced.pop(lane, 0)


class Spans(Exports[Span]):
    """The spans that have not been exported yet; ``events`` are those of root spans that have not ended."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, "span", Record[Span])
        self.events = SpanEvents(journal)


class LogRecords(Exports[LogRecord]):
    """The log records that have not been exported yet."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, "log_record", Record[LogRecord])
