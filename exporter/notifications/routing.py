"""Which transitions go to which targets: decided purely, from the routes and what happened."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from exporter.config import Route
from exporter.model.lifecycle import Occurrence
from exporter.model.messages import Message
from exporter.model.views import event_view


def effective_routes(routes: Sequence[Route], configured: Sequence[str], extra: Sequence[str]) -> list[Route]:
    """Return the routes that hold: ``extra`` targets get everything, so do configured ones without any."""
    everything = [*([] if routes else configured), *extra]
    return [*routes, *([Route(targets=tuple(everything))] if everything else [])]


def compose(
    routes: Sequence[Route], occurrences: Sequence[Occurrence], *, instance: str | None, now: datetime
) -> tuple[Message, ...]:
    """Make the messages about what just happened: every route that matches delivers, a target once."""
    return tuple(
        _message(target, occurrence, instance)
        for occurrence in occurrences
        for target in dict.fromkeys(_targets(routes, occurrence, now))
    )


def _targets(routes: Sequence[Route], occurrence: Occurrence, now: datetime) -> Iterator[str]:
    for route in routes:
        tracked = occurrence.tracked
        if route.match.holds(tracked.event, target=tracked.target, now=now, transition=occurrence.transition):
            yield from route.targets


def _message(target: str, occurrence: Occurrence, instance: str | None) -> Message:
    tracked = occurrence.tracked
    return Message(
        target=target,
        key=tracked.key,
        sequence=len(tracked.transitions),
        transition=occurrence.transition,
        at=occurrence.at,
        instance=instance,
        event=event_view(tracked),
        changes=occurrence.changes,
    )
