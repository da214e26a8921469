"""Succession: one event that goes on under another id.

Microsoft's own mock server of Scheduled Events renews an event's id at every status.
"""

from collections import Counter
from collections.abc import Iterable

from exporter.model.events import SCHEDULED, STARTED, ScheduledEvent, normal_name


def successors(
    gone: Iterable[ScheduledEvent], fresh: Iterable[ScheduledEvent], *, is_next: bool
) -> dict[str, ScheduledEvent]:
    """Return the events that one document drops and brings again under new ids.

    That is so where exactly one event goes and exactly one Started event comes with the same type, source
    and resources: of several alike nobody could tell which became which. The one that goes was Scheduled,
    or it was Started and the document is the very next (``is_next``).

    Returns:
        the new event by the `ScheduledEvent.key` of the one it succeeds.
    """
    dropped = [(_nature(event), event) for event in gone]
    brought = [(_nature(event), event) for event in fresh if event.event_status == STARTED]
    count_dropped = Counter(nature for nature, _ in dropped)
    count_brought = Counter(nature for nature, _ in brought)
    by_nature = dict(brought)
    return {
        event.key: by_nature[nature]
        for nature, event in dropped
        if count_dropped[nature] == count_brought[nature] == 1
        and (event.event_status == SCHEDULED or (event.event_status == STARTED and is_next))
    }


def _nature(event: ScheduledEvent) -> tuple[str, str, tuple[str, ...]]:
    return event.event_type, event.event_source, tuple(sorted(map(normal_name, event.resources)))
