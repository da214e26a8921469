"""The watch: polling, the published snapshot, and the detection of pauses."""

from exporter.watch.watch import Watch, out_of_service

__all__ = ["Watch", "out_of_service"]
