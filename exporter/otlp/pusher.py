"""The loop that pushes all metrics to one receiver: now and then, and soon after a transition."""

from exporter.metrics import PushOutcome
from exporter.otlp.worker import LOOK_SECONDS, Destination, Exporter, ExportOutcome, Receiver

# What follows from a transition (messages, approvals) goes with it; and so do further transitions.
_SETTLE_SECONDS = 1.0


class Pusher(Receiver):
    """Pushes all metrics every ``interval`` seconds.

    Nothing is kept for a receiver that fails: the next push has the newest values.
    """

    def __init__(self, to: Destination, interval: float) -> None:
        super().__init__(to)
        self.interval = interval
        # Set by `wake` in other threads.
        self._is_asked = False
        self._due = self._clock.monotonic()

    def wake(self) -> None:
        self._is_asked = True
        super().wake()

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
        if self._waits_for_facts(now):
            return LOOK_SECONDS
        self._due = now + self.interval
        self._exporter = self._exporter or self._new_exporter()
        self._push(self._exporter)
        return max(self._due, self._retry_at) - self._clock.monotonic()

    def _push_last(self) -> None:
        # `begin_stop` has shut down the previous exporter.
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
                self._metrics.pushed(PushOutcome.SUCCEEDED)
                self._succeeded()
                return
            self._report(outcome.problem)
        self._metrics.pushed(PushOutcome.FAILED)
        if not self._stopping:
            # Sooner or later than the next push: a receiver that is back should have the values soon.
            now = self._clock.monotonic()
            self._due = self._retry_at = now + max(self._backoff.failed(now - begun), outcome.retry_after)
