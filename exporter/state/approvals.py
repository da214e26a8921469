"""What was approved, and when it was decided to: known before anything is sent, and after every restart."""

import threading
from collections.abc import Mapping
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
    """All approvals of this exporter, by `TrackedEvent.key`; for any number of threads.

    They are few, and asked for with every event on the page, in the API and in every decision: asking waits
    for no disk, save once after one came back.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._by_key: dict[str, Approval] = {}
        self._generation = -1

    def decide(self, key: str, event_id: str, rule: str, at: datetime) -> bool:
        """Remember that an event is about to be approved; tell whether the disk has it, as it must."""
        oldest = at - HISTORY
        before = self._known().get(key)
        if before is None or before.decided < oldest:
            before = Approval(key, event_id, rule, at, None)
        with self._database.transaction() as transaction:
            transaction.write("DELETE FROM approvals WHERE decided < ?", [(oldest.timestamp(),)])
            transaction.write(_INSERT, [(key, event_id, rule, at.timestamp())])
            with self._lock:
                kept = {k: approval for k, approval in self._by_key.items() if approval.decided >= oldest}
                again = before._replace(event_id=event_id, rule=rule, decided=at)
                self._by_key = kept | {key: again}
        return self._database.is_on_disk()

    def note_sent(self, key: str, at: datetime) -> None:
        """Remember that Azure took it."""
        before = self._known().get(key)
        with self._database.transaction() as transaction:
            transaction.write(_SENT, [(at.timestamp(), key)])
            with self._lock:
                self._by_key = self._by_key | ({key: before._replace(sent=at)} if before else {})

    def find(self, key: str) -> Approval | None:
        """Give what was decided about an event."""
        return self._known().get(key)

    def sent(self) -> list[Approval]:
        """List all that Azure took."""
        return [approval for approval in self._known().values() if approval.sent is not None]

    def known(self) -> list[Approval]:
        """List all that was decided."""
        return list(self._known().values())

    def _known(self) -> Mapping[str, Approval]:
        if self._generation != self._database.generation:
            # In a transaction, as all changes: what is read here must not replace what came after it.
            with self._database.transaction() as transaction:
                rows = transaction.read(_SELECT)
                with self._lock:
                    self._by_key = {row[0]: _approval(*row) for row in rows}
                    self._generation = self._database.generation
        return self._by_key


def _approval(key: str, event_id: str, rule: str, decided: float, sent: float | None) -> Approval:
    return Approval(key, event_id, rule, _time(decided), None if sent is None else _time(sent))


def _time(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
