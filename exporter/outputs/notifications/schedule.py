"""The order of a target's messages, decided without I/O from the queue and the results of attempts.

Messages of one event are sent in order, one at a time. A failed attempt delays only its own event. Once two
different messages have failed in a row, the target counts as down: it is tried with one message at a time,
with growing pauses, until it accepts one.

A target that keeps up gets messages in the order of the queue; one that does not gets the gravest first.
"""

import math
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from exporter.clock import Clock, seconds_since
from exporter.model.messages import Backlog, Failure, Severity
from exporter.state.jobs import JobKey
from exporter.state.outbox import Lane, QueuedMessage
from exporter.work import Backoff

# More queued messages than this are sent as one to a target that was down.
MOST_SINGLE = 10
MOST_IN_DIGEST = 200
# An attempt that takes longer than this does not delay others, up to this many attempts. If the first message
# has waited for longer than this, the gravest go first.
SLOW_SECONDS = 2.0
MOST_ATTEMPTS = 3
MOST_ATTEMPTS_CRITICAL = 6
# After these a message may have arrived. It is due again as soon as another message has been delivered.
_UNCERTAIN = {Failure.UNANSWERED}
# The pauses before retries. After the last attempt a message is given up.
_PAUSES = {Failure.REFUSED: (10.0, 50.0)} | dict.fromkeys(_UNCERTAIN, (20.0, 300.0))
MOST_ATTEMPTS_FOR_ONE = 3
# A target that asks to be left alone for longer is tried again after this.
LONGEST_RETRY_AFTER = 300.0
# While the target is down, this many attempts with a digest are followed by one with a single message, as the
# digest itself may be the cause.
_DIGESTS_IN_A_ROW = 3


class Turn(NamedTuple):
    """The next action: send ``messages`` as one, or decide again in ``delay`` seconds.

    Without messages and delay there is nothing to do until something changes. There are several ``messages``
    in a digest, and if the last of them replaces those before it.
    """

    messages: tuple[QueuedMessage, ...] = ()
    is_digest: bool = False
    delay: float | None = None


class Attempt(NamedTuple):
    """Messages that are being sent as one, since ``begun`` on the monotonic clock."""

    messages: Sequence[QueuedMessage]
    is_digest: bool
    begun: float


class _Hold(NamedTuple):
    """An event whose first message failed, and when to retry it."""

    failure: Failure
    until: float
    backoff: Backoff


