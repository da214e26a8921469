"""Runs the exporter with a watchdog that leaves seconds, not a minute, to what hangs."""

from exporter.cli import main
from exporter.imds import client

if __name__ == "__main__":
    client._MARGIN_SECONDS = 2.0
    main()
