"""What there is to say, to whom, and how sending it went: the words that the other modules share."""

from collections.abc import Hashable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, Protocol

import msgspec

from exporter.model.lifecycle import Change, Transition
from exporter.model.views import EventView

TextFormat = Literal["markdown", "text", "html"]


class Severity(StrEnum):
    """How much a message matters to the person who gets it."""

    INFO = "info"
    SUCCESS = "success"
    WARNING = "warning"
    CRITICAL = "critical"


class Outcome(StrEnum):
    """How a try to deliver ended: the label of the metric ``notifications_total``."""

    DELIVERED = "delivered"
    FAILED = "failed"
    EXPIRED = "expired"


class Message(msgspec.Struct, frozen=True):
    """The facts of one transition for one target, as they were when it happened; rendered when it is sent.

    ``sequence`` is the transition's number in the event's life, from 1: with the event's key
    (`TrackedEvent.key`) and the target it names the message for all time. ``at`` is aware and in UTC.
    """

    target: str
    key: str
    sequence: int
    transition: Transition
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    instance: str | None
    event: EventView
    changes: tuple[Change, ...] = ()


class Rendered(msgspec.Struct, frozen=True):
    """A message as it goes out; ``traceparent`` is the W3C header to send along, "" for none."""

    title: str
    body: str
    format: TextFormat
    severity: Severity
    traceparent: str = ""


class Delivery(msgspec.Struct, frozen=True):
    """How one try to send went; ``reason`` says in words, free of secrets, why it did not arrive."""

    delivered: bool
    reason: str = ""


class Sender(Protocol):
    """One target's way out; used by one thread."""

    @property
    def address(self) -> str:
        """Where it goes, as far as may be shown: ``scheme://host``."""
        ...

    @property
    def body_limit(self) -> int | None:
        """Return how many characters the service takes for title and body together; None without limit."""
        ...

    def send(self, rendered: Rendered, about: Hashable = None) -> Delivery:
        """Try once; it raises nothing and ends within a bounded time.

        ``about`` names what is sent, however it reads: the same as before is the same message tried again.
        """
        ...
