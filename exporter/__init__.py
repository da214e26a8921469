"""Prometheus exporter for Azure Scheduled Events.

The package follows one direction of data, described in CONTRIBUTING.md: the poller turns documents of the
Instance Metadata Service into transitions, transitions into state, metrics and messages.
"""

from exporter.frugal import without

with without("typing_extensions"):
    # From Python 3.11 on it needs none of these: half a MiB.
    import msgspec  # noqa: F401  # before anybody else imports it

__version__ = "0.1.0"
