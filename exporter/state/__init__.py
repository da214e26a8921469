"""Persistent state: events, messages, hook jobs, approvals; in memory, with a journal on disk."""
