"""Runs the exporter with what tests hold up.

It opens its configuration, $HELD_FILE, once $HELD_FILE.go is there; $HELD_FILE.reached says that it waits.
The program of the sender process is $HELD_PYTHON. What the check of targets finds ends the start within
$HELD_CHECK_SECONDS. The watchdog leaves $HELD_POLL_SECONDS to the first poll with a timeout of 1 s, and the
address of ``hangs.invalid`` is never found.
"""

import os
import sys
import threading
import time
from pathlib import Path

from exporter.__main__ import main

_FILE = os.environ.get("HELD_FILE")


def _hold(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and str(args[0]) == _FILE:
        Path(f"{_FILE}.reached").touch()
        # A signal is handled between two naps, whenever it comes.
        while not Path(f"{_FILE}.go").exists():
            time.sleep(0.01)
    if event == "socket.getaddrinfo" and args[0] == "hangs.invalid":
        threading.Event().wait()


if __name__ == "__main__":
    if "HELD_CHECK_SECONDS" in os.environ:
        from exporter import app

        app._CHECK_SECONDS = float(os.environ["HELD_CHECK_SECONDS"])
    if "HELD_POLL_SECONDS" in os.environ:
        from exporter.imds import client

        # The first answer may take 150 s and the facts about the VM 1 s, each from two API versions.
        client._MARGIN_SECONDS = float(os.environ["HELD_POLL_SECONDS"]) - 302.0
    if "HELD_PYTHON" in os.environ:
        from exporter.outputs.notifications import protocol

        protocol.command = lambda *_: [os.environ["HELD_PYTHON"]]
    sys.addaudithook(_hold)
    main()
