"""Persistent state: events, messages, hook jobs, approvals; in memory, with a journal on disk."""

from exporter.state.store import Store

__all__ = ["Store"]
