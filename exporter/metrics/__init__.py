"""All metrics: counters and histograms, and gauges that are computed at each scrape."""

from exporter.metrics.counters import PREFIX, Metrics, Outcomes
from exporter.metrics.gauges import SnapshotCollector

__all__ = ["PREFIX", "Metrics", "Outcomes", "SnapshotCollector"]
