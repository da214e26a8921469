"""The loops that export to one receiver: what is queued, in batches with retries; and all metrics."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

import msgspec

from exporter.health import DegradedReason
from exporter.metrics import Outcomes
from exporter.model.facts import Fact
from exporter.outputs.otlp.telemetry import ItemOutcome, LogRecord, PushOutcome, Signal, Span
from exporter.outputs.output import Core
from exporter.state.facts import Facts
from exporter.work import Backoff, Loop

log = logging.getLogger(__name__)

LONGEST_WAIT = timedelta(days=1)
_BATCH = 512
FACTS_SECONDS = 30.0  # how long to wait for the facts about the VM, which the resource contains
_LOOK_SECONDS = 0.5
# After a transition: what follows from it (messages, approvals) goes with it; and so do further transitions.
_SETTLE_SECONDS = 1.0

# Each fact's number, with what a receiver is sent for it.
_Batch = Sequence[tuple[int, Sequence[Span] | Sequence[LogRecord]]]

ITEMS = {Signal.TRACES: "spans", Signal.LOGS: "log records"}  # for logs, and in the words of problems
REASONS = {
    Signal.TRACES: DegradedReason.TRACING_FAILING,
    Signal.METRICS: DegradedReason.OTLP_FAILING,
    Signal.LOGS: DegradedReason.OTLP_FAILING,
}


class ExportOutcome(msgspec.Struct, frozen=True):
    problem: str = ""  # why it failed
    refused: bool = False  # whether the data is invalid, so that the same batch can never succeed
    retry_after: float = 0.0  # the seconds for which the receiver asks to be left alone
    rejected: int = 0  # the number of items that a successful response rejects
    reason: str = ""  # why it rejects them


class Exporter(Protocol):
    """One of OpenTelemetry's SDK, which is loaded on the thread of the loop that uses it."""

    def export(self, items: Any) -> ExportOutcome:
        """Export a batch: spans, log records or families of metrics."""

    def shutdown(self) -> None:
        """Abort an export in progress, and make later ones fail; safe to call from any thread."""


class Destination(NamedTuple):
    """Where one signal goes to, and what that is reported to."""

    signal: Signal
    name: str
    make_exporter: Callable[[], Exporter]  # called on the receiver's thread, and again for the last attempt
    counter: Outcomes
    core: Core


class Receiver(ABC):
    """A loop that exports to one destination, which may fail or hang without delaying anything else."""

    def __init__(self, to: Destination) -> None:
        self.to = to
        self._metrics, self._health, self._clock = to.core.metrics, to.core.health, to.core.clock
        self._counter = to.counter
        self._about = subject(to.signal, to.name)
        self._backoff = Backoff(self._clock)
        self._exporter: Exporter | None = None
        self._retry_at = -math.inf
        self._facts_until = self._clock.monotonic() + FACTS_SECONDS
        self._stopping = False
        self.loop = Loop(self._about, self.step)

    def wake(self) -> None:
        self.loop.wake()

    def begin_stop(self) -> None:
        """Begin a last attempt to export, with which the loop ends."""
        self._stopping = True
        if self._exporter is not None:
            # The SDK may be waiting for its next attempt, for longer than a stop may take.
            self._exporter.shutdown()
        self.loop.wake()

    @abstractmethod
    def step(self) -> float | None:
        """Export if due; return the seconds until the next attempt, None for not before `wake`."""

    def _waits_for_facts(self, now: float) -> bool:
        return now < self._facts_until and not self.to.core.views.snapshot.vm is not None

    def _new_exporter(self) -> Exporter | None:
        try:
            return self.to.make_exporter()
        except Exception as error:  # noqa: BLE001  # of any type, for the value of a variable
            self._report(f"cannot be set up: {error}")
            return None

    def _report(self, problem: str) -> None:
        if not self._stopping:
            self._health.report(REASONS[self.to.signal], f"{self._about}: {problem}", self._about)

    def _failed(self, begun: float, outcome: ExportOutcome) -> None:
        """Wait before the next attempt, for as long as the receiver asks or longer."""
        now = self._clock.monotonic()
        self._retry_at = now + max(self._backoff.failed(now - begun), outcome.retry_after)

    def _succeeded(self) -> None:
        self._backoff.succeeded()
        self._health.clear(REASONS[self.to.signal], self._about)


