"""The workers of all targets."""

import logging
import threading
import time

from msgspec.structs import replace

from exporter.model.views import TargetView
from exporter.notifications.planning import Plan
from exporter.notifications.worker import Services, Worker

log = logging.getLogger(__name__)


class Notifier:
    """One worker per target, and their plan; thread-safe."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.plan = Plan()
        self._workers: dict[str, Worker] = {}
        self._lock = threading.Lock()
        self._stopping = False

    def pending(self) -> dict[str, int]:
        """Return the number of queued messages of every target that is configured or still has some."""
        return dict.fromkeys(self.plan.addresses, 0) | self._services.outbox.counts()

    def targets(self) -> tuple[TargetView, ...]:
        """Return the delivery to each configured target."""
        waiting, workers = self._services.outbox.counts(), self._workers
        return tuple(
            replace(workers[name].view, pending=waiting.get(name, 0))
            for name in self.plan.addresses
            if name in workers
        )

    def configure(self, plan: Plan) -> None:
        """Apply a plan; messages for targets that are not in it are kept, and a warning is logged.

        After `stop` this does nothing: a new worker would send while the state is being closed.
        """
        with self._lock:
            if self._stopping:
                return
            self.plan = plan
            waiting = self._services.outbox.counts()
            for target in dict.fromkeys((*plan.addresses, *self._workers, *waiting)):
                if target not in plan.addresses and waiting.get(target):
                    log.warning(
                        "messages are waiting for a target that is not configured",
                        extra={"target": target, "count": waiting[target]},
                    )
                if target in self._workers:
                    self._workers[target].follow(plan)
                else:
                    worker = Worker(target, plan, self._services)
                    self._workers = self._workers | {target: worker}
                    worker.wake()

    def wake(self) -> None:
        """Deliver newly stored messages, and have the sender process ready for those of the same events."""
        if self.plan.addresses:
            self._services.sender.prepare()
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
        self._services.sender.stop()
        return all(ended)
