"""The entry point of the program: ``python -m exporter`` and the console script."""

import os
import signal
import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["run"]:
        _prepare_signals()
    from exporter import cli

    cli.main()


def _prepare_signals() -> None:
    """Keep signals from killing the exporter while it starts, which takes a second or more.

    SIGHUP stays pending until `exporter.app.run` can serve it; other commands end with their terminal.
    SIGTERM and SIGINT end the process: there is nothing to clean up yet, and an exception could get lost in
    an import.
    """
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


if __name__ == "__main__":
    main()
