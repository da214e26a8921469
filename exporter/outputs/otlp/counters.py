"""What the export over OTLP counts."""

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter

from exporter.metrics import PREFIX
from exporter.outputs.otlp.telemetry import Signal


class ItemOutcome(StrEnum):
    """The outcome of exporting a span or a log record."""

    EXPORTED = "exported"
    DROPPED = "dropped"


class PushOutcome(StrEnum):
    """The outcome of a push of all metrics."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


class Counters:
    """The counters of all signals. Those of log records and pushes are there once the signal is on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, ["outcome"], namespace=PREFIX, registry=registry)

        self._items = {
            Signal.TRACES: counter("spans", "Spans by export outcome."),
            Signal.LOGS: counter("log_records", "Log records by export outcome."),
        }
        self._pushes = counter("metric_pushes", "Pushes of all metrics by outcome.")
        self.enable(Signal.TRACES)

    def enable(self, signal: Signal) -> None:
        """Create the series of a signal, at 0."""
        if signal is Signal.METRICS:
            for push in PushOutcome:
                self._pushes.labels(push.value)
        else:
            for outcome in ItemOutcome:
                self._items[signal].labels(outcome.value)

    def exported(self, signal: Signal, count: int) -> None:
        """Count spans or log records that a receiver accepted."""
        self._items[signal].labels(ItemOutcome.EXPORTED.value).inc(count)

    def dropped(self, signal: Signal, count: int) -> None:
        """Count spans or log records that were dropped."""
        self._items[signal].labels(ItemOutcome.DROPPED.value).inc(count)

    def pushed(self, outcome: PushOutcome) -> None:
        """Count a push of all metrics."""
        self._pushes.labels(outcome.value).inc()
