"""What outlives the process: known events, their history, and the watch itself, in one SQLite file."""

from exporter.state.store import Store

__all__ = ["Store"]
