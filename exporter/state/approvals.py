"""What was approved, and when it was decided to: known before anything is sent, and after every restart."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from exporter.lifecycle import HISTORY
from exporter.state.database import Database

_INSERT = """
    INSERT INTO approvals (key, event_id, rule, decided, sent) VALUES (?, ?, ?, ?, NULL)
    ON CONFLICT (key) DO UPDATE SET
        event_id = excluded.event_id, rule = excluded.rule, decided = excluded.decided
"""
_SENT = "UPDATE approvals SET sent = ? WHERE key = ?"
_SELECT = "SELECT key, event_id, rule, decided, sent FROM approvals"


class Approval(NamedTuple):
    """An approval; ``sent`` is None where it is not known whether Azure took it.

    ``decided`` is just before the newest request: the hourly limit counts from the one that Azure may take.
    """

    key: str
    event_id: str
    rule: str
    decided: datetime
    sent: datetime | None


class Approvals:
    """All approvals of this exporter, by `TrackedEvent.key`; for any number of threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def decide(self, key: str, event_id: str, rule: str, at: datetime) -> bool:
        """Remember that an event is about to be approved; tell whether the disk has it, as it must."""
        oldest = (at - HISTORY).timestamp()
        with self._database.transaction() as transaction:
            transaction.write("DELETE FROM approvals WHERE decided < ?", [(oldest,)])
            transaction.write(_INSERT, [(key, event_id, rule, at.timestamp())])
        return self._database.is_on_disk()

    def note_sent(self, key: str, at: datetime) -> None:
        """Remember that Azure took it."""
        with self._database.transaction() as transaction:
            transaction.write(_SENT, [(at.timestamp(), key)])

    def find(self, key: str) -> Approval | None:
        """Give what was decided about an event."""
        rows = self._database.read(f"{_SELECT} WHERE key = ?", (key,))  # our own words
        return _approval(*rows[0]) if rows else None

    def sent(self) -> list[Approval]:
        """List all that Azure took."""
        rows = self._database.read(f"{_SELECT} WHERE sent IS NOT NULL")  # our own words
        return [_approval(*row) for row in rows]

    def count_since(self, at: datetime, *, but: str) -> int:
        """Count the events that it was decided to approve after ``at``, but for one, by its key."""
        sql = "SELECT count(*) FROM approvals WHERE decided > ? AND key != ?"
        ((count,),) = self._database.read(sql, (at.timestamp(), but))
        return int(count)


def _approval(key: str, event_id: str, rule: str, decided: float, sent: float | None) -> Approval:
    return Approval(key, event_id, rule, _time(decided), None if sent is None else _time(sent))


def _time(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
