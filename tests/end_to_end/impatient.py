"""Runs the exporter with a watchdog that leaves 1 s to the first poll, and an address that never resolves."""

import socket
import threading
from typing import Any

from exporter.cli import main
from exporter.imds import client

resolve = socket.getaddrinfo


def resolve_or_hang(host: Any, *args: Any, **kwargs: Any) -> Any:
    """Resolve a name as the system does, but never ``hangs.invalid``."""
    if host == "hangs.invalid":
        threading.Event().wait()
    return resolve(host, *args, **kwargs)


if __name__ == "__main__":
    # The first answer may take 150 s, from each of two API versions, and the facts about the VM 1 s.
    client._MARGIN_SECONDS = 1.0 - 301.0
    socket.getaddrinfo = resolve_or_hang
    main()
