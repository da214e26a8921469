"""What the drain counts."""

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter

from exporter.metrics import PREFIX


class EvictionOutcome(StrEnum):
    """The outcome of an attempt to evict a pod."""

    EVICTED = "evicted"
    REFUSED = "refused"
    DELETED = "deleted"
    FAILED = "failed"
    DRY_RUN = "dry_run"


class Counters:
    """Attempts to evict a pod of this Node, by outcome."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._evictions = Counter(
            "pod_evictions",
            "Attempts to evict a pod of this Node, by outcome.",
            ["outcome"],
            namespace=PREFIX,
            registry=registry,
        )

    def expect(self) -> None:
        """Create the series, at 0."""
        for outcome in EvictionOutcome:
            self._evictions.labels(outcome.value)

    def evicted(self, outcome: EvictionOutcome) -> None:
        """Count an attempt to evict a pod."""
        self._evictions.labels(outcome.value).inc()
