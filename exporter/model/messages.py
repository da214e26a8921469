"""Messages: a `Writer` turns one into `Rendered`, which a `Sender` sends, with a `Delivery` as the result."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

import msgspec

from exporter.model.jobs import UtcTime
from exporter.model.lifecycle import Change, Transition
from exporter.model.views import EventView
from exporter.model.vm import VirtualMachine

TextFormat = Literal["markdown", "text", "html"]


class Severity(StrEnum):
    """How much something matters to the person who reads it: one scale for messages, page and alerts."""

    INFO = "info"
    SUCCESS = "success"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def weight(self) -> int:
        """Its place in the order above; the last one matters most."""
        return tuple(Severity).index(self)


INFO, SUCCESS, WARNING, CRITICAL = Severity

# By transition: for a Freeze, for every type that is not listed in _COLUMN, and for a Preempt or a Terminate.
_SCALE: dict[str, tuple[Severity, Severity, Severity]] = {
    "advised": (INFO, WARNING, WARNING),
    "scheduled": (INFO, WARNING, CRITICAL),
    "started": (INFO, CRITICAL, CRITICAL),
    "completed": (SUCCESS, SUCCESS, INFO),
    "cancelled": (SUCCESS, SUCCESS, SUCCESS),
    "vanished": (WARNING, WARNING, WARNING),
    "approved": (INFO, INFO, INFO),
    "hook_failed": (WARNING, CRITICAL, CRITICAL),
    "blind": (WARNING, WARNING, WARNING),
    "recovered": (SUCCESS, SUCCESS, SUCCESS),
}
_COLUMN = {"Freeze": 0, "Preempt": 2, "Terminate": 2}


def severity(transition: str, event_type: str = "", *, begun: bool = False) -> Severity:
    """Return the severity of a transition, or of a change of the watch.

    ``begun`` is whether the event has started, or is over: an update counts as the phase in which it came,
    and a hook that fails when there is nothing left to prepare for is a warning.
    """
    if transition == "updated":
        transition = "started" if begun else "scheduled"
    if transition == "hook_failed" and begun:
        return WARNING
    return _SCALE[transition][_COLUMN.get(event_type, 1)]


class Outcome(StrEnum):
    """Outcome of an attempt to deliver, or of a message: the label of the metric ``notifications_total``."""

    DELIVERED = "delivered"
    FAILED = "failed"
    EXPIRED = "expired"
    REFUSED = "refused"


class Message(msgspec.Struct, frozen=True, tag="event"):
    """The facts of one transition for one target, as they were when it happened; rendered when it is sent.

    ``sequence`` is the transition's number in the event's life, from 1: with the event's key
    (`TrackedEvent.key`) and the target it identifies the message. ``at`` is aware and in UTC.
    ``incident`` is the key of its event's incident for services that know incidents, "" for none. ``detail``
    is that of `Occurrence`. ``vm`` has the facts about this VM then: after a restart IMDS may not answer.
    """

    target: str
    key: str
    sequence: int
    transition: Transition
    at: UtcTime
    instance: str | None
    event: EventView
    changes: tuple[Change, ...] = ()
    detail: str = ""
    vm: VirtualMachine = VirtualMachine()
    incident: str = ""

    @property
    def resolves(self) -> bool:
        """Whether the incident of its event is over: nothing may open it again."""
        return self.event.outcome is not None

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        is_over = self.transition is Transition.HOOK_FAILED and self.event.ended is not None
        begun = is_over or self.event.since(Transition.STARTED) is not None
        return severity(self.transition, self.event.type, begun=begun)


class WatchChange(StrEnum):
    """A change of the watch itself: no valid document for a while, or one again."""

    BLIND = "blind"
    RECOVERED = "recovered"


class Outage(msgspec.Struct, frozen=True):
    """An outage of the watch that messages were sent about; the fields are those of `WatchMessage`.

    It is remembered until it is over, as the name of this VM, which is in ``incident``, may change meanwhile.
    """

    since: UtcTime
    incident: str

    @property
    def key(self) -> str:
        """Its identity."""
        return f"watch {self.since.isoformat()}"


class WatchMessage(msgspec.Struct, frozen=True, tag="watch"):
    """For one target: the exporter gets no valid document from IMDS, or gets one again.

    ``key`` identifies the outage; with ``sequence`` (1 for blind, 2 for recovered) and the target it
    identifies the message. ``since`` is the time of the last valid document, or of the exporter's start where
    there was none; ``at`` is when the change was noticed. Both are aware and in UTC. ``error`` is the last
    failure of a poll, in words. ``incident`` is as in `Message`.
    """

    target: str
    key: str
    sequence: int
    transition: WatchChange
    at: UtcTime
    instance: str | None
    since: UtcTime
    error: str = ""
    vm: VirtualMachine = VirtualMachine()
    incident: str = ""

    @property
    def resolves(self) -> bool:
        """Whether the incident is over."""
        return self.transition is WatchChange.RECOVERED

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return severity(self.transition)


AnyMessage = Message | WatchMessage


class Rendered(msgspec.Struct, frozen=True):
    """A message as it goes out; ``traceparent`` is the W3C header to send along, "" for none.

    ``incident`` is the key by which services know the incident that it is about; ``resolves`` is whether that
    is over.
    """

    title: str
    body: str
    format: TextFormat
    severity: Severity
    traceparent: str = ""
    incident: str = ""
    resolves: bool = False

    def about(self, message: AnyMessage, traceparent: str = "") -> "Rendered":
        """Return this with what a service has to know of the message beside its text."""
        return msgspec.structs.replace(
            self, traceparent=traceparent, incident=message.incident, resolves=message.resolves
        )


class Failure(StrEnum):
    """Why an attempt failed; it decides what is tried next.

    ``TARGET``: the target cannot be reached, or accepts nothing now; other messages would fail, too.
    ``REFUSED``: the target does not accept this message, and would not later either.
    ``UNANSWERED``: the message was sent whole, and no answer came; it may have been delivered.
    """

    TARGET = "target"
    REFUSED = "refused"
    UNANSWERED = "unanswered"


class Delivery(msgspec.Struct, frozen=True):
    """Result of one attempt; ``reason`` says in words, free of secrets, why the message did not arrive.

    ``skipped`` is whether there was nothing to ask of the service, as to close what was never opened.
    """

    delivered: bool
    reason: str = ""
    failure: Failure = Failure.TARGET
    skipped: bool = False


class Backlog(StrEnum):
    """How messages are sent that waited while the target was down.

    ``DIGEST``: many of them as one message. ``EACH``: every one by itself. ``LAST``: of each event's the last
    alone, as an incident has one state.
    """

    DIGEST = "digest"
    EACH = "each"
    LAST = "last"


class Writer(Protocol):
    """Turns messages into text, as `exporter.notifications.rendering.Renderer` does."""

    def render(
        self, message: AnyMessage, now: datetime, *, limit: int | None = None, late: bool = False
    ) -> Rendered:
        """Write one message as of ``now`` with at most ``limit`` characters; if ``late``, it says so."""
        ...

    def digest(
        self, messages: Sequence[AnyMessage], now: datetime, *, limit: int | None = None
    ) -> tuple[Rendered, int]:
        """Write the first of several messages as one, and return how many those are."""
        ...


class Sender(Protocol):
    """Sends to one target; several threads use it at once."""

    @property
    def address(self) -> str:
        """The target's address as far as it may be shown: ``scheme://host``."""
        ...

    @property
    def body_limit(self) -> int | None:
        """Return how many characters the service takes for title and body together; None without limit."""
        ...

    @property
    def backlog(self) -> Backlog:
        """Return how messages are sent that waited while the target was down."""
        ...

    def send(self, rendered: Rendered, delivered_to: set[str] | None = None) -> Delivery:
        """Try once; it raises nothing and ends within a bounded time.

        ``delivered_to`` names the services behind the target that have the message already. They do not get
        it again; those that accept it are added, be it after this call.
        """
        ...
