"""The messages that wait for their targets, in an order that nobody has to read them all for."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from exporter.clock import Clock, Moment, moment
from exporter.model.jobs import Span
from exporter.model.lifecycle import Life
from exporter.model.messages import AnyMessage, Message, Outcome, Severity
from exporter.state.jobs import JobKey, Jobs, Record, Spans
from exporter.state.journal import Journal, Table, Transaction

# The number of the record of what a life took over from the one before it; those of transitions begin at 1.
INHERITED = 0


class Item(NamedTuple):
    """A queued message: its event's life, its number in that life, its severity, its place in the queue."""

    life: str
    sequence: int
    severity: Severity
    place: int

    @property
    def id(self) -> tuple[str, int]:
        return self.life, self.sequence


class Lane:
    """The queued messages of one target.

    ``lives`` has those of each event in their order. ``queue`` has the event of each message, in the order of
    the queue, by place. ``ranked`` has the events by the severity of their next message, the gravest first.
    ``behind`` has the lives of events with an earlier life in the lane, whose messages come before theirs.
    """

    def __init__(self) -> None:
        self.lives: dict[str, dict[int, Item]] = {}
        self.queue: dict[int, str] = {}
        self.ranked: dict[Severity, dict[str, None]] = {severity: {} for severity in reversed(Severity)}
        self.behind: dict[str, None] = {}
        self._places = 0
        self._of_event: dict[str, dict[str, None]] = {}

    def put(self, life: str, sequence: int, severity: Severity) -> None:
        if life not in self.lives:
            lives = self._of_event.setdefault(_event(life), {})
            self.behind |= dict.fromkeys([life] if lives else [])
            lives[life] = None
        items = self.lives.setdefault(life, {})
        if sequence not in items:
            self._places += 1
            items[sequence] = Item(life, sequence, severity, self._places)
            self.queue[self._places] = life
            self._rank(life, add=True)

    def remove(self, life: str, sequence: int) -> None:
        """Remove a message, if it is there; of those as grave, the event's next one is ranked last."""
        items = self.lives.get(life, {})
        if sequence in items:
            self._rank(life, add=False)
            del self.queue[items[sequence].place], items[sequence], self.lives[life]
            if items:
                self.lives[life] = items
                self._rank(life, add=True)
            else:
                self._forget(life)

    def items(self, lives: Iterable[str], most: int) -> tuple[Item, ...]:
        """Return messages of some events, at most so many, in the order of the queue."""
        found = itertools.chain.from_iterable(self.lives[life].values() for life in lives)
        return tuple(sorted(itertools.islice(found, most), key=lambda item: item.place))

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
        lives = self.ranked[next(iter(self.lives[life].values())).severity]
        if add:
            lives.setdefault(life)
        else:
            del lives[life]


def _event(life: str) -> str:
    """Return what the keys of all lives of an event have in common, see `Life.key`."""
    event, mark, number = life.rpartition("#")
    return event if mark and number.isdigit() else life


class QueuedMessage(NamedTuple):
    """A queued message, with its identity in the outbox; ``message`` is None if it cannot be decoded.

    ``attempts`` counts those whose number is limited: the message was refused, or there was no answer.
    ``services`` are those behind the target that have the message. ``queued`` is since when it waits, None if
    that is unknown.
    """

    key: str
    sequence: int
    message: AnyMessage | None
    attempts: int = 0
    services: tuple[str, ...] = ()
    queued: Moment | None = None

    @property
    def id(self) -> tuple[str, int]:
        return self.key, self.sequence


