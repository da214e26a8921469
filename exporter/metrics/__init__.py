"""All metrics: counters and histograms, and gauges that are computed at each scrape."""

from exporter.metrics.counters import PREFIX, ApprovalOutcome, EvictionOutcome, Metrics
from exporter.metrics.gauges import SnapshotCollector

__all__ = [
    "PREFIX",
    "ApprovalOutcome",
    "EvictionOutcome",
    "Metrics",
    "SnapshotCollector",
]
