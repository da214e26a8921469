"""What has happened, oldest first, and how far each of its readers has come."""

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Sequence
from datetime import datetime

import msgspec

from exporter.clock import Clock
from exporter.model.facts import Fact
from exporter.model.lifecycle import weight
from exporter.state.journal import Journal, Table, Transaction

CAPACITY = 2048  # enough for some hundred events
MOST_BYTES = 2 * 2**20  # as `weight` has it; most facts have their event with them
_MOST_SET_ASIDE = 100  # of one reader


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a reader has come: it has all facts up to a number, except those that are set aside."""

    number: int = 0
    aside: tuple[int, ...] = ()

    def lacks(self, number: int) -> bool:
        return number > self.number or number in self.aside


class _Cursors(Table[str, Cursor]):
    """How far each reader has come, by its name."""

    def merged(self, loaded: dict[str, Cursor]) -> dict[str, Cursor]:
        """Return the cursors of the file where it has them: they are before those in memory."""
        return self.entries | loaded


class Facts(Table[int, Fact]):
    """The facts that a reader still lacks, by number; for any number of threads.

    Without readers nothing is stored. Beyond `CAPACITY` or `MOST_BYTES` the oldest make room.
    """

    _size = 0

    def __init__(self, journal: Journal, clock: Clock) -> None:
        super().__init__(journal, "fact", int, Fact)  # type: ignore[arg-type]  # a union is a type to msgspec
        self._cursors = _Cursors(journal, "cursor", str, Cursor)
        # In milliseconds, so that numbers are beyond those of a file that can only be read later.
        self._first = round(clock.now().timestamp() * 1000)
        self.is_wanted: Callable[[Fact], bool] = lambda _: True  # whether a fact is stored for the readers
        self.grown: Callable[[], None] = lambda: None  # called when there are more, with all locks held
        # By reader, with their weights, and within the same bounds.
        self._displaced: dict[str, deque[tuple[int, Fact]]] = {}

    def apply(self, key: int, value: Fact | None) -> None:
        for sign, fact in ((-1, self.entries.get(key)), (1, value)):
            self._size += sign * _weight(fact) if fact is not None else 0
        super().apply(key, value)
        if value is not None:
            self.grown()

    @property
    def readers(self) -> KeysView[str]:
        return self._cursors.entries.keys()

    def set_readers(self, names: Collection[str]) -> dict[str, list[Fact]]:
        """Set the readers; new ones begin with the next fact. Return what former ones lacked."""
        with self._journal.transaction() as transaction:
            former = self._cursors.entries.keys() - set(names)
            lacked = {name: [fact for _, fact in self.unread(name)] for name in sorted(former)}
            for name in former:
                transaction.delete(self._cursors, name)
                self._displaced.pop(name, None)
            for name in names:
                if name not in self._cursors.entries:
                    transaction.put(self._cursors, name, Cursor(self._newest))
            kept = {name: cursor for name, cursor in self._cursors.entries.items() if name not in former}
            self._delete_read(transaction, kept)
        return lacked

    def add(self, transaction: Transaction, facts: Sequence[Fact]) -> None:
        """Add those facts that are wanted, in the transaction of what they describe."""
        facts = [fact for fact in facts if self.is_wanted(fact)]
        if not facts or not self.readers:
            return
        pending = [fact for table, _, fact in transaction.changes if table is self and fact is not None]
        added = dict(enumerate(facts, start=self._newest + len(pending) + 1))
        count = len(self.entries) + len(pending) + len(added)
        size = self._size + sum(map(_weight, [*pending, *facts]))
        for number, fact in [*self.entries.items(), *added.items()]:
            if count <= CAPACITY and size <= MOST_BYTES:
                break
            count, size = count - 1, size - _weight(fact)
            self._displace(number, fact)
            if added.pop(number, None) is None:
                transaction.delete(self, number)
        for displaced in self._displaced.values():
            surplus = sum(size for size, _ in displaced) - MOST_BYTES
            while surplus > 0:
                surplus -= displaced.popleft()[0]
        for number, fact in added.items():
            transaction.put(self, number, fact)

    def _displace(self, number: int, fact: Fact) -> None:
        for name, cursor in self._cursors.entries.items():
            if cursor.lacks(number):
                displaced = self._displaced.setdefault(name, deque(maxlen=CAPACITY))
                displaced.append((_weight(fact), fact))

    def put(self, facts: Sequence[Fact]) -> None:
        """Add facts in a transaction of their own."""
        if facts and self.readers:
            with self._journal.transaction() as transaction:
                self.add(transaction, facts)

    def unread(self, reader: str) -> list[tuple[int, Fact]]:
        """Return the facts that a reader lacks, oldest first; those that are set aside come last."""
        ahead, aside = self._lacking(reader)
        return ahead + aside

    def _lacking(self, reader: str) -> tuple[list[tuple[int, Fact]], list[tuple[int, Fact]]]:
        """Return the facts that a reader has not come to, and those that are set aside."""
        with self.lock:
            cursor = self._cursors.entries.get(reader, Cursor(self._newest))
            ahead = [(number, fact) for number, fact in self.entries.items() if number > cursor.number]
            aside = [(number, self.entries[number]) for number in cursor.aside if number in self.entries]
        return ahead, aside

    def take_displaced(self, reader: str) -> list[Fact]:
        """Return the facts that made room before they were read, since the last call."""
        return [fact for _, fact in self._displaced.pop(reader, ())]

    def give_up(self, reader: str, before: datetime) -> list[Fact]:
        """Skip the facts that a reader lacks from before a time, up to the first newer one; return them."""
        ahead, aside = self._lacking(reader)
        old = [*itertools.takewhile(lambda entry: entry[1].at < before, ahead)]
        old += [entry for entry in aside if entry[1].at < before]
        if old:
            self.mark_read(reader, [number for number, _ in old])
        return [fact for _, fact in old]

    def mark_read(self, reader: str, numbers: Iterable[int]) -> set[int]:
        """Record that a reader has these facts and all before them; return which of them were still there."""
        read = set(numbers)
        with self._journal.transaction() as transaction:
            present = read & self.entries.keys()
            self._move(transaction, reader, read)
        return present

    def set_aside(self, reader: str, number: int) -> None:
        """Set a fact aside, to read on after it.

        While many others are set aside, it stays where it is: more likely, the receiver takes nothing at all.
        """
        with self._journal.transaction() as transaction:
            cursor = self._cursors.entries[reader]
            aside = [other for other in cursor.aside if other != number and other in self.entries]
            if len(aside) < _MOST_SET_ASIDE:
                self._move(transaction, reader, {number}, aside=(*aside, number))

    def _move(
        self,
        transaction: Transaction,
        reader: str,
        read: Collection[int],
        *,
        aside: Collection[int] | None = None,
    ) -> None:
        before = self._cursors.entries.get(reader)
        if before is None:
            return
        if aside is None:
            aside = [number for number in before.aside if number not in read]
        cursor = Cursor(max(before.number, *read, 0), tuple(aside))
        transaction.put(self._cursors, reader, cursor)
        self._delete_read(transaction, {**self._cursors.entries, reader: cursor})

    def _delete_read(self, transaction: Transaction, cursors: Mapping[str, Cursor]) -> None:
        """Delete the facts that every reader has."""
        for number in self.entries:
            if not any(cursor.lacks(number) for cursor in cursors.values()):
                transaction.delete(self, number)

    @property
    def _newest(self) -> int:
        """The highest number so far."""
        last = next(reversed(self.entries), 0)
        return max(last, *(cursor.number for cursor in self._cursors.entries.values()), self._first)


def _weight(fact: Fact) -> int:
    return weight(msgspec.json.encode(fact))
