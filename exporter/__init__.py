"""Prometheus exporter for Azure Scheduled Events.

The package follows one direction of data, described in CONTRIBUTING.md: the poller turns documents of the
Instance Metadata Service into transitions, transitions into state, metrics and messages.
"""

__version__ = "0.1.0"