class Worker(Receiver):
    """Exports what one receiver lacks of the facts; ``compose`` returns what it is sent for one.

    A failed batch is retried, with back-off, until its facts are a day old or displaced by newer ones.
    """

    def __init__(
        self,
        to: Destination,
        reader: str,
        facts: Facts,
        compose: Callable[[Fact], Sequence[Span] | Sequence[LogRecord]],
    ) -> None:
        super().__init__(to)
        self._reader = reader
        self._facts = facts
        self._compose = compose
        self._batch_size = _BATCH

    def step(self) -> float | None:
        """Export a batch if due; return the seconds until the next attempt, None if nothing is left."""
        self._drop_what_is_over()
        if self._stopping:
            self.loop.stop()
            self._export_rest()
            return None
        self._exporter = self._exporter or self._new_exporter()
        now = self._clock.monotonic()
        batch = self._next_batch()
        if self._exporter is None or not batch:
            return None
        if now < self._retry_at:
            return self._retry_at - now
        if self._waits_for_facts(now):
            return _LOOK_SECONDS
        self._export(self._exporter, batch)
        return max(self._retry_at - self._clock.monotonic(), 0.0)

    def _export_rest(self) -> None:
        # `begin_stop` has shut down the previous exporter.
        exporter = self._new_exporter() if self._next_batch() else None
        if exporter is not None:
            while (batch := self._next_batch()) and self._export(exporter, batch):
                pass
            exporter.shutdown()

    def _next_batch(self) -> _Batch:
        """Return the next facts for which something is sent; those before them are read."""
        batch: list[tuple[int, Sequence[Span] | Sequence[LogRecord]]] = []
        nothing = []
        for number, fact in self._facts.unread(self._reader):
            if items := self._compose(fact):
                batch.append((number, items))
            elif not batch:
                nothing.append(number)
            if len(batch) == self._batch_size:
                break
        if nothing:
            self._facts.mark_read(self._reader, nothing)
        return batch

    def _export(self, exporter: Exporter, batch: _Batch) -> bool:
        """Export a batch; return whether that succeeded."""
        begun = self._clock.monotonic()
        outcome = exporter.export([item for _, items in batch for item in items])
        if outcome.problem:
            self._report(outcome.problem)
            self._divide(batch, refused=outcome.refused)
            if not outcome.refused:
                self._failed(begun, outcome)
            return False
        # Those displaced by newer ones meanwhile are counted as dropped, not as exported.
        present = self._facts.mark_read(self._reader, [number for number, _ in batch])
        left = sum(len(items) for number, items in batch if number in present)
        exported = max(left - outcome.rejected, 0)
        self._counter.count(ItemOutcome.EXPORTED, times=exported)
        self._counter.count(ItemOutcome.DROPPED, times=left - exported)
        self._batch_size = min(2 * self._batch_size, _BATCH)
        self._succeeded()
        return True

    def _divide(self, batch: _Batch, *, refused: bool) -> None:
        """Halve the batch size after a failure: an invalid item must not block the others forever."""
        self._batch_size = max(len(batch) // 2, 1)
        if len(batch) > 1:
            return
        ((number, items),) = batch
        if refused:
            self._facts.mark_read(self._reader, [number])
            self._count_dropped(len(items), "the receiver refuses it")
        else:
            self._facts.set_aside(self._reader, number)

    def _drop_what_is_over(self) -> None:
        """Drop what is too old, and count what was displaced."""
        self._count_dropped(self._size(self._facts.take_displaced(self._reader)), "too many are waiting")
        oldest = self._clock.now() - LONGEST_WAIT
        given_up = self._facts.give_up(self._reader, oldest)
        self._count_dropped(self._size(given_up), "not accepted for a day")

    def _size(self, facts: Iterable[Fact]) -> int:
        return sum(len(self._compose(fact)) for fact in facts)

    def _count_dropped(self, count: int, reason: str) -> None:
        if count:
            self._counter.count(ItemOutcome.DROPPED, times=count)
            facts = {"exporter": self.to.name, "count": count, "reason": reason}
            log.warning("%s dropped", ITEMS[self.to.signal], extra=facts)


class Pusher(Receiver):
    """Pushes all metrics every ``interval`` seconds; after a failure, the next push has the newest values."""

    def __init__(self, to: Destination, interval: float) -> None:
        super().__init__(to)
        self.interval = interval
        self._is_asked = False  # set by `wake` in other threads
        self._due = self._clock.monotonic()

    def wake(self) -> None:
        self._is_asked = True
        super().wake()

    def step(self) -> float | None:
        if self._stopping:
            self.loop.stop()
            self._push_last()
            return None
        now = self._clock.monotonic()
        if self._is_asked:
            self._is_asked = False
            self._due = min(self._due, now + _SETTLE_SECONDS)
        left = max(self._due, self._retry_at) - now
        if left > 0:
            return left
        if self._waits_for_facts(now):
            return _LOOK_SECONDS
        self._due = now + self.interval
        self._exporter = self._exporter or self._new_exporter()
        self._push(self._exporter)
        return max(self._due, self._retry_at) - self._clock.monotonic()

    def _push_last(self) -> None:
        exporter = self._new_exporter()
        self._push(exporter)
        if exporter is not None:
            exporter.shutdown()

    def _push(self, exporter: Exporter | None) -> None:
        """Push, unless there is no exporter, which counts as a failure, too."""
        begun, outcome = self._clock.monotonic(), ExportOutcome()
        if exporter is not None:
            outcome = exporter.export(self._metrics.registry.collect())
            if not outcome.problem:
                self._counter.count(PushOutcome.SUCCEEDED)
                self._succeeded()
                return
            self._report(outcome.problem)
        self._counter.count(PushOutcome.FAILED)
        if not self._stopping:
            # Sooner or later than the next push: a receiver that is back should have the values soon.
            self._failed(begun, outcome)
            self._due = self._retry_at


def subject(signal: Signal, name: str) -> str:
    """Return what a problem with a receiver is about."""
    return f"{signal} to {name}"
