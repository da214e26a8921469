"""What outlives the process: events, messages, hook jobs, approvals. Objects in memory, a journal on disk."""

from exporter.state.store import Store

__all__ = ["Store"]
