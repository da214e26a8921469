"""Notifications to systemd, see sd_notify(3); none without NOTIFY_SOCKET."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import MutableMapping

from exporter.health import Problem
from exporter.model.views import Snapshot

_SEND_SECONDS = 1.0
# On Windows, Ctrl-C is handled only once the main thread wakes up. Elsewhere the system delivers a signal to
# another thread only if the process was stopped (SIGSTOP), or the main thread is about to handle a signal.
ALIVE_SECONDS = 1.0 if sys.platform == "win32" else 5.0


class Systemd:
    """The service manager's socket, whose errors are ignored; call `alive` every ``interval`` seconds."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Remove the variables of the protocol from the environment, so that no hook inherits them."""
        self._address = environ.pop("NOTIFY_SOCKET", "")
        watched = environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        patience = environ.pop("WATCHDOG_USEC", "")
        self._watchdog = patience.isascii() and patience.isdigit() and watched
        # The protocol recommends half of the time after which the service is killed.
        self.interval = min(ALIVE_SECONDS, int(patience) / 2e6) if self._watchdog else ALIVE_SECONDS
        self._status = ""

    def ready(self) -> None:
        self._send("READY=1")

    def alive(self, status: str) -> None:
        """Reset systemd's watchdog, and set the status for `systemctl status`."""
        fields = ["WATCHDOG=1"] if self._watchdog else []
        if status != self._status:
            fields.append(f"STATUS={status}")
            self._status = status
        if fields:
            self._send(*fields)

    def reloading(self) -> None:
        """Report that the configuration is being reloaded; `ready` reports the end."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, *fields: str) -> None:
        if sys.platform != "win32" and self._address:
            # In an abstract address, @ stands for the zero byte.
            address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
                peer.settimeout(_SEND_SECONDS)
                peer.sendto("\n".join(fields).encode(), address)


def status(snapshot: Snapshot, problems: tuple[Problem, ...]) -> str:
    """Return the line for `systemctl status`: the VM, the endpoint, events and problems."""
    watching = f"Watching {snapshot.instance or 'a VM whose name is not known yet'} at {snapshot.endpoint}"
    if not snapshot.up:
        state = f"no answer{f': {snapshot.last_error}' if snapshot.last_error else ' yet'}"
    else:
        count = len(snapshot.current)
        state = f"{count or 'no'} event{'' if count == 1 else 's'} listed"
    wrong = "".join(f"; {problem.reason.replace('_', ' ')}: {problem.message}" for problem in problems)
    return " ".join(f"{watching}: {state}{wrong}".split())
