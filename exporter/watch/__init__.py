"""The watch: polling, the published snapshot, and the detection of pauses."""

from exporter.watch.in_service import out_of_service
from exporter.watch.watch import Watch

__all__ = ["Watch", "out_of_service"]
