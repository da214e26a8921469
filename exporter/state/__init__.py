"""Persistent state: events, jobs of outputs, and facts; tables in memory, and their journal on disk."""
