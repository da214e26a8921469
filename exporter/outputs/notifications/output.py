"""Messages as an output: the plan of a configuration, its check, and the messages that a step causes."""

import logging
from collections.abc import Callable, Mapping

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
from exporter.outputs.notifications.worker import Notifier, WorkerDependencies
from exporter.outputs.output import Core, Output

log = logging.getLogger(__name__)


class Notifications(Output):
    """Messages to the targets of the configuration."""

    name = "notifications"
    section = NotificationsSection()
    # A receiver may be slow; what it accepts meanwhile is not sent again.
    stop_seconds = 8.0

    def __init__(self, core: Core, *, sender_type: Callable[..., SenderProcess] = SenderProcess) -> None:
        self._core = core
        self._outbox = core.store.jobs(self.name, Outbox)
        self._sender_type = sender_type
        self._notifier: Notifier | None = None
        # The newest configuration that was checked or applied, with its plan.
        self._prepared: tuple[Loaded, Plan] | None = None

    def plan_of(self, loaded: Loaded) -> Plan:
        """Return the plan for a configuration."""
        return planning.plan_of(loaded, keep_state=True)

    def check(self, loaded: Loaded, environ: Mapping[str, str]) -> Mistakes:
        plan, notifier = self._plan(loaded), self._workers(loaded, environ)
        return checking.check(loaded, plan, notifier.sender)

    def configure(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        plan = self._plan(loaded)
        self._core.metrics.deliveries.expect(plan.addresses)
        notifier = self._workers(loaded, environ)
        notifier.configure(plan)
        if plan.addresses:
            # It takes longer to start than the exporter, and the check of the targets waits for it.
            notifier.sender.prepare()

    def compose(self, step: Step, seen: Snapshot) -> list[Job]:
        if self._notifier is None:
            return []
        now = self._core.clock.now()
        opened = {
            occurrence.life.key: self._outbox.opened(occurrence.life.key) for occurrence in step.occurrences
        }
        messages = self._notifier.plan.compose(step.occurrences, seen.instance, now, seen, opened)
        inherited = [job for lives in step.replaced.items() for job in self._outbox.inherited(*lives)]
        return [*inherited, *map(job_of, messages)]

    def compose_outage(self, fact: OutageFact, seen: Snapshot) -> list[Job]:
        if self._notifier is None:
            return []
        opened = self._outbox.opened(fact.outage.key)
        messages = self._notifier.plan.compose_watch(fact.change, fact.outage, fact.at, seen, opened)
        return [job_of(message) for message in messages]

    def work(self, life_key: str) -> list[WorkView]:
        return self._outbox.views(life_key, "message")

    def wake(self) -> None:
        for target, count in self._outbox.take_dropped().items():
            self._core.metrics.deliveries.given_up(target, Outcome.EXPIRED, count)
            log.warning("messages dropped: too many are waiting", extra={"target": target, "count": count})
        if self._notifier is not None:
            self._notifier.wake()

    def begin_stop(self) -> None:
        if self._notifier is not None:
            self._notifier.begin_stop()

    def stop(self, timeout: float) -> bool:
        return self._notifier is None or self._notifier.join(timeout)

    def targets(self) -> tuple[TargetView, ...]:
        return self._notifier.targets() if self._notifier else ()

    def pending(self) -> Mapping[str, int]:
        return self._notifier.pending() if self._notifier else {}

    def _plan(self, loaded: Loaded) -> Plan:
        if self._prepared is None or self._prepared[0] is not loaded:
            self._prepared = loaded, self.plan_of(loaded)
        return self._prepared[1]

    def _workers(self, loaded: Loaded, environ: Mapping[str, str]) -> Notifier:
        if self._notifier is None:
            core = self._core
            given = environment(environ, variables(loaded.config))
            sender = self._sender_type(given)
            services = WorkerDependencies(core, self._outbox, sender)
            self._notifier = Notifier(services)
        return self._notifier
