"""The spans that receivers of traces have not taken yet, so that they survive the end of the process."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from exporter.model.spans import LifeEvent, Span, SpanEvent
from exporter.state.jobs import JobKey, Jobs, Record
from exporter.state.journal import Journal, Table, Transaction

# The spans of some hundred events, for each exporter.
CAPACITY = 2048


class SpanEvents(Table[tuple[str, int], SpanEvent]):
    """The events of root spans that are not over, by life and number; for any number of threads."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, "span_event", tuple[str, int], SpanEvent)

    def add(self, transaction: Transaction, events: Sequence[LifeEvent]) -> None:
        """Add events, in the transaction of what they tell; the oldest give way to them."""
        kept = events[-CAPACITY:]
        for key in islice(self.entries, max(len(self.entries) + len(kept) - CAPACITY, 0)):
            transaction.delete(self, key)
        for one in kept:
            transaction.put(self, (one.life, one.sequence), one.event)

    def forget(self, transaction: Transaction, lives: Collection[str]) -> None:
        """Delete the events of lives that are over, whose root spans have them now."""
        for key in self.entries if lives else ():
            if key[0] in lives:
                transaction.delete(self, key)

    def of(self, life: str) -> dict[int, SpanEvent]:
        """Return the events of a life by their sequence."""
        return {key[1]: event for key, event in self.snapshot() if key[0] == life}

    def clear(self) -> None:
        """Delete all."""
        with self._journal.transaction() as transaction:
            for key in self.entries:
                transaction.delete(self, key)


class Spans(Jobs[Span]):
    """The spans that wait, in a lane for each exporter; for any number of threads.

    No record is kept of a span that is over: one that was sent twice has the same id, and receivers can tell.
    While there are no ``lanes``, because nothing is traced, nothing is stored.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, "span", Record[Span])
        self.events = SpanEvents(journal)
        self.lanes: tuple[str, ...] = ()
        self._displaced: Counter[str] = Counter()

    def add(self, transaction: Transaction, spans: Sequence[Span]) -> None:
        """Add spans to every lane, in the transaction of what they tell; the oldest give way to them."""
        kept = spans[-CAPACITY:]
        for lane in self.lanes if spans else ():
            waiting = self._open.get(lane, {})
            surplus = max(len(waiting) + len(kept) - CAPACITY, 0)
            self._displaced[lane] += surplus + len(spans) - len(kept)
            for key in islice(waiting, surplus):
                transaction.delete(self, key)
            for span in kept:
                transaction.put(self, JobKey(lane, span.trace_id, 0, span.span_id), Record(span))

    def stage(self, spans: Sequence[Span]) -> None:
        """Add spans in a transaction of their own."""
        if self.lanes and spans:
            with self._journal.transaction() as transaction:
                self.add(transaction, spans)

    def waiting(self, lane: str) -> list[tuple[JobKey, Span | None]]:
        """Return what waits in a lane, oldest first; a span is None where it cannot be read."""
        return [(key, record.work) for key, record in self._first(lane, CAPACITY)]

    def remove(self, keys: Iterable[JobKey]) -> int:
        """Remove spans that are over; return how many of them still waited."""
        with self._journal.transaction() as transaction:
            found = [key for key in keys if key in self.entries]
            for key in found:
                transaction.delete(self, key)
        return len(found)

    def take_displaced(self, lane: str) -> int:
        """Return how many spans gave way to newer ones since the last call."""
        return self._displaced.pop(lane, 0)
