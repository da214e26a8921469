"""Runs the exporter with a wall clock that can be set, and has its requests to IMDS say who asks."""

import os
import threading
from datetime import UTC, datetime, timedelta

import requests

from exporter.__main__ import main
from exporter.clock import SystemClock
from exporter.imds import ImdsClient


def set_clock(path: str) -> None:
    """Shift the wall clock by the seconds in a file."""
    descriptor = os.open(path, os.O_RDONLY)

    def now(self: SystemClock) -> datetime:  # noqa: ARG001  # a method's name for it
        return datetime.now(UTC) + timedelta(seconds=float(os.pread(descriptor, 32, 0)))

    SystemClock.now = now  # type: ignore[method-assign]  # what this module is for


def sign_requests(life: str) -> None:
    """Add the process and the thread to every request to IMDS."""
    send = ImdsClient._send

    def signed(self: ImdsClient, request: requests.PreparedRequest, timeout: float) -> tuple[int, bytes]:
        signed = request.copy()
        signed.headers.update({"X-Life": life, "X-Who": threading.current_thread().name})
        return send(self, signed, timeout)

    ImdsClient._send = signed  # type: ignore[method-assign]  # what this module is for


if __name__ == "__main__":
    set_clock(os.environ["SOAK_CLOCK"])
    sign_requests(os.environ["SOAK_LIFE"])
    main()
