"""The order of a target's messages, decided without I/O from the queue and the results of attempts.

There is one attempt at a time. Messages of one event are sent in order. A failed attempt delays only its own
event. Once two different messages have failed in a row, the target counts as down: it is tried with growing
pauses, until it accepts a message.

A target that keeps up gets messages in the order of the queue. One that does not gets the gravest events
first, and of each event the newest message, which stands for those before it.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from exporter.clock import Clock, seconds_since
from exporter.model.messages import Failure
from exporter.outputs.notifications.outbox import Lane, QueuedMessage
from exporter.work import Backoff

SLOW_SECONDS = 2.0  # if the first message has waited for longer than this, the gravest go first
# The pauses before a message is repeated that was refused, or may have arrived; after the last attempt it is
# given up.
_PAUSES = (20.0, 300.0)
MOST_ATTEMPTS_FOR_ONE = 3


class Turn(NamedTuple):
    """The next action; without messages and delay there is nothing to do until something changes."""

    messages: tuple[QueuedMessage, ...] = ()  # the last one is to be sent, and stands for the others
    delay: float | None = None  # the seconds until the next decision


class _Hold(NamedTuple):
    """An event whose message failed, and when to retry it."""

    failure: Failure
    until: float
    backoff: Backoff


class Schedule:
    """The order of one target's messages; used by one thread. Times are the clock's monotonic seconds."""

    def __init__(self, clock: Clock, *, recovering: bool) -> None:
        self._clock = clock
        # Whether the target, or the exporter, was down, so that queued messages are late.
        self._recovering = recovering
        self.reset(waited=False)

    def reset(self, *, waited: bool) -> None:
        """Start over, because of a reload; ``waited`` is true if messages waited for the target to return."""
        self._start_over()
        self._quiet_until = -math.inf  # until when the target asked to be left alone
        self._recovering = self._recovering or waited

    def _start_over(self) -> None:
        """Forget all failures."""
        self.has_failed = False  # whether an attempt has failed, which the messages after it say
        self._holds: dict[str, _Hold] = {}  # by life
        # The lives whose messages failed since the last one that was delivered; with two the target is down.
        self._failing: set[str] = set()
        # The pauses while the target is down, and the end of the one that has begun.
        self._backoff = Backoff(self._clock)
        self._paused_until = -math.inf

    @property
    def is_failing(self) -> bool:
        """Whether a message has failed and has not been delivered or given up since."""
        return bool(self._holds)

    def next(self, lane: Lane, *, every: bool) -> Turn:
        """Return the next action; with ``every`` no message stands for another."""
        now = self._clock.monotonic()
        if not lane.lives:
            self._start_over()
        self._holds = {life: hold for life, hold in self._holds.items() if life in lane.lives}
        if self._is_down and now < self._paused_until:
            return Turn(delay=self._paused_until - now)
        later = {life: hold.until for life, hold in self._holds.items() if hold.until > now}
        blocked = later.keys() | lane.behind.keys()
        if len(blocked) == len(lane.lives):
            self._recovering = self._recovering and bool(self._failing)
            return Turn(delay=min(later.values()) - now if later else None)
        if now < self._quiet_until:
            return Turn(delay=self._quiet_until - now)
        oldest = next(entry for entry in lane.queue.values() if entry.life_key not in blocked)
        age = seconds_since(oldest.record.queued, self._clock)
        is_late = self._recovering or bool(self._holds) or age is None or age >= SLOW_SECONDS
        life = self._gravest(lane, blocked) if is_late else oldest.life_key
        messages = tuple(lane.lives[life].values())
        waited = self._recovering or life in self._holds
        return Turn(messages[:1] if every or not waited else _newest(messages))

    def delivered(self, life: str) -> None:
        """Record that a message of a life was delivered."""
        # They failed because the target was down, or did not answer.
        over = {Failure.UNANSWERED, *([Failure.TARGET] if self._is_down else [])}
        for held, hold in self._holds.items():
            if hold.failure in over:
                self._holds[held] = hold._replace(until=-math.inf)
        self._holds.pop(life, None)
        self._failing.clear()
        self._backoff.succeeded()

    def failed(self, life: str, failure: Failure, took: float, retry_after: float = 0.0) -> None:
        """Record that an attempt with a message of a life failed; it ``took`` so many seconds.

        ``retry_after`` is for how many seconds the target asks to be left alone.
        """
        self.has_failed = True
        now = self._clock.monotonic()
        hold = self._holds.get(life)
        backoff = hold.backoff if hold else Backoff(self._clock)
        pause = backoff.failed(took)
        if failure is not Failure.TARGET:
            pause = _PAUSES[min(backoff.failures, len(_PAUSES)) - 1]
        self._holds[life] = _Hold(failure, now + max(pause, retry_after), backoff)
        self._quiet_until = max(self._quiet_until, now + retry_after)
        if failure is not Failure.REFUSED:
            self._failing.add(life)
            self._recovering = True
            self._paused_until = now + self._backoff.failed(took)

    def given_up(self, messages: Iterable[QueuedMessage]) -> None:
        """Forget the failures of messages that are not retried."""
        for message in messages:
            self._holds.pop(message.life_key, None)

    @property
    def _is_down(self) -> bool:
        return len(self._failing) > 1

    def _gravest(self, lane: Lane, blocked: set[str]) -> str:
        """Return the gravest event, or, while the target is down, that with the fewest failures."""
        held: list[str] = []
        for lives in lane.ranked.values():
            for life in lives:
                if life in blocked:
                    continue
                if life not in self._holds:
                    return life
                held.append(life)
            if held and not self._is_down:
                break
        return min(held, key=lambda life: self._holds[life].backoff.failures)


def _newest(messages: Sequence[QueuedMessage]) -> tuple[QueuedMessage, ...]:
    """Return the next message of a life, after those that it stands for: the newest, or one always sent."""
    others = [message for message in messages if not message.is_apart]
    kept = [message for message in messages if message.is_apart]
    if kept and (not others or messages.index(kept[0]) < messages.index(others[-1])):
        return (kept[0],)
    return tuple(others)
