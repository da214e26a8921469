"""All targets together: what the rest of the program knows of the notifications."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from exporter.clock import Clock
from exporter.config import Route
from exporter.health import Health
from exporter.model.lifecycle import Occurrence
from exporter.model.messages import Message, Outage, Sender, WatchChange, WatchMessage
from exporter.model.views import Snapshot
from exporter.model.vm import VirtualMachine
from exporter.notifications import routing
from exporter.notifications.ports import Counts, DeliveryConfig, Traces, Writes
from exporter.notifications.worker import Worker
from exporter.state.jobs import Outbox

log = logging.getLogger(__name__)


class Plan(NamedTuple):
    """Who is told what, and how; ``retry_for`` and ``watch_after`` are in seconds.

    The factories are called on the workers' threads, at the first message of a target, so that nothing heavy
    is imported before there is something to say.
    """

    routes: Sequence[Route] = ()
    senders: Mapping[str, Callable[[], Sender]] = {}
    renderer: Callable[[], Writes] | None = None
    retry_for: float = 86400.0
    watch_after: float = 300.0
    watch_targets: Sequence[str] = ()


class Notifier:
    """One worker per target; `compose` belongs to the poller's thread, the rest to any."""

    def __init__(self, outbox: Outbox, counts: Counts, tracer: Traces, health: Health, clock: Clock) -> None:
        self._outbox = outbox
        self._counts = counts
        self._tracer = tracer
        self._health = health
        self._clock = clock
        self._plan = Plan()
        self._workers: dict[str, Worker] = {}
        self._lock = threading.Lock()
        self._stopping = False

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets that are configured."""
        return tuple(self._plan.senders)

    def pending(self) -> dict[str, int]:
        """Return how many messages wait, for every target that is configured or still has some."""
        return dict.fromkeys(self.targets, 0) | self._outbox.counts()

    def configure(self, plan: Plan) -> None:
        """Take over a plan; messages that wait for a target that it does not have are kept, and warned of.

        Once stopped it takes over none: a worker of its own would send while the state is being closed.
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
            sender = plan.senders.get(target)
            self._assign(target, DeliveryConfig(sender, plan.renderer or _nothing, plan.retry_for))

    def compose(
        self,
        occurrences: Sequence[Occurrence],
        instance: str | None,
        now: datetime,
        vm: VirtualMachine | None = None,
    ) -> tuple[Message, ...]:
        """Make the messages to write down with what just happened."""
        return routing.compose(self._plan.routes, occurrences, instance=instance, now=now, vm=vm)

    @property
    def blind_after(self) -> float:
        """After how many seconds without a valid document to send messages; infinite for never."""
        return self._plan.watch_after if self._plan.watch_targets else math.inf

    def compose_watch(
        self, change: WatchChange, outage: Outage, at: datetime, snapshot: Snapshot
    ) -> tuple[WatchMessage, ...]:
        """Make the messages to write down with an outage of the watch, or its end."""
        return routing.compose_watch(self._plan.watch_targets, change, outage, at, snapshot)

    def wake(self) -> None:
        """Deliver what was recorded."""
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

    def _assign(self, target: str, config: DeliveryConfig) -> None:
        worker = self._workers.get(target)
        if worker is not None:
            worker.assign(config)
            return
        worker = Worker(
            target,
            config,
            outbox=self._outbox,
            counts=self._counts,
            tracer=self._tracer,
            health=self._health,
            clock=self._clock,
        )
        self._workers = self._workers | {target: worker}
        worker.wake()


def _nothing() -> Writes:
    raise RuntimeError("a plan with targets has a renderer")
