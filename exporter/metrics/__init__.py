"""All metrics: counters and histograms, and gauges that are computed at each scrape."""

from exporter.metrics.counters import PREFIX, Metrics
from exporter.metrics.gauges import SnapshotCollector

__all__ = ["PREFIX", "Metrics", "SnapshotCollector"]
