"""All metrics: counters and histograms, and gauges that are computed at each scrape."""

from exporter.metrics.counted import ApprovalOutcome, Metrics
from exporter.metrics.current import SnapshotCollector

__all__ = ["ApprovalOutcome", "Metrics", "SnapshotCollector"]
