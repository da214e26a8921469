"""Messages: the facts, severity and order, what a service gets of them, and the result of an attempt."""

from enum import StrEnum
from typing import Literal

import msgspec

from exporter.model.jobs import UtcTime
from exporter.model.lifecycle import ENDINGS, Change, Occurrence, Transition
from exporter.model.views import EventView
from exporter.model.vm import VirtualMachine

TextFormat = Literal["markdown", "text", "html"]


class Severity(StrEnum):
    """The severity of messages, of events on the page, and of alerts."""

    INFO = "info"
    SUCCESS = "success"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def weight(self) -> int:
        """The position in the order above; the last one is the most severe."""
        return _ORDER.index(self)


INFO, SUCCESS, WARNING, CRITICAL = _ORDER = tuple(Severity)

# By transition: for a Freeze, for every type that is not listed in _COLUMN, and for a Preempt or a Terminate.
_SCALE: dict[str, tuple[Severity, Severity, Severity]] = {
    "advised": (INFO, WARNING, WARNING),
    "scheduled": (INFO, WARNING, CRITICAL),
    "imminent": (INFO, WARNING, CRITICAL),
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


# The order of the transitions of one document: endings first, so that the last message about it is about a
# pending event.
_PLACES = (
    ENDINGS,
    (Transition.STARTED,),
    (Transition.UPDATED,),
    (Transition.IMMINENT,),
    (Transition.SCHEDULED,),
    (Transition.ADVISED,),
)
_RANKS = {transition: place for place, kind in enumerate(_PLACES) for transition in kind}


def rank(occurrence: Occurrence) -> tuple[int, int]:
    """Return the place of a transition in the order of a document: by kind, the gravest first."""
    life = occurrence.life
    begun = life.has(Transition.STARTED)
    gravity = severity(occurrence.transition, life.event.event_type, begun=begun).weight
    return _RANKS[occurrence.transition], -gravity


class Outcome(StrEnum):
    """Outcome of an attempt to deliver, or of a message: the label of the metric ``notifications_total``."""

    DELIVERED = "delivered"
    FAILED = "failed"
    EXPIRED = "expired"
    REFUSED = "refused"


class Message(msgspec.Struct, frozen=True, omit_defaults=True, tag="event"):
    """The facts of one transition for one target, at the time of the transition; rendered when it is sent.

    ``sequence`` is the transition's number in the event's life, from 1: with the event's key
    (`Life.key`) and the target it identifies the message. ``at`` is aware and in UTC. ``incident`` is
    the key of its event's incident for services with incidents, "" for none. ``detail`` is that of
    `Occurrence`. ``vm`` has the facts about this VM then: after a restart IMDS may not answer.
    ``nameless`` is that of `Life`. ``only_closes`` is true for the end of an event that no route leads to the
    target: only the services that know incidents get it.
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
    nameless: bool = False
    only_closes: bool = False

    @property
    def resolves(self) -> bool:
        """Whether the incident of its event is over: nothing may open it again."""
        return self.event.outcome is not None

    @property
    def severity(self) -> Severity:
        is_over = self.transition is Transition.HOOK_FAILED and self.event.ended is not None
        begun = is_over or self.event.since(Transition.STARTED) is not None
        return severity(self.transition, self.event.type, begun=begun)


class WatchChange(StrEnum):
    """A change of the watch itself: no valid document for a while, or one again."""

    BLIND = "blind"
    RECOVERED = "recovered"


class Outage(msgspec.Struct, frozen=True):
    """An outage of the watch that messages were sent about; the fields are those of `WatchMessage`.

    It is stored until it is over, because the name of this VM, which is in ``incident``, may change
    meanwhile.
    """

    since: UtcTime
    incident: str
    never: bool = False

    @property
    def key(self) -> str:
        return f"watch {self.since.isoformat()}"


class WatchMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="watch"):
    """A message for one target: there is no valid document from IMDS for a while, or there is one again.

    ``key`` identifies the outage; with ``sequence`` (1 for blind, 2 for recovered) and the target it
    identifies the message. ``since`` is the time of the last valid document, or of the exporter's start if
    there has ``never`` been one; ``at`` is when the change was noticed. Both are aware and in UTC. ``error``
    is the last failure of a poll, in words. ``incident`` and ``only_closes`` are as in `Message`.
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
    only_closes: bool = False
    never: bool = False

    @property
    def host(self) -> str:
        """The name of the host while that of the VM is not known, "" otherwise."""
        return "" if self.instance else self.incident.partition("watch/")[2]

    @property
    def resolves(self) -> bool:
        """Whether the incident is over."""
        return self.transition is WatchChange.RECOVERED

    @property
    def severity(self) -> Severity:
        return severity(self.transition)


AnyMessage = Message | WatchMessage


class Rendered(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message ready to be sent; ``traceparent`` is the W3C header to send along, "" for none.

    ``incident`` is the key of the incident for services; ``resolves`` is whether it is over, and
    ``only_closes`` whether the message is only for services that know incidents. ``facts``,
    ``link`` and ``source`` (the VM) are plain text for services with fields of their own for them.
    """

    title: str
    body: str
    format: TextFormat
    severity: Severity
    traceparent: str = ""
    incident: str = ""
    resolves: bool = False
    only_closes: bool = False
    facts: tuple[tuple[str, str], ...] = ()
    link: str = ""
    source: str = ""


class Failure(StrEnum):
    """Why an attempt failed, which decides what to do next.

    ``TARGET``: the target cannot be reached, or accepts nothing now; other messages would fail, too.
    ``REFUSED``: the target rejects this message, and would reject it later, too. ``UNANSWERED``: the message
    was sent, but its result is unknown; it may have been delivered.
    """

    TARGET = "target"
    REFUSED = "refused"
    UNANSWERED = "unanswered"


class Backlog(StrEnum):
    """How to send messages that were queued while the target was down.

    ``DIGEST``: many of them as one message. ``EACH``: each as its own message. ``LAST``: only the last one of
    each event, as an incident has one state.
    """

    DIGEST = "digest"
    EACH = "each"
    LAST = "last"


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True, tag="delivery"):
    """Result of one attempt; ``reason`` is why the message did not arrive, without secrets.

    ``skipped`` is true if there was nothing to send, as for the end of an incident that was never opened.
    ``count`` is how many of the messages a digest contains. ``services`` are those behind the target that
    have the message. ``rendered`` is the message if the target has no address. ``remarks`` are failures of
    the user's templates, by the key of the template. ``retry_after`` is for how many seconds the target asks
    to be left alone (the header Retry-After of RFC 9110), None if it does not.
    """

    delivered: bool
    reason: str = ""
    failure: Failure = Failure.TARGET
    skipped: bool = False
    count: int = 1
    services: tuple[str, ...] = ()
    rendered: Rendered | None = None
    remarks: dict[str, str] = {}
    retry_after: float | None = None
