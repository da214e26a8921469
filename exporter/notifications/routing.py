"""Which transitions go to which targets: decided purely, from the routes and what happened."""

from collections.abc import Sequence
from datetime import datetime

from exporter.config import Route
from exporter.config.match import Whom
from exporter.model.events import normal_name
from exporter.model.lifecycle import Occurrence
from exporter.model.messages import Message, Outage, WatchChange, WatchMessage
from exporter.model.views import Snapshot, event_view
from exporter.model.vm import VirtualMachine


def effective_routes(routes: Sequence[Route], configured: Sequence[str], extra: Sequence[str]) -> list[Route]:
    """Return the routes that hold: ``extra`` targets get everything, so do configured ones without any."""
    everything = [*([] if routes else configured), *extra]
    return [*routes, *([Route(targets=tuple(everything))] if everything else [])]


def compose(
    routes: Sequence[Route],
    occurrences: Sequence[Occurrence],
    *,
    instance: str | None,
    now: datetime,
    vm: VirtualMachine | None = None,
) -> tuple[Message, ...]:
    """Make the messages about what just happened: every route that matches delivers, a target once.

    ``vm`` is what is known of this VM, None while that is nothing.
    """
    return tuple(
        _message(target, occurrence, instance, vm or VirtualMachine(), shared=shared)
        for occurrence in occurrences
        for target, shared in _targets(routes, occurrence, instance, now).items()
    )


def _targets(
    routes: Sequence[Route], occurrence: Occurrence, instance: str | None, now: datetime
) -> dict[str, bool]:
    """Return whom to tell, and whether by a route about other VMs' events: their incidents are shared."""
    found: dict[str, bool] = {}
    tracked = occurrence.tracked
    for route in routes:
        if route.leader == "first" and not _is_first(tracked.event.resources, instance):
            continue
        if route.match.holds(tracked.event, target=tracked.target, now=now, transition=occurrence.transition):
            for target in route.targets:
                found[target] = found.get(target, False) or route.match.target is not Whom.SELF
    return found


def _is_first(resources: Sequence[str], instance: str | None) -> bool:
    """Return whether this VM is the first of an event's resources, or may be."""
    return instance is None or not resources or normal_name(resources[0]) == normal_name(instance)


def _message(
    target: str, occurrence: Occurrence, instance: str | None, vm: VirtualMachine, *, shared: bool
) -> Message:
    tracked = occurrence.tracked
    # Whoever sees the event can close a shared incident, also for a VM that is gone. A key stays for a life.
    alone = shared or tracked.nameless or instance is None
    incident = tracked.ids[0] if alone else f"{tracked.ids[0]}/{instance}"
    return Message(
        target=target,
        key=tracked.key,
        sequence=len(tracked.transitions),
        transition=occurrence.transition,
        at=occurrence.at,
        instance=instance,
        event=event_view(tracked),
        changes=occurrence.changes,
        detail=occurrence.detail,
        incident=incident,
        vm=vm,
    )


def compose_watch(
    targets: Sequence[str], change: WatchChange, outage: Outage, at: datetime, snapshot: Snapshot
) -> tuple[WatchMessage, ...]:
    """Make the messages about an outage of the watch; its end comes after its beginning."""
    return tuple(
        WatchMessage(
            target=target,
            key=outage.key,
            sequence=1 if change is WatchChange.BLIND else 2,
            transition=change,
            at=at,
            instance=snapshot.instance,
            since=outage.since,
            error=snapshot.last_error,
            vm=snapshot.vm or VirtualMachine(),
            incident=outage.incident,
        )
        for target in targets
    )
