"""Every metric of the program, in one place: what is counted as it happens, and what is so at the scrape."""

from exporter.metrics.counted import ApprovalOutcome, Metrics
from exporter.metrics.current import SnapshotCollector

__all__ = ["ApprovalOutcome", "Metrics", "SnapshotCollector"]
