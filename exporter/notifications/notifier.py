"""Which transitions go to which targets, and the workers of all targets."""

import logging
import math
import threading
import time
from collections.abc import Sequence
from datetime import datetime

from exporter.clock import Clock
from exporter.config import Route
from exporter.config.match import Whom
from exporter.health import Health
from exporter.metrics import Metrics
from exporter.model.events import normal_name
from exporter.model.lifecycle import Occurrence
from exporter.model.messages import Message, Outage, WatchChange, WatchMessage
from exporter.model.views import Snapshot, event_view
from exporter.model.vm import VirtualMachine
from exporter.notifications.planning import Plan
from exporter.notifications.worker import Worker
from exporter.state.jobs import Outbox
from exporter.tracing import Tracer

log = logging.getLogger(__name__)


def compose(
    routes: Sequence[Route],
    occurrences: Sequence[Occurrence],
    *,
    instance: str | None,
    now: datetime,
    vm: VirtualMachine | None = None,
) -> tuple[Message, ...]:
    """Return the messages about transitions: one for each target of the routes that match.

    ``vm`` has the facts about this VM, None while they are unknown.
    """
    return tuple(
        _message(target, occurrence, instance, vm or VirtualMachine(), shared=shared)
        for occurrence in occurrences
        for target, shared in _targets(routes, occurrence, instance, now).items()
    )


def _targets(
    routes: Sequence[Route], occurrence: Occurrence, instance: str | None, now: datetime
) -> dict[str, bool]:
    """Return the targets, and whether a route about other VMs leads to them: its incidents are shared."""
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
    """Return the messages about an outage of the watch, or its end."""
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


class Notifier:
    """One worker per target. Any thread may use it."""

    def __init__(self, outbox: Outbox, counts: Metrics, tracer: Tracer, health: Health, clock: Clock) -> None:
        self._outbox = outbox
        self._counts = counts
        self._tracer = tracer
        self._health = health
        self._clock = clock
        self._plan = Plan()
        self._workers: dict[str, Worker] = {}
        self._lock = threading.Lock()
        self._stopping = False

    def pending(self) -> dict[str, int]:
        """Return how many messages wait, for every target that is configured or still has some."""
        return dict.fromkeys(self._plan.senders, 0) | self._outbox.counts()

    def configure(self, plan: Plan) -> None:
        """Use a plan; messages for targets that it does not have are kept, and a warning is logged.

        After `stop` this does nothing: a new worker would send while the state is being closed.
        """
        with self._lock:
            if not self._stopping:
                self._take_over(plan)

    def _take_over(self, plan: Plan) -> None:
        self._plan = plan
        waiting = self._outbox.counts()
        for target in dict.fromkeys((*plan.senders, *self._workers, *waiting)):
            if target not in plan.senders and waiting.get(target):
                log.warning(
                    "messages wait for a target that is not configured",
                    extra={"target": target, "count": waiting[target]},
                )
            if target in self._workers:
                self._workers[target].assign(plan.delivery(target))
                continue
            worker = Worker(
                target,
                plan.delivery(target),
                outbox=self._outbox,
                counts=self._counts,
                tracer=self._tracer,
                health=self._health,
                clock=self._clock,
            )
            self._workers = self._workers | {target: worker}
            worker.wake()

    def compose(
        self,
        occurrences: Sequence[Occurrence],
        instance: str | None,
        now: datetime,
        vm: VirtualMachine | None = None,
    ) -> tuple[Message, ...]:
        """Return the messages to store with these transitions."""
        return compose(self._plan.routes, occurrences, instance=instance, now=now, vm=vm)

    @property
    def blind_after(self) -> float:
        """The seconds without a valid document after which to send messages; infinite for never."""
        return self._plan.watch_after if self._plan.watch_targets else math.inf

    def compose_watch(
        self, change: WatchChange, outage: Outage, at: datetime, snapshot: Snapshot
    ) -> tuple[WatchMessage, ...]:
        """Return the messages to store with an outage of the watch, or its end."""
        return compose_watch(self._plan.watch_targets, change, outage, at, snapshot)

    def wake(self) -> None:
        """Deliver what was stored."""
        for worker in self._workers.values():
            worker.wake()

    def stop(self, timeout: float) -> bool:
        """End all work within ``timeout`` seconds; return whether all of it ended."""
        deadline = time.monotonic() + timeout
        with self._lock:
            self._stopping = True
            workers = tuple(self._workers.values())
        for worker in workers:
            worker.stop()
        ended = [worker.join(deadline - time.monotonic()) for worker in workers]
        return all(ended)
