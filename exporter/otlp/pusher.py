"""The loop that pushes all metrics to one receiver: now and then, and soon after a transition."""

import math
from collections.abc import Callable, Iterable

from prometheus_client import Metric

from exporter.clock import Clock
from exporter.health import Health
from exporter.metrics import Metrics, PushOutcome
from exporter.model.jobs import Signal
from exporter.otlp.worker import FACTS_SECONDS, REASONS, Exporter, ExportOutcome, subject
from exporter.work import Backoff, Loop

# What follows from a transition (messages, approvals) goes with it; and so do further transitions.
_SETTLE_SECONDS = 1.0
_LOOK_SECONDS = 0.5

Families = Callable[[], Iterable[Metric]]


class Pusher:
    """Pushes all metrics to one receiver, which may fail or hang without delaying anything else.

    Nothing is kept for a receiver that fails: the next push has the newest values. ``families`` returns
    them; the other arguments are those of `worker.Worker`.
    """

    def __init__(  # noqa: PLR0913  # it is built in one place, by names
        self,
        name: str,
        make_exporter: Callable[[], Exporter],
        *,
        families: Families,
        interval: float,
        knows_vm: Callable[[], bool],
        metrics: Metrics,
        health: Health,
        clock: Clock,
    ) -> None:
        self.name = name
        self.interval = interval
        self._make_exporter = make_exporter
        self._families = families
        self._knows_vm = knows_vm
        self._metrics = metrics
        self._health = health
        self._clock = clock
        self._about = subject(Signal.METRICS, name)
        self._backoff = Backoff(clock)
        self._exporter: Exporter | None = None
        # Set by `wake` in other threads.
        self._is_asked = False
        self._due = clock.monotonic()
        self._retry_at = -math.inf
        self._facts_until = clock.monotonic() + FACTS_SECONDS
        self._stopping = False
        self._loop = Loop(self._about, self.step)

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        self._is_asked = True
        self._loop.wake()

    def begin_stop(self) -> None:
        self._stopping = True
        if self._exporter is not None:
            # The SDK may be waiting for its next attempt, for longer than a stop may take.
            self._exporter.shutdown()
        self._loop.wake()

    def join(self, timeout: float) -> None:
        self._loop.join(timeout)

    def step(self) -> float | None:
        """Push if due; return the seconds until the next push."""
        if self._stopping:
            self._loop.stop()
            self._push_last()
            return None
        now = self._clock.monotonic()
        if self._is_asked:
            self._is_asked = False
            self._due = min(self._due, now + _SETTLE_SECONDS)
        left = max(self._due, self._retry_at) - now
        if left > 0:
            return left
        if now < self._facts_until and not self._knows_vm():
            return _LOOK_SECONDS
        self._due = now + self.interval
        self._exporter = self._exporter or self._new_exporter()
        if self._exporter is not None:
            self._push(self._exporter)
        return max(self._due, self._retry_at) - self._clock.monotonic()

    def _push_last(self) -> None:
        # `begin_stop` has shut down the previous exporter.
        exporter = self._new_exporter()
        if exporter is not None:
            self._push(exporter)
            exporter.shutdown()

    def _new_exporter(self) -> Exporter | None:
        try:
            return self._make_exporter()
        except Exception as error:  # noqa: BLE001  # of any type, for the value of a variable
            self._fail(ExportOutcome(problem=f"cannot be set up: {error}"))
            return None

    def _push(self, exporter: Exporter) -> None:
        begun = self._clock.monotonic()
        outcome = exporter.export(self._families())
        if outcome.problem:
            self._fail(outcome, self._clock.monotonic() - begun)
            return
        self._metrics.pushed(PushOutcome.SUCCEEDED)
        self._backoff.succeeded()
        self._health.clear(REASONS[Signal.METRICS], self._about)

    def _fail(self, outcome: ExportOutcome, took: float = 0.0) -> None:
        self._metrics.pushed(PushOutcome.FAILED)
        if not self._stopping:
            # Sooner or later than the next push: a receiver that is back should have the values soon.
            pause = max(self._backoff.failed(took), outcome.retry_after)
            self._due = self._retry_at = self._clock.monotonic() + pause
            self._health.report(REASONS[Signal.METRICS], f"{self._about}: {outcome.problem}", self._about)
