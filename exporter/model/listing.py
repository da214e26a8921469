"""The events of a document, matched with the lives that are known.

An event may continue under another id (succession): Microsoft's mock server of Scheduled Events changes the
id at every status.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from exporter.model.documents import Document
from exporter.model.events import SCHEDULED, STARTED, ScheduledEvent, Target, normal_name
from exporter.model.lifecycle import Known, Life

# A source that renews the id of an event at every poll must not fill the memory.
MOST_IDS = 100


class Listing(msgspec.Struct, frozen=True):
    """A document's events, matched with the lives known before it.

    ``continued`` has the events whose lives continue, by `Life.key`. ``unread`` has the lives whose
    event is listed but cannot be read. ``returning`` has the events with a known past life.
    """

    continued: Mapping[str, ScheduledEvent]
    unread: tuple[Life, ...]
    gone: tuple[Life, ...]
    returning: tuple[tuple[Life, ScheduledEvent], ...]
    fresh: tuple[ScheduledEvent, ...]


def listing_of(known: Known, document: Document, instance: str | None) -> Listing:
    """Match the events of a document with the lives that are known; ``instance`` is this VM's name.

    While the current lives are full (see `Known.is_full`), none continues under another id.
    """
    current, past = _by_id(known.current), _by_id(known.past)
    listed: dict[str, ScheduledEvent] = {}
    returning: dict[str, tuple[Life, ScheduledEvent]] = {}
    fresh: list[ScheduledEvent] = []
    for event in document.events:
        life, former = current.get(event.key), past.get(event.key)
        if life is not None:
            if life.key not in listed or _is_newer(life, event, listed[life.key]):
                listed[life.key] = event
        elif former is not None:
            if former.key not in returning or _is_newer(former, event, returning[former.key][1]):
                returning[former.key] = former, event
        else:
            fresh.append(event)
    lost = {defect.event_id.lower() for defect in document.defects if defect.lost} | document.left_out
    unread = {life.key: life for event_id, life in current.items() if event_id in lost}
    gone = [life for key, life in known.current.items() if key not in listed and key not in unread]
    dropped = [] if known.is_full else [life for life in gone if len(life.ids) < MOST_IDS]
    heirs = _heirs(dropped, fresh, instance, is_next=is_next_incarnation(known, document))
    inherited = {event.key for event in heirs.values()}
    return Listing(
        continued=heirs | listed,
        unread=tuple(life for key, life in unread.items() if key not in listed),
        gone=tuple(life for life in gone if life.key not in heirs),
        returning=tuple(returning.values()),
        fresh=tuple(event for event in fresh if event.key not in inherited),
    )


def is_next_incarnation(known: Known, document: Document) -> bool:
    """Return whether the document's incarnation is the very next."""
    return known.incarnation is not None and document.incarnation == known.incarnation + 1


def _by_id(lives: Mapping[str, Life]) -> dict[str, Life]:
    """Return the newest of these lives by every id that its event ever had, in lower case."""
    ascending = sorted(lives.values(), key=lambda life: life.number)
    return {known_id.lower(): life for life in ascending for known_id in life.ids}


def _is_newer(life: Life, event: ScheduledEvent, other: ScheduledEvent) -> bool:
    """Return whether an event has a newer id of this life than another event."""
    ids = [known_id.lower() for known_id in life.ids]
    return ids.index(event.key) > ids.index(other.key)


def _heirs(
    dropped: Sequence[Life], fresh: Iterable[ScheduledEvent], instance: str | None, *, is_next: bool
) -> dict[str, ScheduledEvent]:
    """Return the new events that continue lives, by `Life.key`.

    A life continues under a new id if exactly one event is gone, and exactly one Started event is new, with
    the same type and source, and the same resources or this VM in both. The one that is gone was Scheduled,
    or it was Started and the document has the very next incarnation.
    """
    brought = [event for event in fresh if event.event_status == STARTED]
    heirs = _pairs(dropped, brought, same_resources=True)
    if instance is not None:
        taken = {event.key for event in heirs.values()}
        dropped_own = [life for life in dropped if life.key not in heirs and _is_own(life.event, instance)]
        brought_own = [event for event in brought if event.key not in taken and _is_own(event, instance)]
        heirs |= _pairs(dropped_own, brought_own, same_resources=False)
    statuses = (SCHEDULED, STARTED) if is_next else (SCHEDULED,)
    renewed = {life.key for life in dropped if life.event.event_status in statuses}
    return {key: event for key, event in heirs.items() if key in renewed}


def _is_own(event: ScheduledEvent, instance: str) -> bool:
    return event.target(instance) is Target.SELF


def _pairs(
    dropped: Iterable[Life], brought: Iterable[ScheduledEvent], *, same_resources: bool
) -> dict[str, ScheduledEvent]:
    """Return the new event for each life, where exactly one of both is of the same nature."""
    lives, events = defaultdict(list), defaultdict(list)
    for life in dropped:
        lives[_nature(life.event, same_resources)].append(life)
    for event in brought:
        events[_nature(event, same_resources)].append(event)
    return {
        found.pop().key: events[nature].pop()
        for nature, found in lives.items()
        if len(found) == len(events[nature]) == 1
    }


def _nature(event: ScheduledEvent, with_resources: bool) -> tuple[str, ...]:
    resources = sorted(map(normal_name, event.resources)) if with_resources else ()
    return event.event_type, event.event_source, *resources
