"""Messages as an output: the plan of a configuration, its check, and the messages that a step causes."""

import logging
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from exporter.config.addresses import variables
from exporter.config.loading import Loaded
from exporter.errors import Mistakes
from exporter.model.facts import OutageFact
from exporter.model.jobs import Job
from exporter.model.lifecycle import Step
from exporter.model.messages import Outcome
from exporter.model.views import Snapshot, TargetView, WorkView
from exporter.outputs.notifications import checking, planning
from exporter.outputs.notifications.outbox import Outbox, job_of
from exporter.outputs.notifications.planning import Plan
from exporter.outputs.notifications.section import NotificationsSection
from exporter.outputs.notifications.sender import SenderProcess, environment
from exporter.outputs.notifications.worker import Worker
from exporter.outputs.output import Core, Output

log = logging.getLogger(__name__)

# What remains at a stop to record the services that have a message whose attempt was ended.
_RECORD_SECONDS = 1.0


class Notifications(Output):
    """Messages to the targets of the configuration, with a worker for each."""

    name = "notifications"
    section = NotificationsSection()
    stop_seconds = 8.0  # a receiver may be slow; what it accepts meanwhile is not sent again

    def __init__(self, core: Core, *, sender_type: Callable[..., SenderProcess] = SenderProcess) -> None:
        self._core = core
        self._outbox = core.store.jobs(self.name, Outbox)
        self._sender_type = sender_type
        self._sender: SenderProcess | None = None  # made with the environment of the first configuration
        self._plan = Plan()
        # The newest configuration that was checked or applied, with its plan.
        self._prepared: tuple[Loaded, Plan] | None = None
        self._workers: dict[str, Worker] = {}  # by target; replaced whole, because other threads read it

    def plan_of(self, loaded: Loaded) -> Plan:
        return planning.plan_of(loaded, keep_state=True)

    def check(self, loaded: Loaded, environ: Mapping[str, str], mistakes: Mistakes) -> None:
        checking.check(loaded, self._plan_for(loaded), self._sender_for(loaded, environ), mistakes)

    def configure(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        """Apply a configuration; messages for targets that are not in it are kept."""
        self._plan = plan = self._plan_for(loaded)
        self._core.metrics.deliveries.expect(plan.addresses)
        sender, waiting = self._sender_for(loaded, environ), self._outbox.counts()
        for target in dict.fromkeys((*plan.addresses, *self._workers, *waiting)):
            if target not in plan.addresses and waiting.get(target):
                log.warning(
                    "messages are waiting for a target that is not configured",
                    extra={"target": target, "count": waiting[target]},
                )
            if target in self._workers:
                self._workers[target].follow(plan)
            else:
                worker = Worker(target, plan, self._core, self._outbox, sender)
                self._workers = self._workers | {target: worker}
                worker.wake()
        self._prepare()

    def compose(self, step: Step, seen: Snapshot) -> list[Job]:
        now = self._core.clock.now()
        opened = {
            occurrence.life.key: self._outbox.opened(occurrence.life.key) for occurrence in step.occurrences
        }
        messages = self._plan.compose(step.occurrences, seen.instance, now, seen, opened)
        inherited = [job for lives in step.replaced.items() for job in self._outbox.inherited(*lives)]
        return [*inherited, *map(job_of, messages)]

    def compose_outage(self, fact: OutageFact, seen: Snapshot) -> list[Job]:
        opened = self._outbox.opened(fact.outage.key)
        messages = self._plan.compose_watch(fact.change, fact.outage, fact.at, seen, opened)
        return [job_of(message) for message in messages]

    def work(self, life_key: str) -> list[WorkView]:
        return self._outbox.views(life_key, "message")

    def wake(self) -> None:
        """Deliver newly stored messages, and have the sender process ready for those of the same events."""
        for target, count in self._outbox.take_dropped().items():
            self._core.metrics.deliveries.given_up(target, Outcome.EXPIRED, count)
            log.warning("messages dropped: too many are waiting", extra={"target": target, "count": count})
        self._prepare()
        for worker in self._workers.values():
            worker.wake()

    def begin_stop(self) -> None:
        for worker in self._workers.values():
            worker.stop()
        if self._sender is not None:
            self._sender.close()

    def stop(self, timeout: float) -> bool:
        """Wait for attempts in progress, and end those that take longer than ``timeout`` allows."""
        deadline = time.monotonic() + timeout
        workers = tuple(self._workers.values())
        for worker in workers:
            worker.join(deadline - _RECORD_SECONDS - time.monotonic())
        if self._sender is not None:
            self._sender.stop()
        ended = [worker.join(deadline - time.monotonic()) for worker in workers]
        return all(ended)

    def targets(self) -> tuple[TargetView, ...]:
        waiting, workers = self._outbox.counts(), self._workers
        return tuple(
            replace(workers[name].view, pending=waiting.get(name, 0))
            for name in self._plan.addresses
            if name in workers
        )

    def pending(self) -> Mapping[str, int]:
        """Return the number of queued messages of every target that is configured or still has some."""
        return dict.fromkeys(self._plan.addresses, 0) | self._outbox.counts()

    def _prepare(self) -> None:
        # It takes longer to start than the exporter, and the check of the targets waits for it.
        if self._sender is not None and self._plan.addresses:
            self._sender.prepare()

    def _plan_for(self, loaded: Loaded) -> Plan:
        if self._prepared is None or self._prepared[0] is not loaded:
            self._prepared = loaded, self.plan_of(loaded)
        return self._prepared[1]

    def _sender_for(self, loaded: Loaded, environ: Mapping[str, str]) -> SenderProcess:
        if self._sender is None:
            self._sender = self._sender_type(environment(environ, variables(loaded.config)))
        return self._sender
