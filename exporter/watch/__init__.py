"""The watch: one poll after another, what it publishes, and what runs beside it."""

from exporter.watch.watch import Watch, out_of_service

__all__ = ["Watch", "out_of_service"]
