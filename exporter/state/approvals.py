"""What was approved, and when that was decided: written down before anything is sent."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from exporter.model.lifecycle import HISTORY
from exporter.model.spans import Span
from exporter.state.journal import Journal, Table
from exporter.state.spans import Spans

_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Approval(msgspec.Struct, frozen=True):
    """An approval; ``sent`` is None where it is not known whether Azure took it.

    ``decided`` is just before the newest request: the hourly limit counts from the one that Azure may take.
    """

    key: str
    event_id: str
    rule: str
    decided: _Time
    sent: _Time | None = None


class Approvals(Table[str, Approval]):
    """All approvals of this exporter, by `TrackedEvent.key`; for any number of threads."""

    def __init__(self, journal: Journal, spans: Spans) -> None:
        super().__init__(journal, "approval", str, Approval)
        self._spans = spans

    def decide(self, key: str, event_id: str, rule: str, at: datetime) -> bool:
        """Remember that an event is about to be approved; return whether the disk has it, as it must."""
        oldest = at - HISTORY
        with self._journal.transaction() as transaction:
            for old, approval in self.entries.items():
                if approval.decided < oldest:
                    transaction.delete(self, old)
            before = self.entries.get(key)
            sent = before.sent if before is not None and before.decided >= oldest else None
            transaction.put(self, key, Approval(key, event_id, rule, at, sent))
        return transaction.is_durable

    def note_sent(self, key: str, at: datetime, spans: Sequence[Span] = ()) -> None:
        """Remember that Azure took it, with its spans."""
        with self._journal.transaction() as transaction:
            self._spans.add(transaction, spans)
            before = self.entries.get(key)
            if before is not None:
                transaction.put(self, key, msgspec.structs.replace(before, sent=at))

    def find(self, key: str) -> Approval | None:
        """Return what was decided about an event."""
        with self.lock:
            return self.entries.get(key)

    def unknown_until(self) -> datetime | None:
        """Return until when approvals of the last hour may have been forgotten; None where all are known."""
        return self._journal.unknown_until()

    def known(self) -> list[Approval]:
        """Return all that was decided."""
        return [approval for _, approval in self.snapshot()]
