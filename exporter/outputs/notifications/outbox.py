"""The messages that wait for their targets, in the order of each."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from exporter.model.jobs import Job, JobKey
from exporter.model.lifecycle import Life, Transition
from exporter.model.messages import AnyMessage, Message, Outcome, Severity
from exporter.state.jobs import End, Jobs, Parts, Record

# The number of the record of what a life took over from the one before it; those of transitions begin at 1.
INHERITED = 0
_NEVER_LEFT_OUT = (Transition.APPROVED, Transition.HOOK_FAILED)  # no later message says what these do


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a message."""

    message: AnyMessage | None = None  # None once it is done
    attempts: int = 0  # how often it was refused, or not answered
    services: tuple[str, ...] = ()  # those behind the target that have it, while others do not
    incident: str = ""  # the key of the incident that it may have opened, once it is done, "" for none
    is_grave: bool = False  # whether it was a warning or graver, once it is done: others open no incident

    @property
    def raw(self) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(self))


_letters = msgspec.json.Decoder(Letter)


def letter_of(record: Record) -> Letter:
    """Return what is stored of a message; one that cannot be decoded has none."""
    return record.read(_letters) or Letter()


def job_of(message: AnyMessage) -> Job:
    key = JobKey(message.target, message.key, message.sequence)
    return Job("notifications", key, Letter(message).raw)


class QueuedMessage:
    """A message that waits for its target; the outbox, the schedule and the worker share it."""

    def __init__(self, key: JobKey, record: Record) -> None:
        self.key = key
        # Replaced when it changes; the last one stays when the message has left the queue.
        self.record = record
        message = self.message
        # One that cannot be decoded is given up at its turn.
        self.severity = message.severity if message else Severity.CRITICAL
        # Whether it neither stands for others, nor another for it.
        self.is_apart = message is None or message.only_closes or message.transition in _NEVER_LEFT_OUT

    @property
    def letter(self) -> Letter:
        return letter_of(self.record)

    @property
    def message(self) -> AnyMessage | None:
        """The message, None if it cannot be decoded."""
        return self.letter.message

    @property
    def life_key(self) -> str:
        """The key of its event's life, or of the outage."""
        return self.key.life_key


class Lane:
    """The queued messages of one target."""

    def __init__(self) -> None:
        self.queue: dict[JobKey, QueuedMessage] = {}  # in the order of the queue
        self.lives: dict[str, dict[int, QueuedMessage]] = {}  # those of each life, by number, in their order
        # The lives by the severity of their newest message, the gravest first.
        self.ranked: dict[Severity, dict[str, None]] = {severity: {} for severity in reversed(Severity)}
        # The lives of events with an earlier life in the lane, whose messages come before theirs.
        self.behind: dict[str, None] = {}
        self._of_event: dict[str, dict[str, None]] = {}  # the lives of each event, in their order

    def put(self, key: JobKey, record: Record) -> None:
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
        queued = QueuedMessage(key, record)
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


class Outbox(Jobs):
    """The messages of all targets, in a lane for each; for any number of threads."""

    most_bytes = 6 * 2**20

    def __init__(self, output: str, parts: Parts) -> None:
        super().__init__(output, parts)
        self._lanes: dict[str, Lane] = {}

    def lane(self, target: str) -> Lane:
        """Return the order of a target's queued messages; to be read while the ``lock`` is held."""
        return self._lanes.get(target) or Lane()

    def apply(self, key: JobKey, value: Record | None) -> None:
        super().apply(key, value)
        lane = self._lanes.setdefault(key.lane, Lane())
        if value is None or value.done is not None:
            lane.remove(key)
        else:
            lane.put(key, value)

    def opened(self, life_key: str) -> dict[str, str]:
        """Return the targets that got a message of this life, or of this outage, or still wait for one.

        Each target comes with the key of the incident, "" if that is unknown. A message that was given up
        counts if it may have arrived, at least at one of the services behind the target.
        """
        incidents: dict[str, str] = {}
        for key, record in self.of(life_key):
            letter = letter_of(record)
            message = letter.message
            if not (message and message.only_closes) and _may_have_opened(record, letter):
                incidents.setdefault(key.lane, message.incident if message else letter.incident)
        return incidents

    def is_open(self, target: str, life_key: str) -> bool:
        """Return whether a target may have an incident of this life, or outage, by an earlier message."""
        letters = ((record, letter_of(record)) for key, record in self.of(life_key) if key.lane == target)
        return any(
            _is_grave(letter)
            and (record.done or letter.attempts or letter.services)
            and _may_have_opened(record, letter)
            for record, letter in letters
        )

    def inherited(self, former: str, life: str) -> list[Job]:
        """Return what is remembered of a life that takes the place of another: what that has opened."""
        letters = {
            target: Letter(incident=incident, is_grave=self.is_open(target, former))
            for target, incident in self.opened(former).items()
        }
        return [
            Job(self.kind, JobKey(target, life, INHERITED), letter.raw, Outcome.DELIVERED)
            for target, letter in letters.items()
        ]

    def life(self, message: Message) -> Life | None:
        """Return the life of a message's event as it is now."""
        with self.lock:
            return self._lives.entries.get(message.key)

    def record_attempt(self, tried: Sequence[QueuedMessage], add: int, had: Iterable[str] = ()) -> None:
        """Add to the limited attempts of messages, and to the services that have them."""
        with self._journal.transaction() as transaction:
            for queued in tried:
                record = self.entries.get(queued.key)
                if record is not None and record.done is None:
                    letter = letter_of(record)
                    services = tuple(dict.fromkeys((*letter.services, *had)))
                    after = replace(letter, attempts=letter.attempts + add, services=services)
                    if after != letter:
                        transaction.put(self, queued.key, replace(record, payload=after.raw))

    def _done(self, record: Record, end: End) -> Record:
        done, letter = super()._done(record, end), letter_of(record)
        incident = letter.message.incident if letter.message and _may_have_opened(done, letter) else ""
        after = replace(letter, message=None, incident=incident, is_grave=_is_grave(letter))
        return replace(done, payload=after.raw)


def _is_grave(letter: Letter) -> bool:
    return letter.message.severity.is_grave if letter.message else letter.is_grave


def _may_have_opened(record: Record, letter: Letter) -> bool:
    """Return whether a target got a message, may have got it, or will get it."""
    unanswered = record.outcome == Outcome.EXPIRED and letter.attempts > 0
    return record.done is None or record.outcome == Outcome.DELIVERED or unanswered or bool(letter.services)
