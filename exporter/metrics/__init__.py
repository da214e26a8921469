"""Every metric of the program: counters and histograms, and gauges computed at the scrape."""

from exporter.metrics.counted import ApprovalOutcome, Metrics
from exporter.metrics.current import SnapshotCollector

__all__ = ["ApprovalOutcome", "Metrics", "SnapshotCollector"]
