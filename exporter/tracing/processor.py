"""Spans that wait for export: a bounded queue, and a thread that exports them in batches."""

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from exporter.clock import Clock
from exporter.health import Health, Trouble
from exporter.retry import delay_after
from exporter.tracing.spans import Span

if TYPE_CHECKING:
    # It imports the SDK, which is left to the processor's thread.
    from exporter.tracing.export import ExportOutcome

log = logging.getLogger(__name__)

# The spans of some hundred events.
CAPACITY = 2048
MAX_AGE_SECONDS = 86400.0
_BATCH = 512


class Counts(Protocol):
    """The part of `exporter.metrics.Metrics` that is used here."""

    def spans_exported(self, count: int) -> None:
        """Count spans that a receiver accepted."""
        ...

    def spans_dropped(self, count: int) -> None:
        """Count spans that were rejected or given up."""
        ...


class Exporter(Protocol):
    """The part of `exporter.tracing.export.SpanExporter` that is used here."""

    def export(self, spans: Sequence[Span]) -> "ExportOutcome":
        """Export a batch; this may take as long as it likes."""
        ...

    def shutdown(self) -> None:
        """Make an export under way give up waiting, and later ones fail; called from another thread."""
        ...


class BatchProcessor:
    """Exports spans to one receiver, which may fail or hang without delaying anything else.

    A failed batch is tried again, with back-off, until its spans are a day old or pushed out by newer ones.
    ``make_exporter`` is called on the processor's thread, and once more to export what is left at the stop.
    """

    def __init__(  # it is built in one place, by names
        self,
        name: str,
        make_exporter: Callable[[], Exporter],
        *,
        counts: Counts,
        health: Health,
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self._make_exporter = make_exporter
        self._counts = counts
        self._health = health
        self._clock = clock
        self._chance = chance
        self._exporter: Exporter | None = None
        self._lock = threading.Lock()
        # Each with the time at which it was queued; oldest first, but for those that failed on their own.
        self._queue: deque[tuple[float, Span]] = deque()
        self._batch: Sequence[tuple[float, Span]] = ()
        self._batch_size = _BATCH
        self._failures = 0
        self._failing_since = 0.0
        self._retry_at = 0.0
        self._wake = threading.Event()
        self._stopping = False
        # Set at the end of `stop`: what was left is counted as dropped, and a late result is ignored.
        self._stopped = False
        # A receiver may keep an export waiting; the end of the process must not.
        self._thread = threading.Thread(target=self._run, name=f"traces to {name}", daemon=True)
        self._thread.start()

    def put(self, spans: Iterable[Span]) -> None:
        """Queue spans for export; never waits."""
        now = self._clock.monotonic()
        with self._lock:
            self._queue.extend((now, span) for span in spans)
            surplus = len(self._queue) - (0 if self._stopped else CAPACITY)
            self._drop([self._queue.popleft() for _ in range(surplus)], "the queue is full")
        self._wake.set()

    def stop(self, timeout: float) -> bool:
        """Export what is queued if that takes one attempt, and return whether the thread ended in time."""
        exporter = self._exporter
        self._stopping = True
        if exporter is not None:
            # The SDK may be waiting to try again, for longer than this may take.
            exporter.shutdown()
        self._wake.set()
        self._thread.join(timeout)
        with self._lock:
            self._stopped = True
            self._drop([*self._batch, *self._queue], "the exporter stops")
            self._batch = ()
            self._queue.clear()
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._exporter = self._make_exporter()
        except Exception as error:  # noqa: BLE001  # the SDK raises what it likes about a variable's value
            self._report(f"cannot be set up: {error}")
            return
        while True:
            self._wake.clear()
            if self._stopping:
                break
            self._wake.wait(self._export_due(self._exporter))
        if self._queue:
            # `stop` has shut down the first one.
            self._exporter = self._make_exporter()
            while self._queue and self._export(self._exporter):
                pass
            self._exporter.shutdown()

    def _export_due(self, exporter: Exporter) -> float | None:
        """Export what is due; return the seconds until the next attempt, None if nothing is queued."""
        while self._queue and not self._stopping:
            delay = self._retry_at - self._clock.monotonic()
            if delay > 0:
                return delay
            self._export(exporter)
        return None

    def _export(self, exporter: Exporter) -> bool:
        """Export one batch; return whether it succeeded."""
        begun = self._clock.monotonic()
        with self._lock:
            self._expire(begun)
            size = min(self._batch_size, len(self._queue))
            self._batch = [self._queue.popleft() for _ in range(size)]
        if not self._batch:
            return True
        outcome = exporter.export([span for _, span in self._batch])
        with self._lock:
            if not self._stopped:
                self._settle(outcome, begun)
        return not outcome.problem

    def _settle(self, outcome: "ExportOutcome", begun: float) -> None:
        batch, self._batch = self._batch, ()
        if outcome.problem:
            self._report(outcome.problem)
            self._requeue(batch, refused=outcome.refused)
            if not outcome.refused:
                self._back_off(begun)
            return
        self._counts.spans_exported(outcome.accepted)
        self._counts.spans_dropped(len(batch) - outcome.accepted)
        self._batch_size = min(2 * self._batch_size, _BATCH)
        self._failures = 0
        self._health.clear(Trouble.TRACING_FAILING, self.name)

    def _requeue(self, batch: Sequence[tuple[float, Span]], *, refused: bool) -> None:
        """Queue a batch that failed, in halves: a bad span must not hold up others for good."""
        self._batch_size = max(len(batch) // 2, 1)
        if len(batch) > 1:
            self._queue.extendleft(reversed(batch))
        elif refused:
            self._drop(batch, "the receiver refuses it")
        else:
            self._queue.extend(batch)

    def _back_off(self, begun: float) -> None:
        now = self._clock.monotonic()
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        self._retry_at = now + delay_after(
            self._failures, failing_for=now - self._failing_since, took=now - begun, chance=self._chance()
        )

    def _expire(self, now: float) -> None:
        """Drop spans that have waited for too long."""
        oldest = now - MAX_AGE_SECONDS
        expired = [entry for entry in self._queue if entry[0] < oldest]
        if expired:
            self._queue = deque(entry for entry in self._queue if entry[0] >= oldest)
            self._drop(expired, "not accepted for a day")

    def _drop(self, dropped: Sequence[tuple[float, Span]], reason: str) -> None:
        if dropped:
            self._counts.spans_dropped(len(dropped))
            log.warning(
                "spans dropped", extra={"exporter": self.name, "count": len(dropped), "reason": reason}
            )

    def _report(self, problem: str) -> None:
        if not self._stopping:
            self._health.report(Trouble.TRACING_FAILING, f"traces to {self.name}: {problem}", self.name)
