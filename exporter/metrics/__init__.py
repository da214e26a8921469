"""All metrics: counters and histograms, and gauges that are computed at each scrape."""

from exporter.metrics.counters import ApprovalOutcome, EvictionOutcome, Metrics, PushOutcome
from exporter.metrics.gauges import SnapshotCollector

__all__ = [
    "ApprovalOutcome",
    "EvictionOutcome",
    "Metrics",
    "PushOutcome",
    "SnapshotCollector",
]
