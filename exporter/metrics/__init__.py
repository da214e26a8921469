"""All metrics: counters and histograms, and gauges that are computed at each scrape."""

from exporter.metrics.counters import Metrics
from exporter.metrics.gauges import SnapshotCollector
from exporter.metrics.prefix import PREFIX

__all__ = ["PREFIX", "Metrics", "SnapshotCollector"]
