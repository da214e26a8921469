"""Rendering in this process, as the sender process does it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.model.messages import AnyMessage, Rendered
from exporter.notifications import rendering
from exporter.notifications.fitting import Room
from exporter.notifications.protocol import Checked, Send
from exporter.notifications.templates import check
from tests.clocks import NOW


def characters(limit: int | None) -> Room | None:
    """Return the room of a service that takes so many characters of title and body; None takes all."""
    return None if limit is None else Room(lambda title, body, _: len(title) + len(body) - limit)


class Renderer:
    """Renders messages for one target; ``fields`` are those of `Send`."""

    def __init__(self, templates: Templates | None = None, exporter_url: str = "", **fields: Any) -> None:
        self._request = Send(Address("oncall"), (), NOW, templates or Templates(), exporter_url, **fields)
        self._renderer = rendering.Renderer()
        self.remarks: dict[str, str] = {}

    def render(
        self, message: AnyMessage, now: datetime, *, limit: int | None = None, failed: bool = False
    ) -> Rendered:
        """Return a message as it is sent."""
        request = replace(self._request, messages=(message,), now=now, failed=failed)
        rendered, _, self.remarks = self._renderer.render(request, characters(limit))
        return rendered

    def digest(
        self, messages: Sequence[AnyMessage], now: datetime, *, limit: int | None = None
    ) -> tuple[Rendered, int]:
        """Return a digest, and of how many messages it is."""
        request = replace(self._request, messages=tuple(messages), now=now, failed=True, is_digest=True)
        rendered, count, _ = self._renderer.render(request, characters(limit))
        return rendered, count


def checked(**templates: Any) -> Checked:
    """Return the result of checking a template, ``title`` or ``body``."""
    (key,) = templates.keys() - {"format"}
    return check(key, Templates(**templates))
