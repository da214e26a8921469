"""Events that are about to start: the notice that is left falls to a threshold of ``events.imminent``.

Each threshold counts once per life, and again if NotBefore is postponed beyond it. `Life.notice_left` has the
notice by which that was last decided, so that neither a restart nor a step of the clock repeats it.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import (
    Known,
    Life,
    Occurrence,
    Step,
    Transition,
    TransitionRecord,
    noted,
    step_of,
)
from exporter.model.order import rank


def notice_left(event: ScheduledEvent, now: datetime) -> float | None:
    """Return the seconds to NotBefore, negative once it has passed; None if nothing is scheduled."""
    if not event.is_scheduled or event.not_before is None:
        return None
    return (event.not_before - now).total_seconds()


def with_notice(before: Life | None, after: Life, now: datetime) -> Life:
    """Return the life after a document, with the notice by which it becomes imminent."""
    left = notice_left(after.event, now)
    if left is None:
        return after
    if before is not None and before.notice_left is not None:
        is_moved = after.event.not_before != before.announced
        left = max(before.notice_left, left) if is_moved else before.notice_left
    return replace(after, notice_left=left)


def imminent(lives: Sequence[Life], now: datetime, thresholds: Sequence[float]) -> Iterator[Life]:
    """Yield the lives whose notice has fallen to one of these thresholds, in seconds; each only once."""
    for life in lives if thresholds else ():
        left = None if life.is_retyping else notice_left(life.event, now)
        ahead = [threshold for threshold in thresholds if _is_ahead(life, threshold)]
        if left is not None and ahead and max(ahead) >= left:
            yield replace(life, notice_left=left)


def next_imminent(known: Known, thresholds: Sequence[float]) -> datetime | None:
    """Return when the next event becomes imminent; None if none will."""
    times = (
        life.event.not_before - timedelta(seconds=threshold)
        for life in known.current.values()
        if life.event.is_scheduled and life.event.not_before is not None and not life.is_retyping
        for threshold in thresholds
        if _is_ahead(life, threshold)
    )
    return min(times, default=None)


def pass_time(
    known: Known, now: datetime, thresholds: Sequence[float], instance: str | None, *, late: bool
) -> Step | None:
    """Return the effects of the time alone, without a document; None if there are none.

    Unless ``late``, events whose NotBefore has passed are left out.
    """
    record = TransitionRecord(Transition.IMMINENT, now)
    occurrences = [
        Occurrence(noted(life, record, instance), Transition.IMMINENT, now)
        for life in imminent((*known.current.values(),), now, thresholds)
        if late or (life.notice_left or 0.0) > 0
    ]
    return step_of(known, *sorted(occurrences, key=rank)) if occurrences else None


def _is_ahead(life: Life, threshold: float) -> bool:
    return life.notice_left is not None and life.notice_left > threshold
