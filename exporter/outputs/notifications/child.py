"""A child of the sender process: it renders and sends messages, one after the other.

The kernel limits the memory and the CPU time that plugins, the user's templates and the answers of receivers
take. It ends when the sender process closes its standard input, or kills it.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from exporter.model.messages import Delivery, Failure
from exporter.outputs.notifications import failures, protocol, services, webhook
from exporter.outputs.notifications.protocol import (
    Announcement,
    Checked,
    CheckTarget,
    Request,
    Send,
    Sending,
    Sent,
)
from exporter.outputs.notifications.rendering import Renderer
from exporter.outputs.notifications.services import AppriseTarget

# For one request. The kernel counts whole seconds, so that it may be one more.
CPU_SECONDS = 2
# Beyond what the child inherits. A message takes 5 MiB.
_MOST_DATA = 16 * 2**20
# Stacks of threads count as data.
_STACK_BYTES = 256 * 1024
# After the limit of the sender process, in case that it was killed.
_LONGEST_SECONDS = 120


class Child:
    """Does what requests say; ``announce`` is told of each step, on any thread."""

    def __init__(self, announce: Callable[[Announcement], None]) -> None:
        self._announce = announce
        self.renderer = Renderer(announce)
        self._targets: dict[bytes, AppriseTarget] = {}
        # Keep requests from replacing a target's ``Authorization`` header by the host's entry in ~/.netrc. A
        # file that does not exist is not parsed for each message.
        os.environ["NETRC"] = f"{os.devnull}/none"

    def result(self, request: Request) -> Checked | Delivery:
        """Return the result of a request; every exception is one, too."""
        try:
            if isinstance(request, Send):
                return self._send(request)
            if isinstance(request, CheckTarget):
                return services.check(request.address)
            return self.renderer.check(request.key, request.templates)
        except MemoryError:
            return Delivery(False, "it takes too much memory", Failure.UNANSWERED)
        except Exception as error:  # noqa: BLE001  # the exporter would wait; the text may have a URL
            return Delivery(False, f"{type(error).__name__} in the sender process")

    def _send(self, request: Send) -> Delivery:
        address = request.address
        if address.webhook:
            self._announce(Sending())
            return failures.attempt(lambda: webhook.send(address, request.message, request.traceparent))
        if not address.url and not address.apprise_config:
            rendered, remarks = self.renderer.render(request)
            return Delivery(True, rendered=rendered, remarks=remarks)
        key = msgspec.json.encode((address, request.storage))
        target = self._targets.setdefault(key, AppriseTarget(address, request.storage))
        found = target.open()
        made = [
            self.renderer.render(request, service.room, with_facts=service.shows_facts) for service in found
        ]
        _, remarks = made[0] if found else self.renderer.render(request)
        self._announce(Sending())
        sent = [one for one, _ in made]
        delivery = target.send(found, sent, request.services, lambda name: self._announce(Sent(name)))
        return replace(delivery, remarks=remarks)


def serve(requests: BinaryIO, results: BinaryIO) -> None:
    """Answer requests until there are no more."""
    lock = threading.Lock()

    def write(content: object) -> None:
        with lock:
            results.write(protocol.line(0, content))
            results.flush()

    child = Child(write)
    _limit_data()
    while (frame := protocol.read(requests)) is not None:
        _limit_time()
        write(child.result(protocol.request_of(frame[1])))


def _limit_data() -> None:
    """Limit the memory of this process; on Windows, and if the system forbids it, there is no limit."""
    threading.stack_size(_STACK_BYTES)
    if sys.platform != "win32":
        import resource

        with contextlib.suppress(OSError, ValueError):
            pages = int(Path("/proc/self/statm").read_text().split()[5])
            most = pages * resource.getpagesize() + _MOST_DATA
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _limit_time() -> None:
    """Limit the time of the next request: the kernel ends this process after it."""
    if sys.platform != "win32":
        import resource

        seconds = int(time.process_time()) + 1 + CPU_SECONDS
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        signal.alarm(_LONGEST_SECONDS)
