"""What a child of the sender process does with requests, done in this process."""

from datetime import datetime
from typing import Any

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.model.messages import AnyMessage, Delivery, Rendered
from exporter.outputs.notifications.child import Child
from exporter.outputs.notifications.protocol import Checked, Send
from exporter.outputs.notifications.rendering import Renderer
from exporter.outputs.notifications.templates import check
from tests.bench.senders import characters
from tests.clocks import NOW

EXPORTER_URL = "https://vm-0.example.com:9843/"


def send(
    told: AnyMessage, to: Address | str, now: datetime = NOW, *, child: Child | None = None, **fields: Any
) -> Delivery:
    """Send a message by a child, a new one unless it is given; ``fields`` are those of `Send`."""
    address = Address("oncall", url=to) if isinstance(to, str) else to
    found = (child or Child(lambda _: None)).result(Send(address, told, now, **fields))
    assert isinstance(found, Delivery)
    return found


def rendered(told: AnyMessage, now: datetime = NOW, *, limit: int | None = None, **fields: Any) -> Rendered:
    """Return a message as it is sent to a service that takes ``limit`` characters."""
    return Renderer().render(Send(Address("oncall"), told, now, **fields), characters(limit))[0]


def checked(**templates: Any) -> Checked:
    """Return the result of checking a template, ``title`` or ``body``."""
    (key,) = templates.keys() - {"format"}
    return check(key, Templates(**templates))
