"""The watch: one poll after another, what it publishes, and what runs beside it."""

from exporter.watch.watch import Watch

__all__ = ["Watch"]
