"""What all background work has in common: a thread that calls a step, and pauses after failures."""

from exporter.work.backoff import Backoff
from exporter.work.loop import Loop

__all__ = ["Backoff", "Loop"]
