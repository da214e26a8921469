"""The order of a target's messages, decided without I/O from the queue and the results of attempts.

Messages of one event are sent in order, one at a time. A failed attempt delays only its own event. Once two
different messages have failed in a row, the target counts as down: it is tried with one message at a time,
with growing pauses, until it accepts one.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from exporter.clock import Clock
from exporter.model.messages import Backlog, Failure, Severity
from exporter.work import Backoff

# More queued messages than this are sent as one to a target that was down.
MOST_SINGLE = 10
# An attempt that takes longer than this does not delay others, up to this many attempts.
SLOW_SECONDS = 2.0
MOST_ATTEMPTS = 3
MOST_ATTEMPTS_CRITICAL = 6
# The pauses before retries of a message that was refused, or not answered and so may have arrived. After the
# last attempt it is given up.
_PAUSES = {Failure.REFUSED: (10.0, 50.0), Failure.UNANSWERED: (20.0, 300.0)}
MOST_ATTEMPTS_FOR_ONE = 3
# While the target is down, this many attempts with a digest are followed by one with a single message, as the
# digest itself may be the cause.
_DIGESTS_IN_A_ROW = 3


class Item(NamedTuple):
    """A queued message: its event's life, its number in that life, its severity."""

    life: str
    sequence: int
    severity: Severity

    @property
    def id(self) -> tuple[str, int]:
        """The identity among the messages of its target."""
        return self.life, self.sequence


Ids = tuple[tuple[str, int], ...]


class Turn(NamedTuple):
    """The next action: send ``items`` as one message, or decide again in ``delay`` seconds.

    Without items and delay there is nothing to do until something changes. There are several ``items`` in a
    digest, and if the last of them replaces those before it.
    """

    items: tuple[Item, ...] = ()
    digest: bool = False
    delay: float | None = None


class _Hold(NamedTuple):
    """An event whose first message failed, and when to retry it."""

    failure: Failure
    until: float
    backoff: Backoff


class _Attempt(NamedTuple):
    begun: float
    digest: bool