class Schedule:
    """The order of one target's messages; used by one thread. Times are the clock's monotonic seconds."""

    def __init__(
        self, clock: Clock, *, recovering: bool, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._chance = chance
        # Whether the target, or the exporter, was down, so that queued messages are late.
        self._recovering = recovering
        # Those in progress.
        self._attempts: list[Attempt] = []
        # Whether the last attempt delivered a single message: if a digest fails after it, that is the cause.
        self._accepts_singles = False
        # Until when the target asked to be left alone.
        self._quiet_until = -math.inf
        self._start_over()

    def _start_over(self) -> None:
        """Forget all failures."""
        # Whether an attempt has failed, which the messages after it say.
        self.has_failed = False
        # Whether the last attempt was not answered.
        self.hangs = False
        # By life.
        self._holds: dict[str, _Hold] = {}
        # The lives whose messages failed since the last one that was delivered; with two the target is down.
        self._failing: set[str] = set()
        # The pauses while the target is down, and the end of the one that has begun.
        self._backoff = Backoff(self._clock, chance=self._chance)
        self._paused_until = -math.inf
        # Whether the last message had waited for the target to be up again: it counts with those after it.
        self._ended_outage = False
        # False once a digest has failed because of itself, or of one of its messages.
        self._digests_work = True
        # The digest that failed last, which is retried unchanged.
        self._digest: tuple[JobKey, ...] = ()

    @property
    def is_failing(self) -> bool:
        """Whether a message has failed and has not been delivered or given up since."""
        return bool(self._holds)

    @property
    def under_way(self) -> frozenset[QueuedMessage]:
        """The messages of attempts in progress."""
        return frozenset(one for attempt in self._attempts for one in attempt.messages)

    def next(self, lane: Lane, backlog: Backlog) -> Turn:
        """Return the next action for the queued messages."""
        now = self._clock.monotonic()
        busy = {one.life_key for one in self.under_way}
        self._forget_all_but(lane.lives.keys())
        if self._is_down and (self._attempts or now < self._paused_until):
            return Turn(delay=None if self._attempts else self._paused_until - now)
        later = {life: at for life in self._holds.keys() - busy if (at := self._due(self._holds[life])) > now}
        blocked = (busy | later.keys() | lane.behind.keys()) & lane.lives.keys()
        if len(blocked) == len(lane.lives):
            self._recovering = self._recovering and bool(self._failing or self._attempts)
            return Turn(delay=min(later.values()) - now if later else None)
        if now < self._quiet_until:
            return Turn(delay=self._quiet_until - now)
        turn = self._choose(lane, blocked, backlog)
        wait = self._wait_for_others(turn.messages, now)
        return turn if wait == 0 else Turn(delay=wait)

    def begin(self, messages: Sequence[QueuedMessage], *, is_digest: bool) -> Attempt:
        """Record the start of an attempt with the first messages of a turn."""
        attempt = Attempt(messages, is_digest, self._clock.monotonic())
        self._attempts.append(attempt)
        return attempt

    def delivered(self, attempt: Attempt, sent: Iterable[QueuedMessage]) -> None:
        """Record that an attempt delivered its messages, or the first ones."""
        self._attempts.remove(attempt)
        self.hangs = False
        self._ended_outage = self._is_down and not attempt.is_digest
        # They failed because the target was down.
        over = {Failure.TARGET, *_UNCERTAIN} if self._is_down else _UNCERTAIN
        for life, hold in self._holds.items():
            if hold.failure in over:
                self._holds[life] = hold._replace(until=-math.inf)
        self.given_up(sent)
        self._failing.clear()
        self._backoff.succeeded()
        self._accepts_singles = not attempt.is_digest

    def failed(
        self,
        attempt: Attempt,
        sent: Sequence[QueuedMessage],
        failure: Failure,
        retry_after: float = 0.0,
    ) -> None:
        """Record that an attempt with its messages, or the first ones, failed.

        ``retry_after`` is for how many seconds the target asks to be left alone.
        """
        self._attempts.remove(attempt)
        self.has_failed, self.hangs = True, failure in _UNCERTAIN
        took = self._clock.monotonic() - attempt.begun
        asked = min(retry_after, LONGEST_RETRY_AFTER)
        lives = {one.life_key for one in sent}
        # The message that is refused is found among single ones.
        is_split = attempt.is_digest and failure is Failure.REFUSED
        if attempt.is_digest:
            self._digest = tuple(one.key for one in sent)
            if is_split or self._accepts_singles:
                self._digests_work = False
        self._accepts_singles = False
        if is_split:
            return
        for life in lives:
            self._hold(life, failure, took, least=asked)
        self._quiet_until = max(self._quiet_until, self._clock.monotonic() + asked)
        if failure is not Failure.REFUSED:
            self._failing |= lives
            self._recovering = True
            self._paused_until = self._clock.monotonic() + self._backoff.failed(took)

    def dropped(self, attempt: Attempt) -> None:
        """Record the end of an attempt whose result is not valid for the target's current configuration."""
        self._attempts.remove(attempt)

    def given_up(self, messages: Iterable[QueuedMessage]) -> None:
        """Forget the failures of messages that are not retried."""
        for one in messages:
            self._holds.pop(one.life_key, None)

    def reset(self, *, waited: bool) -> None:
        """Start over, because of a reload; ``waited`` is true if messages waited for the target to return."""
        self._start_over()
        self._quiet_until = -math.inf
        self._recovering = self._recovering or waited

    @property
    def _is_down(self) -> bool:
        return len(self._failing) > 1

    def _due(self, hold: _Hold) -> float:
        """Return when an event may be tried again; while the target is down, its pause decides."""
        return -math.inf if self._is_down and hold.failure is Failure.TARGET else hold.until

    def _wait_for_others(self, messages: Sequence[QueuedMessage], now: float) -> float | None:
        """Return the seconds until a parallel attempt may start; None until one in progress ends."""
        if not self._attempts:
            return 0
        is_critical = any(one.severity is Severity.CRITICAL for one in messages)
        most = MOST_ATTEMPTS_CRITICAL if is_critical else MOST_ATTEMPTS
        if len(self._attempts) >= most:
            return None
        newest = max(attempt.begun for attempt in self._attempts)
        return max(newest + SLOW_SECONDS - now, 0)

    def _choose(self, lane: Lane, blocked: set[str], backlog: Backlog) -> Turn:
        """Return the turn of the events that may be tried."""
        if backlog is Backlog.DIGEST and self._recovering:
            # A digest has all lives of an event, in their order.
            held = blocked if blocked - lane.behind.keys() else ()
            free = len(lane.queue) - sum(len(lane.lives.get(life, ())) for life in held)
            if self._is_time_for_digest(free):
                again = self._again(lane, held)
                graded = (life for lives in lane.ranked.values() for life in lives if life not in held)
                return Turn(again or lane.first(graded, MOST_IN_DIGEST), is_digest=True)
        oldest = next(one for one in lane.queue.values() if one.life_key not in blocked)
        age = seconds_since(oldest.record.queued, self._clock)
        is_late = self._recovering or bool(self._holds) or age is None or age >= SLOW_SECONDS
        life = self._first(lane, blocked, backlog) if is_late else oldest.life_key
        messages = tuple(lane.lives[life].values())
        waited = self._recovering or life in self._holds
        return Turn(messages if backlog is Backlog.LAST and waited else messages[:1])

    def _again(self, lane: Lane, blocked: Collection[str]) -> tuple[QueuedMessage, ...]:
        """Return the digest that failed last, if all of it still waits."""
        found = tuple(
            lane.queue[key] for key in self._digest if key in lane.queue and key.life_key not in blocked
        )
        return found if len(found) == len(self._digest) else ()

    def _first(self, lane: Lane, blocked: Collection[str], backlog: Backlog) -> str:
        """Return the gravest event, or, while the target is down, that with the fewest failures."""
        ranked: Iterable[Iterable[str]] = lane.ranked.values()
        if backlog is Backlog.LAST:
            last = {life: next(reversed(messages.values())) for life, messages in lane.lives.items()}
            ranked = [[life for life in last if last[life].severity is one] for one in lane.ranked]
        held: list[str] = []
        for lives in ranked:
            for life in lives:
                if life in blocked:
                    continue
                if life not in self._holds:
                    return life
                held.append(life)
            if held and not self._is_down:
                break
        return min(held, key=lambda life: self._holds[life].backoff.failures)

    def _is_time_for_digest(self, count: int) -> bool:
        if count + self._ended_outage <= MOST_SINGLE or not self._digests_work:
            return False
        if self._is_down:
            return self._backoff.failures % (_DIGESTS_IN_A_ROW + 1) != _DIGESTS_IN_A_ROW
        # A second message shows whether the target is down.
        return not self._failing

    def _hold(self, life: str, failure: Failure, took: float, least: float) -> None:
        hold = self._holds.get(life)
        backoff = hold.backoff if hold else Backoff(self._clock, chance=self._chance)
        pause = backoff.failed(took)
        if pauses := _PAUSES.get(failure):
            pause = pauses[min(backoff.failures, len(pauses)) - 1]
        self._holds[life] = _Hold(failure, self._clock.monotonic() + max(pause, least), backoff)

    def _forget_all_but(self, lives: Collection[str]) -> None:
        """Forget the failures of events without queued messages."""
        if not lives:
            self._start_over()
        self._holds = {life: hold for life, hold in self._holds.items() if life in lives}