class Outbox(Jobs[AnyMessage]):
    """The messages of all targets, in a lane for each; for any number of threads."""

    def __init__(self, journal: Journal, lives: Table[str, Life], spans: Spans, clock: Clock) -> None:
        super().__init__(journal, "message", Record[AnyMessage], spans)
        self._clock = clock
        self._lives = lives
        self._lanes: dict[str, Lane] = {}

    def lane(self, target: str) -> Lane:
        """Return the order of a target's queued messages; to be read while the ``lock`` is held."""
        return self._lanes.get(target) or Lane()

    def apply(self, key: JobKey, value: Record[AnyMessage] | None) -> None:
        super().apply(key, value)
        lane = self._lanes.setdefault(key.lane, Lane())
        if value is None or value.done is not None:
            lane.remove(key.life, key.sequence)
        else:
            # One that cannot be decoded is given up at its turn.
            lane.put(key.life, key.sequence, value.work.severity if value.work else Severity.CRITICAL)

    def add(self, transaction: Transaction, messages: Sequence[AnyMessage]) -> None:
        """Add messages in the transaction of the transitions that cause them, unless they are known."""
        if messages:
            queued = moment(self._clock)
            records = [Record[AnyMessage](one, queued=queued) for one in messages]
            keys = [JobKey(one.target, one.key, one.sequence) for one in messages]
            self._queue(transaction, zip(keys, records, strict=True), max(message.at for message in messages))

    def find(self, target: str, ids: Iterable[tuple[str, int]]) -> list[QueuedMessage]:
        with self.lock:
            keys = [JobKey(target, *one) for one in ids]
            found = [(key, self.entries[key]) for key in keys if key in self.entries]
        return [
            QueuedMessage(
                key.life, key.sequence, record.work, record.attempts, record.services, record.queued
            )
            for key, record in found
            if record.done is None
        ]

    def opened(self, lives: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the targets that got a message of these lives, or still wait for one, by life.

        Each target comes with the key of the incident, "" if that is unknown. A message that was given up
        counts if it may have arrived, at least at one of the services behind the target.
        """
        found: dict[str, dict[str, str]] = {life: {} for life in lives}
        for key, record in self.snapshot():
            if (
                key.life in found
                and not (record.work and record.work.only_closes)
                and _may_have_opened(record)
            ):
                incident = record.work.incident if record.work else record.incident
                found[key.life].setdefault(key.lane, incident)
        return found

    def inherit(self, transaction: Transaction, former: str, life: str) -> None:
        """Record that what a life has opened is open for the one that takes its place."""
        now = self._clock.now()
        for target, incident in self.opened((former,))[former].items():
            record = Record[AnyMessage](done=now, outcome=Outcome.DELIVERED, incident=incident)
            transaction.put(self, JobKey(target, life, INHERITED), record)

    def life(self, message: AnyMessage) -> Life | None:
        with self.lock:
            return self._lives.entries.get(message.key)

    def as_of_now(self, message: AnyMessage) -> AnyMessage:
        """Return a message with the end of its event, if the event has ended since."""
        life = self.life(message)
        if not isinstance(message, Message) or life is None or life.ended is None:
            return message
        event = replace(
            message.event,
            started=life.started,
            ended=life.ended,
            outcome=life.outcome,
            changed_to=life.changed_to,
            impact_seconds=life.impact_seconds,
            paused_seconds=life.paused_seconds,
        )
        return replace(message, event=event)

    def note_attempt(
        self, target: str, tried: Sequence[QueuedMessage], add: int, had: Iterable[str] = ()
    ) -> None:
        """Add to the limited attempts of messages, and to the services that have them."""
        with self._journal.transaction() as transaction:
            for one in tried:
                key = JobKey(target, *one.id)
                record = self.entries.get(key)
                if record is not None and record.done is None:
                    services = tuple(dict.fromkeys((*record.services, *had)))
                    noted = replace(record, attempts=record.attempts + add, services=services)
                    if noted != record:
                        transaction.put(self, key, noted)

    def finish(
        self,
        target: str,
        finished: Sequence[QueuedMessage],
        at: datetime,
        *,
        outcome: Outcome | None = None,
        spans: Sequence[Span] = (),
    ) -> None:
        """Record that messages were delivered or given up; without an outcome there was nothing to send."""
        self._finish([JobKey(target, *one.id) for one in finished], outcome, at, spans)

    def _done(self, record: Record[AnyMessage], at: datetime, outcome: str | None) -> Record[AnyMessage]:
        done = replace(super()._done(record, at, outcome), services=record.services)
        incident = record.work.incident if record.work and _may_have_opened(done) else ""
        return replace(done, incident=incident)


def _may_have_opened(record: Record[AnyMessage]) -> bool:
    """Return whether a target got a message, may have got it, or will get it."""
    unanswered = record.outcome == Outcome.EXPIRED and record.attempts > 0
    return record.done is None or record.outcome == Outcome.DELIVERED or unanswered or bool(record.services)
