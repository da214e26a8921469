"""Messages: the facts, severity and order, what a service gets of them, and the result of an attempt."""

from enum import StrEnum
from typing import Literal

import msgspec

from exporter.model.lifecycle import ENDINGS, Change, Occurrence, Transition
from exporter.model.views import EventView
from exporter.model.vm import VirtualMachine
from exporter.timefmt import UtcTime

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

    @property
    def is_grave(self) -> bool:
        """Whether it is a warning or graver: such messages open incidents."""
        return self.weight >= WARNING.weight


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
    "blind": (CRITICAL, CRITICAL, CRITICAL),
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


def severity_of(occurrence: Occurrence) -> Severity:
    """Return the severity of a transition when it happened."""
    life = occurrence.life
    begun = life.ended is not None or life.has(Transition.STARTED)
    return severity(occurrence.transition, life.event.event_type, begun=begun)


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
    return _RANKS[occurrence.transition], -severity_of(occurrence).weight


class Outcome(StrEnum):
    """Outcome of an attempt to deliver, or of a message: the label of the metric ``notifications_total``."""

    DELIVERED = "delivered"
    FAILED = "failed"
    EXPIRED = "expired"
    REFUSED = "refused"


class Message(msgspec.Struct, frozen=True, omit_defaults=True, tag="event"):
    """The facts of one transition for one target, at the time of the transition; rendered when it is sent.

    The target, the life and the number of the transition in it identify the message.
    """

    target: str
    key: str  # `Life.key`
    sequence: int  # from 1
    transition: Transition
    at: UtcTime
    instance: str | None
    event: EventView
    changes: tuple[Change, ...] = ()
    detail: str = ""  # that of `Occurrence`
    vm: VirtualMachine = VirtualMachine()  # the facts about this VM then: after a restart IMDS may not answer
    incident: str = ""  # the key of its event's incident for services with incidents, "" for none
    traceparent: str = ""  # the W3C header to send along
    only_closes: bool = False  # for services with incidents alone: the end of an event that no route tells

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
    """An outage of the watch that messages were sent about, until it is over."""

    since: UtcTime  # as in `WatchMessage`
    incident: str  # has the name of this VM, which may change meanwhile
    never: bool = False  # whether there has never been a valid document

    @property
    def key(self) -> str:
        return f"watch {self.since.isoformat()}"


class WatchMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="watch"):
    """A message for one target: there is no valid document from IMDS for a while, or there is one again.

    The fields without a comment are as in `Message`.
    """

    target: str
    key: str  # `Outage.key`
    sequence: int  # 1 for blind, 2 for recovered
    transition: WatchChange
    at: UtcTime  # when the change was noticed
    instance: str | None
    since: UtcTime  # the time of the last valid document, or of the exporter's start without any
    error: str = ""  # the last failure of a poll, in words
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
    """A message ready to be sent."""

    title: str
    body: str
    format: TextFormat
    severity: Severity
    traceparent: str = ""  # the W3C header to send along, "" for none
    incident: str = ""  # the key for services with incidents
    resolves: bool = False  # whether the incident is over
    only_closes: bool = False  # whether it is for services with incidents alone
    is_incident: bool = True  # whether they get it: what is never graver than info is no incident
    facts: tuple[tuple[str, str], ...] = ()  # plain text for services with fields of their own for them
    link: str = ""
    source: str = ""  # the VM


class Failure(StrEnum):
    """Why an attempt failed, which decides what to do next."""

    TARGET = "target"  # the target cannot be reached, or accepts nothing now; other messages would fail, too
    REFUSED = "refused"  # the target rejects this message, and would reject it later, too
    UNANSWERED = "unanswered"  # the message was sent, but its result is unknown; it may have been delivered


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True, tag="delivery"):
    """Result of one attempt."""

    delivered: bool
    reason: str = ""  # why the message did not arrive, without secrets
    failure: Failure = Failure.TARGET
    skipped: bool = False  # whether there was nothing to send, as for an end without an incident
    services: tuple[str, ...] = ()  # those behind the target that have the message
    rendered: Rendered | None = None  # the message, if the target has no address
    remarks: dict[str, str] = {}  # failures of the user's templates, by the key of the template
    retry_after: float | None = None  # the seconds for which the target asks to be left alone, if it does