class Schedule:
    """The order of one target's messages; used by one thread. Times are the clock's monotonic seconds.

    ``recovering`` is true if the target, or the exporter, was down, so that queued messages are late.
    """

    def __init__(
        self, clock: Clock, *, recovering: bool, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._recovering = recovering
        self._attempts: dict[Ids, _Attempt] = {}
        self._holds: dict[str, _Hold] = {}
        # The events whose messages failed since the last one that was delivered.
        self._failing: set[str] = set()
        self._backoff = Backoff(clock, chance=chance)
        self._paused_until = -math.inf
        # Whether the last attempt delivered a single message.
        self._accepts_singles = False
        self._digests_work = True
        # The digest that failed last, which is retried unchanged.
        self._digest: frozenset[tuple[str, int]] = frozenset()

    @property
    def is_failing(self) -> bool:
        """Whether a message has failed and has not been delivered or given up since."""
        return bool(self._holds)

    @property
    def under_way(self) -> frozenset[tuple[str, int]]:
        """The messages of attempts in progress."""
        return frozenset(one for ids in self._attempts for one in ids)

    def next(self, waiting: Sequence[Item], backlog: Backlog) -> Turn:
        """Return the next action for the queued messages, given oldest first."""
        now = self._clock.monotonic()
        busy = {life for life, _ in self.under_way}
        lives: dict[str, list[Item]] = {}
        for item in waiting:
            if item.life not in busy:
                lives.setdefault(item.life, []).append(item)
        self._forget_all_but({item.life for item in waiting})
        if self._is_down and (self._attempts or now < self._paused_until):
            return Turn(delay=None if self._attempts else self._paused_until - now)
        due = {life: self._due(life) for life in lives}
        ready = {life: items for life, items in lives.items() if due[life] <= now}
        if not ready:
            self._recovering = self._recovering and bool(self._failing or self._attempts)
            return Turn(delay=min(due.values()) - now if due else None)
        turn = self._choose(ready, [item for item in waiting if item.life in ready], backlog)
        wait = self._wait_for_others(turn.items, now)
        return turn if wait == 0 else Turn(delay=wait)

    def begun(self, ids: Ids, *, digest: bool) -> None:
        """Record the start of an attempt with the first messages of a turn."""
        self._attempts[ids] = _Attempt(self._clock.monotonic(), digest)

    def delivered(self, ids: Ids) -> None:
        """Record that an attempt delivered its message."""
        attempt = self._attempts.pop(ids)
        # They failed because the target was down.
        over = {Failure.TARGET, Failure.UNANSWERED} if self._is_down else {Failure.UNANSWERED}
        for life, hold in self._holds.items():
            if hold.failure in over:
                self._holds[life] = hold._replace(until=-math.inf)
        for life, _ in ids:
            self._holds.pop(life, None)
        self._failing.clear()
        self._backoff.succeeded()
        self._accepts_singles = not attempt.digest
        if attempt.digest:
            self._digest = frozenset()

    def failed(self, ids: Ids, failure: Failure) -> None:
        """Record that an attempt failed."""
        attempt = self._attempts.pop(ids)
        took = self._clock.monotonic() - attempt.begun
        lives = {life for life, _ in ids}
        if attempt.digest:
            self._digest = frozenset(ids)
            if failure is Failure.REFUSED or self._accepts_singles:
                self._digests_work = False
        self._accepts_singles = False
        if attempt.digest and failure is Failure.REFUSED:
            return
        for life in lives:
            self._hold(life, failure, took)
        if failure is not Failure.REFUSED:
            self._failing |= lives
            self._recovering = True
            self._paused_until = self._clock.monotonic() + self._backoff.failed(took)

    def dropped(self, ids: Ids) -> None:
        """Record the end of an attempt whose result is not valid for the target's current configuration."""
        self._attempts.pop(ids)

    def given_up(self, ids: Iterable[tuple[str, int]]) -> None:
        """Forget messages that are not retried."""
        for life, _ in ids:
            self._holds.pop(life, None)

    def reset(self) -> None:
        """Forget all failures, because the target was reconfigured."""
        self._start_over()
        self._recovering = True

    @property
    def _is_down(self) -> bool:
        return len(self._failing) > 1

    def _due(self, life: str) -> float:
        """Return when an event may be tried; while the target is down, its pause decides."""
        hold = self._holds.get(life)
        pauses_with_target = self._is_down and hold is not None and hold.failure is Failure.TARGET
        return -math.inf if hold is None or pauses_with_target else hold.until

    def _wait_for_others(self, items: Sequence[Item], now: float) -> float | None:
        """Return the seconds until a parallel attempt may start; None until one in progress ends."""
        if not self._attempts:
            return 0
        is_critical = any(item.severity is Severity.CRITICAL for item in items)
        most = MOST_ATTEMPTS_CRITICAL if is_critical else MOST_ATTEMPTS
        if len(self._attempts) >= most:
            return None
        newest = max(attempt.begun for attempt in self._attempts.values())
        return max(newest + SLOW_SECONDS - now, 0)

    def _choose(self, ready: dict[str, list[Item]], items: Sequence[Item], backlog: Backlog) -> Turn:
        """Return the turn of the events that may be tried; ``items`` are all their messages, oldest first."""
        if backlog is Backlog.DIGEST and self._recovering and self._is_time_for_digest(len(items)):
            again = [item for item in items if item.id in self._digest]
            whole = len(again) == len(self._digest) > 0
            return Turn(tuple(again if whole else items), digest=True)
        if self._recovering or self._holds:
            life = min(ready, key=lambda one: self._precedence(ready[one], backlog))
        else:
            life = next(iter(ready))
        waited = self._recovering or life in self._holds
        return Turn(tuple(ready[life] if backlog is Backlog.LAST and waited else ready[life][:1]))

    def _is_time_for_digest(self, count: int) -> bool:
        if count <= MOST_SINGLE or not self._digests_work:
            return False
        if self._is_down:
            return self._backoff.failures % (_DIGESTS_IN_A_ROW + 1) != _DIGESTS_IN_A_ROW
        # A second message shows whether the target is down.
        return not self._failing

    def _precedence(self, items: Sequence[Item], backlog: Backlog) -> tuple[int, int]:
        """Return the sort key: severest first, or, while the target is down, fewest failures first."""
        hold = self._holds.get(items[0].life)
        failures = hold.backoff.failures if hold else 0
        weight = items[-1 if backlog is Backlog.LAST else 0].severity.weight
        return (failures, -weight) if self._is_down else (-weight, failures)

    def _hold(self, life: str, failure: Failure, took: float) -> None:
        hold = self._holds.get(life)
        backoff = hold.backoff if hold else Backoff(self._clock, chance=self._chance)
        pause = backoff.failed(took)
        if pauses := _PAUSES.get(failure):
            pause = pauses[min(backoff.failures, len(pauses)) - 1]
        self._holds[life] = _Hold(failure, self._clock.monotonic() + pause, backoff)

    def _forget_all_but(self, lives: set[str]) -> None:
        """Forget the failures of events without queued messages."""
        if not lives:
            self._start_over()
        for life in self._holds.keys() - lives:
            del self._holds[life]

    def _start_over(self) -> None:
        self._holds.clear()
        self._failing.clear()
        self._backoff.succeeded()
        self._paused_until = -math.inf
        self._digests_work, self._digest = True, frozenset()
