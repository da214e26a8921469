"""The workers of all targets."""

import logging
import threading
import time

from exporter.clock import Clock
from exporter.health import Health
from exporter.metrics import Metrics
from exporter.notifications.planning import Plan
from exporter.notifications.worker import Worker
from exporter.state.jobs import Outbox
from exporter.tracing import Tracer

log = logging.getLogger(__name__)


class Notifier:
    """One worker per target, and their plan; thread-safe."""

    def __init__(self, outbox: Outbox, counts: Metrics, tracer: Tracer, health: Health, clock: Clock) -> None:
        self._outbox = outbox
        self._counts = counts
        self._tracer = tracer
        self._health = health
        self._clock = clock
        self.plan = Plan()
        self._workers: dict[str, Worker] = {}
        self._lock = threading.Lock()
        self._stopping = False

    def pending(self) -> dict[str, int]:
        """Return the number of queued messages of every target that is configured or still has some."""
        return dict.fromkeys(self.plan.senders, 0) | self._outbox.counts()

    def configure(self, plan: Plan) -> None:
        """Apply a plan; messages for targets that are not in it are kept, and a warning is logged.

        After `stop` this does nothing: a new worker would send while the state is being closed.
        """
        with self._lock:
            if not self._stopping:
                self._take_over(plan)

    def _take_over(self, plan: Plan) -> None:
        self.plan = plan
        waiting = self._outbox.counts()
        for target in dict.fromkeys((*plan.senders, *self._workers, *waiting)):
            if target not in plan.senders and waiting.get(target):
                log.warning(
                    "messages are waiting for a target that is not configured",
                    extra={"target": target, "count": waiting[target]},
                )
            if target in self._workers:
                self._workers[target].follow(plan)
                continue
            worker = Worker(
                target,
                plan,
                outbox=self._outbox,
                counts=self._counts,
                tracer=self._tracer,
                health=self._health,
                clock=self._clock,
            )
            self._workers = self._workers | {target: worker}
            worker.wake()

    def wake(self) -> None:
        """Deliver newly stored messages."""
        for worker in self._workers.values():
            worker.wake()

    def stop(self, timeout: float) -> bool:
        """Stop all workers; return whether they ended within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        with self._lock:
            self._stopping = True
            workers = tuple(self._workers.values())
        for worker in workers:
            worker.stop()
        ended = [worker.join(deadline - time.monotonic()) for worker in workers]
        return all(ended)
