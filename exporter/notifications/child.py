"""The sender process: renders and sends messages for the exporter, which talks to it through two pipes.

Jinja2, Apprise and what receivers answer are here, so that their memory is limited, and so that a template or
a receiver can end this process but not the exporter. It ends with its standard input.
"""

import contextlib
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from exporter.model.messages import Delivery, Failure
from exporter.notifications import failures, protocol, services, webhook
from exporter.notifications.limits import Limits, bound_answers
from exporter.notifications.protocol import CheckTarget, Ready, Request, Result, Send, Sending
from exporter.notifications.rendering import Renderer
from exporter.notifications.services import AppriseTarget

_MOST_DATA = 72 * 2**20
# Stacks count as data.
_STACK_BYTES = 256 * 1024
# More than there is room for.
_MOST_THREADS = 1000
# Under memory pressure the kernel is to end this process rather than the exporter.
_OOM_SCORE = 500


class Child:
    """Answers requests, each on a thread that works on no other."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._lock, self._checking = threading.Lock(), threading.Lock()
        self._limits = Limits()
        self.renderer = Renderer(self._limits)
        self._targets: dict[bytes, AppriseTarget] = {}
        # Keep requests from replacing a target's ``Authorization`` header by the host's entry in ~/.netrc. A
        # file that does not exist is not parsed for each message.
        os.environ["NETRC"] = f"{os.devnull}/none"

    def serve(self, requests: BinaryIO) -> None:
        """Answer requests until there are no more."""
        # Starting a thread for each request would cost a tenth of sending a message.
        pool = ThreadPoolExecutor(_MOST_THREADS)
        # The first one exists before there may be no room for it.
        pool.submit(int).result()
        self._answer(0, Ready())
        while (frame := protocol.read(requests)) is not None:
            # If there is no room for another thread, the request waits for one of the others.
            with contextlib.suppress(RuntimeError):
                pool.submit(self._answer_one, *frame)

    def _answer(self, number: int, result: Result) -> None:
        with self._lock:
            protocol.write(self._output, number, result)

    def _answer_one(self, number: int, data: msgspec.Raw) -> None:
        try:
            self._answer(number, self.result(number, protocol.request_of(data)))
        except MemoryError:
            self._answer(number, Delivery(False, "it takes too much memory", Failure.UNANSWERED))
        except Exception as error:  # noqa: BLE001  # the exporter would wait; the text may have a URL
            self._answer(number, Delivery(False, f"{type(error).__name__} in the sender process"))

    def result(self, number: int, request: Request) -> Result:
        """Do what a request says; a message is announced as being sent before it is."""
        if isinstance(request, Send):
            return self._send(number, request)
        if isinstance(request, CheckTarget):
            # The exporter has read its configuration, and Apprise's file, again.
            self._targets.clear()
            # What Apprise logs about a file is counted.
            with self._checking:
                return services.check(request.address)
        return self.renderer.templates.check(request.key, request.templates)

    def _send(self, number: int, request: Send) -> Delivery:
        address = request.address
        if address.webhook:
            self._answer(number, Sending())
            send = partial(webhook.send, address, request.messages[-1], request.traceparent)
            return failures.attempt(self._limits, send)
        if not address.url and not address.apprise_config:
            rendered, count, remarks = self.renderer.render(request)
            return Delivery(True, count=count, rendered=rendered, remarks=remarks)
        target = self._target(request)
        found = target.open()
        # A digest has the same messages for each service.
        shared = services.shared([service.room for service in found]) if request.is_digest else None
        made = [
            self.renderer.render(request, shared or service.room, with_facts=service.shows_facts)
            for service in found
        ]
        _, count, remarks = made[0] if found else self.renderer.render(request)
        self._answer(number, Sending())
        delivery = target.send(found, [one for one, *_ in made], request.services)
        target.close(found)
        return msgspec.structs.replace(delivery, count=count, remarks=remarks)

    def _target(self, request: Send) -> AppriseTarget:
        key = msgspec.json.encode((request.address, request.storage))
        return self._targets.setdefault(key, AppriseTarget(request.address, request.storage, self._limits))


def main() -> None:
    """Run the sender process."""
    _separate()
    # Plugins may print; the answers go through a descriptor of their own.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    threading.stack_size(_STACK_BYTES)
    bound_answers()
    failures.note_headers()
    with contextlib.suppress(OSError):
        Child(output).serve(sys.stdin.buffer)
    # Attempts in progress do not keep it.
    os._exit(0)


def _separate() -> None:
    """Set limits, and ignore the signals that are for the exporter, which ends this process itself.

    On Windows, and if the system forbids it, there are no limits.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform != "win32":
        import resource

        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, _MOST_DATA)):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, (most, most))
        file = Path("/proc/self/oom_score_adj")
        with contextlib.suppress(OSError, ValueError):
            file.write_text(str(min(int(file.read_text()) + _OOM_SCORE, 1000)))
