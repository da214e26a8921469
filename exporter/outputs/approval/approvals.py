"""The newest approvals of this exporter, stored before they are sent."""

from collections.abc import Iterable

from msgspec.structs import replace

from exporter.clock import HOUR, Moment, moment, renewed, seconds_since
from exporter.model.jobs import JobKey
from exporter.model.lifecycle import Transition
from exporter.model.reports import WorkerReport
from exporter.state.jobs import End, Jobs, Record
from exporter.state.journal import Transaction


class Approvals(Jobs):
    """The newest approval of each life; for any number of threads.

    The lane is the rule. It is done once Azure has accepted it. ``queued`` is when it was decided, for the
    hourly limit; None once that is over an hour ago.
    """

    keeps_open = False

    def decide(self, life_key: str, rule: str) -> bool:
        """Record that an event is about to be approved by a rule; return whether that is on disk."""
        record = Record(queued=moment(self._clock))
        with self._journal.transaction() as transaction:
            former = [key for key, _ in self.of(life_key)]
            for key in former:
                transaction.delete(self, key)
            has_room = self.put(transaction, [(JobKey(rule, life_key, 0), record)], gone=former)
        return transaction.is_durable and has_room

    def restore(self, life_key: str, before: Iterable[tuple[JobKey, Record]]) -> None:
        """Record that an attempt approved nothing: put back what was known before it."""
        with self._journal.transaction() as transaction:
            for key, _ in self.of(life_key):
                transaction.delete(self, key)
            for key, record in before:
                transaction.put(self, key, record)

    def forget(self, transaction: Transaction, lives: Iterable[str]) -> None:
        """Keep the records of forgotten lives: they count for the hourly limit."""

    def reports(self) -> list[WorkerReport]:
        """Return the reports of all that are done, including those that did not become transitions."""
        return [
            WorkerReport(key.life_key, Transition.APPROVED, record.done)
            for key, record in self.snapshot()
            if record.done is not None
        ]

    def of_last_hour(self) -> set[str]:
        """Return the lives that were, or may have been, approved within the last hour."""
        return {key.life_key for key, record in self.snapshot() if self._counted(record) is not None}

    def renew(self) -> None:
        """Count those of another boot from now on, and those of over an hour ago no more."""
        if all(record.queued == self._counted(record) for _, record in self.snapshot()):
            return
        with self._journal.transaction() as transaction:
            for key, record in self.entries.items():
                if record.queued != (counted := self._counted(record)):
                    transaction.put(self, key, replace(record, queued=counted))

    def _counted(self, record: Record) -> Moment | None:
        """Return from when an approval counts for the hourly limit, None if it does not any more."""
        if record.queued is None:
            return None
        age = seconds_since(record.queued, self._clock)
        return None if age is not None and age >= HOUR else renewed(record.queued, self._clock)

    def _done(self, record: Record, end: End) -> Record:
        return replace(record, done=end.at, outcome=end.outcome)
