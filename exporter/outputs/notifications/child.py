"""The work of a child of the sender process: sending messages, and checking targets and templates."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from exporter.config.addresses import Address
from exporter.model.messages import Delivery, Failure
from exporter.model.vm import VirtualMachine
from exporter.outputs.notifications import failures, services, webhook
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
from exporter.outputs.notifications.samples import samples
from exporter.outputs.notifications.services import AppriseTarget


class Child:
    """Processes requests; ``write`` is called with each step, on any thread, and with the result."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self.renderer = Renderer(self._say)
        self._targets: dict[bytes, AppriseTarget] = {}
        # Otherwise requests replaces a target's ``Authorization`` header by the host's entry in ~/.netrc. A
        # file that does not exist is not parsed for each message.
        os.environ["NETRC"] = f"{os.devnull}/none"

    def process(self, request: Request) -> bool:
        """Process a request, and return whether another one may follow.

        After a failure none may: what the attempt has left in memory would count for the next one.

        Raises:
            OSError: the exporter does not wait for the result any more.
        """
        result = self.result(request)
        self._say(result)
        return isinstance(result, Delivery) and result.delivered

    def result(self, request: Request) -> Checked | Delivery:
        """Return the result of a request; every exception becomes a failure."""
        try:
            if isinstance(request, Send):
                return self._send(request)
            if isinstance(request, CheckTarget):
                return services.check(request.address)
            # With Jinja2.
            from exporter.outputs.notifications import templates

            return templates.check(request.key, request.templates)
        except MemoryError:
            return Delivery(False, "it takes too much memory", Failure.UNANSWERED)
        except Exception as error:  # noqa: BLE001  # the exporter would wait; the text may have a URL
            return Delivery(False, f"{type(error).__name__} in the sender process")

    def _send(self, request: Send) -> Delivery:
        address = request.address
        if address.webhook:
            body, remarks = self.renderer.webhook_body(request)
            self._say(Sending())
            delivery = failures.attempt(
                lambda: webhook.send(address, request.message, request.traceparent, body)
            )
            return replace(delivery, remarks=remarks)
        if not address.url and not address.apprise_config:
            rendered, remarks = self.renderer.render(request)
            return Delivery(True, rendered=rendered, remarks=remarks)
        key = msgspec.json.encode((address, request.storage))
        target = self._targets.setdefault(key, AppriseTarget(address, request.storage))
        services = target.open()
        made = [
            self.renderer.render(request, service.room, with_facts=service.shows_facts)
            for service in services
        ]
        _, remarks = made[0] if services else self.renderer.render(request)
        # If the exporter no longer waits, and will repeat the request, this fails.
        self._say(Sending())
        sent = [rendered for rendered, _ in made]
        delivery = target.send(services, sent, request.services, lambda name: self._say(Sent(name)))
        return replace(delivery, remarks=remarks)

    def _say(self, content: Announcement | Checked | Delivery) -> None:
        with self._lock:
            self._write(msgspec.json.encode(content) + b"\n")


def warm_up() -> None:
    """Send a message to a closed port, so that children share what the first message loads."""
    proxies = {name: os.environ.pop(name, None) for name in ("no_proxy", "NO_PROXY")}
    with socket.socket() as nobody, contextlib.suppress(OSError):
        os.environ["no_proxy"] = "*"
        # Without `listen`, connections are refused.
        nobody.bind(("127.0.0.1", 0))
        address = Address("", url=f"json://127.0.0.1:{nobody.getsockname()[1]}/")
        now = datetime.now(UTC)
        Child(lambda _: None).result(Send(address, samples(VirtualMachine(), now)[0], now))
    del os.environ["no_proxy"]
    os.environ.update({name: text for name, text in proxies.items() if text is not None})
