"""Rendering in this process, as the sender process does it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.model.messages import AnyMessage, Rendered
from exporter.notifications import rendering
from exporter.notifications.fitting import Room
from exporter.notifications.protocol import Checked, Send
from exporter.notifications.templates import check


def characters(limit: int | None) -> Room | None:
    """Return the room of a service that takes so many characters of title and body; None takes all."""
    return None if limit is None else Room(lambda title, body, _: len(title) + len(body) - limit)


class Renderer:
    """Renders messages for one target."""

    def __init__(
        self,
        templates: Templates | None = None,
        exporter_url: str = "",
        marker: str = "",
        timezone: str = "UTC",
    ) -> None:
        self._templates = templates or Templates()
        self._url = exporter_url
        self._marker = marker
        self._timezone = timezone
        self._renderer = rendering.Renderer()
        self.remarks: dict[str, str] = {}

    def render(
        self, message: AnyMessage, now: datetime, *, limit: int | None = None, failed: bool = False
    ) -> Rendered:
        """Return a message as it is sent."""
        rendered, _, self.remarks = self._renderer.render(
            self._request([message], now, failed=failed), characters(limit)
        )
        return rendered

    def digest(
        self, messages: Sequence[AnyMessage], now: datetime, *, limit: int | None = None, failed: bool = True
    ) -> tuple[Rendered, int]:
        """Return a digest, and of how many messages it is."""
        request = self._request(messages, now, failed=failed, is_digest=True)
        rendered, count, _ = self._renderer.render(request, characters(limit))
        return rendered, count

    def _request(
        self, messages: Sequence[AnyMessage], now: datetime, *, failed: bool, is_digest: bool = False
    ) -> Send:
        return Send(
            Address("oncall"),
            tuple(messages),
            now,
            self._templates,
            self._url,
            timezone=self._timezone,
            marker=self._marker,
            failed=failed,
            is_digest=is_digest,
        )


def checked(**templates: Any) -> Checked:
    """Return the result of checking a template, ``title`` or ``body``."""
    (key,) = templates.keys() - {"format"}
    return check(key, Templates(**templates))
