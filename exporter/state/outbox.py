"""The messages that wait for their targets, in an order that nobody has to read them all for."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from exporter.clock import Clock, moment
from exporter.model.lifecycle import Life
from exporter.model.messages import AnyMessage, Message, Outcome, Severity
from exporter.state.facts import Facts
from exporter.state.jobs import JobKey, Jobs, Record
from exporter.state.journal import Journal, Table, Transaction

# The number of the record of what a life took over from the one before it; those of transitions begin at 1.
INHERITED = 0


class QueuedMessage(msgspec.Struct, eq=False):
    """A message that waits for its target; the outbox, the schedule and the worker share it."""

    key: JobKey
    # Replaced when it changes; the last one stays when the message has left the queue.
    record: Record[AnyMessage]
    severity: Severity

    @property
    def message(self) -> AnyMessage | None:
        """The message, None if it cannot be decoded."""
        return self.record.work

    @property
    def life_key(self) -> str:
        """The key of its event's life, or of the outage."""
        return self.key.life_key


class Lane:
    """The queued messages of one target."""

    def __init__(self) -> None:
        # In the order of the queue.
        self.queue: dict[JobKey, QueuedMessage] = {}
        # Those of each life, by number, in their order.
        self.lives: dict[str, dict[int, QueuedMessage]] = {}
        # The lives by the severity of their newest message, the gravest first.
        self.ranked: dict[Severity, dict[str, None]] = {severity: {} for severity in reversed(Severity)}
        # The lives of events with an earlier life in the lane, whose messages come before theirs.
        self.behind: dict[str, None] = {}
        # The lives of each event, in their order.
        self._of_event: dict[str, dict[str, None]] = {}

    def put(self, key: JobKey, record: Record[AnyMessage]) -> None:
        """Add a message, or the newest record of one that is there."""
        if key in self.queue:
            self.queue[key].record = record
            return
        life = key.life_key
        if life in self.lives:
            self._rank(life, add=False)
        else:
            lives = self._of_event.setdefault(_event(life), {})
            self.behind |= dict.fromkeys([life] if lives else [])
            lives[life] = None
        # One that cannot be decoded is given up at its turn.
        severity = record.work.severity if record.work else Severity.CRITICAL
        queued = QueuedMessage(key, record, severity)
        self.queue[key] = self.lives.setdefault(life, {})[key.sequence] = queued
        self._rank(life, add=True)

    def remove(self, key: JobKey) -> None:
        """Remove a message, if it is there; of those as grave, its event is ranked last."""
        if self.queue.pop(key, None) is None:
            return
        life = key.life_key
        self._rank(life, add=False)
        messages = self.lives.pop(life)
        del messages[key.sequence]
        if messages:
            self.lives[life] = messages
            self._rank(life, add=True)
        else:
            self._forget(life)

    def _forget(self, life: str) -> None:
        """Forget a life without messages: the next one of its event has its turn."""
        event = _event(life)
        lives = self._of_event[event]
        del lives[life]
        self.behind.pop(life, None)
        if lives:
            self.behind.pop(next(iter(lives)), None)
        else:
            del self._of_event[event]

    def _rank(self, life: str, *, add: bool) -> None:
        lives = self.ranked[next(reversed(self.lives[life].values())).severity]
        if add:
            lives.setdefault(life)
        else:
            del lives[life]


def _event(life: str) -> str:
    """Return what the keys of all lives of an event have in common, see `Life.key`."""
    event, mark, number = life.rpartition("#")
    return event if mark and number.isdigit() else life


class Outbox(Jobs[AnyMessage]):
    """The messages of all targets, in a lane for each; for any number of threads."""

    def __init__(self, journal: Journal, lives: Table[str, Life], facts: Facts, clock: Clock) -> None:
        super().__init__(journal, "message", Record[AnyMessage], lives=lives, facts=facts)
        self._clock = clock
        self._lanes: dict[str, Lane] = {}

    def lane(self, target: str) -> Lane:
        """Return the order of a target's queued messages; to be read while the ``lock`` is held."""
        return self._lanes.get(target) or Lane()

    def apply(self, key: JobKey, value: Record[AnyMessage] | None) -> None:
        super().apply(key, value)
        lane = self._lanes.setdefault(key.lane, Lane())
        if value is None or value.done is not None:
            lane.remove(key)
        else:
            lane.put(key, value)

    def add(self, transaction: Transaction, messages: Sequence[AnyMessage]) -> None:
        """Add messages in the transaction of the transitions that cause them, unless they are known."""
        if messages:
            queued = moment(self._clock)
            records = [Record[AnyMessage](one, queued=queued) for one in messages]
            keys = [JobKey(one.target, one.key, one.sequence) for one in messages]
            self._queue(transaction, zip(keys, records, strict=True), max(message.at for message in messages))

    def opened(self, life_key: str) -> dict[str, str]:
        """Return the targets that got a message of this life, or of this outage, or still wait for one.

        Each target comes with the key of the incident, "" if that is unknown. A message that was given up
        counts if it may have arrived, at least at one of the services behind the target.
        """
        found: dict[str, str] = {}
        for key, record in self.of(life_key):
            if not (record.work and record.work.only_closes) and _may_have_opened(record):
                found.setdefault(key.lane, record.work.incident if record.work else record.incident)
        return found

    def is_open(self, target: str, life_key: str) -> bool:
        """Return whether a target may have an incident of this life, or outage, by an earlier message."""
        return any(
            key.lane == target
            and (record.done or record.attempts or record.services)
            and _may_have_opened(record)
            for key, record in self.of(life_key)
        )

    def inherit(self, transaction: Transaction, former: str, life: str) -> None:
        """Record that what a life has opened is open for the one that takes its place."""
        now = self._clock.now()
        for target, incident in self.opened(former).items():
            record = Record[AnyMessage](done=now, outcome=Outcome.DELIVERED, incident=incident)
            transaction.put(self, JobKey(target, life, INHERITED), record)

    def life(self, message: Message) -> Life | None:
        """Return the life of a message's event as it is now."""
        with self.lock:
            return self._lives.entries.get(message.key)

    def record_attempt(self, tried: Sequence[QueuedMessage], add: int, had: Iterable[str] = ()) -> None:
        """Add to the limited attempts of messages, and to the services that have them."""
        with self._journal.transaction() as transaction:
            for one in tried:
                record = self.entries.get(one.key)
                if record is not None and record.done is None:
                    services = tuple(dict.fromkeys((*record.services, *had)))
                    after = replace(record, attempts=record.attempts + add, services=services)
                    if after != record:
                        transaction.put(self, one.key, after)

    def _done(self, record: Record[AnyMessage], at: datetime, outcome: str | None) -> Record[AnyMessage]:
        done = replace(super()._done(record, at, outcome), services=record.services)
        incident = record.work.incident if record.work and _may_have_opened(done) else ""
        return replace(done, incident=incident)


def _may_have_opened(record: Record[AnyMessage]) -> bool:
    """Return whether a target got a message, may have got it, or will get it."""
    unanswered = record.outcome == Outcome.EXPIRED and record.attempts > 0
    return record.done is None or record.outcome == Outcome.DELIVERED or unanswered or bool(record.services)
