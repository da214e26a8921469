"""The wiring between IMDS and the receivers: the watch, and the parts that act on its transitions."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from exporter.alertmanager import loop as alerting
from exporter.alertmanager.loop import Alertmanagers
from exporter.approval.approver import Approver
from exporter.clock import Clock
from exporter.config import Config, state_directory
from exporter.config.addresses import Address, variables
from exporter.health import Health
from exporter.hooks.runner import HookRunner, inherited
from exporter.imds.client import RateLimiter, client_of
from exporter.kubernetes.loop import NodeLoop
from exporter.kubernetes.reports import DrainResults
from exporter.metrics import Metrics
from exporter.model.views import ConfigurationView, Minute, Snapshot, TargetView
from exporter.notifications.planning import Plan
from exporter.notifications.sender import SenderProcess
from exporter.notifications.worker import Notifier, WorkerDependencies
from exporter.otlp import Tracer
from exporter.otlp.pusher import Families
from exporter.state.store import Store
from exporter.watch.poller import Poller
from exporter.watch.watch import Watch, out_of_service
from exporter.work import Inbox, Watchdog

# Together less than a stop may take. Hooks end in parallel.
_POLLER_STOP_SECONDS = 3.0
_APPROVER_STOP_SECONDS = 0.5
_NOTIFIER_STOP_SECONDS = 1.5
_TRACER_STOP_SECONDS = 1.5
_NODE_STOP_SECONDS = 0.5
_ALERTMANAGER_STOP_SECONDS = 0.5


class Pipeline:
    """The watch, and the parts that act on its transitions: `configure`, `start`, then `stop`."""

    def __init__(  # noqa: PLR0913  # it is built in one place, by names
        self,
        store: Store,
        metrics: Metrics,
        health: Health,
        clock: Clock,
        *,
        families: Families,
        watchdog: Watchdog,
        sender: SenderProcess,
        died: Callable[[], None],
    ) -> None:
        """Build the parts; ``died`` is called if an unexpected error ends the poller.

        ``families`` returns all metrics.
        """
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._limiter = RateLimiter(clock)
        store.renew_lives()
        known = store.load()
        self._tracer = Tracer(
            store.spans,
            store.log_records,
            metrics,
            health,
            clock,
            families=families,
            vm=lambda: self.snapshot.vm,
            instance=lambda: self.snapshot.instance,
            environ=os.environ,
        )
        inbox = Inbox()
        self.hooks = HookRunner(store.hook_jobs, metrics, self._tracer, inbox, clock)
        self.node = NodeLoop(
            lambda: self.snapshot,
            DrainResults(store.hook_jobs, metrics, self._tracer, inbox, health=health, clock=clock),
        )
        self._alertmanagers = Alertmanagers(alerting.Services(lambda: self.snapshot, metrics, health, clock))
        self.approver = Approver(store, metrics, self._tracer, inbox, clock)
        self.notifier = Notifier(
            WorkerDependencies(store.outbox, sender, metrics, self._tracer, health, clock, self.approver.view)
        )
        self._watch = Watch(
            store=store,
            notifier=self.notifier,
            metrics=metrics,
            tracer=self._tracer,
            hooks=self.hooks,
            approver=self.approver,
            node=self.node,
            alertmanagers=self._alertmanagers,
            inbox=inbox,
            health=health,
            clock=clock,
            known=known,
        )
        inbox.put(*store.findings())
        self._poller = Poller(self._watch, inbox, clock, watchdog, died=died)

    @property
    def snapshot(self) -> Snapshot:
        return self._watch.snapshot

    @property
    def polls(self) -> tuple[Minute, ...]:
        return self._poller.polls.last_hour(self._clock.now())

    def targets(self) -> tuple[TargetView, ...]:
        """Return the delivery to each target, and to each Alertmanager."""
        return (*self.notifier.targets(), *self._alertmanagers.targets())

    def pending(self) -> Mapping[str, int]:
        """Return the number of messages and alerts that wait, by target."""
        return self.notifier.pending() | self._alertmanagers.pending()

    def configure(
        self, settings: Config, plan: Plan, alertmanagers: Sequence[Address], environ: Mapping[str, str]
    ) -> None:
        """Apply a configuration; hooks inherit those variables of ``environ`` that contain no secrets."""
        client = client_of(settings.imds, self._clock, self._limiter)
        if self.snapshot.ready and self.snapshot.endpoint == client.endpoint:
            client.expect_answers()
        self._config = settings
        self._tracer.configure(settings)
        self._metrics.notifying(plan.addresses)
        self._metrics.approving(rule.name for rule in settings.approval.rules)
        self._metrics.hooking(hook.name for hook in settings.hooks)
        self.notifier.configure(plan)
        self.hooks.configure(settings.hooks, inherited(environ, variables(settings)))
        self.node.configure(settings.kubernetes, environ)
        self._alertmanagers.configure(settings.alertmanager, alertmanagers, settings.web.external_url)
        # The poller takes it over later, after the poll in progress.
        self.approver.supersede(settings)
        self._poller.configure(settings, client)

    def configuration(self, file: Path | None) -> ConfigurationView:
        """Return what users may see of the configuration in use, which was read from ``file``."""
        return ConfigurationView(
            file=str(file.absolute()) if file else None,
            state_directory=str(state_directory(self._config).absolute()),
            approval=self._config.approval.mode.value,
            hooks=tuple(hook.name for hook in self._config.hooks),
            tracing=self._tracer.is_on,
            otlp=self._tracer.signals,
        )

    def start(self) -> None:
        self._poller.start()

    def stop(self) -> bool:
        """Stop all parts but ``hooks``, and return whether they ended in time."""
        ended = (
            self._poller.stop(_POLLER_STOP_SECONDS),
            self.approver.stop(_APPROVER_STOP_SECONDS),
            self.node.stop(_NODE_STOP_SECONDS),
            self.notifier.stop(_NOTIFIER_STOP_SECONDS),
        )
        # It does not write to the state.
        self._alertmanagers.stop(_ALERTMANAGER_STOP_SECONDS)
        self._tracer.stop(_TRACER_STOP_SECONDS)
        return all(ended)

    def note_last_success(self) -> None:
        """Record the time of the last valid document; call it when all parts have ended."""
        last_success = self.snapshot.last_success
        if last_success is not None:
            self._store.record_last_success(last_success)

    def out_of_service(self) -> str:
        """Return the reason why this VM should get no new work, or ""."""
        return out_of_service(self.snapshot, self._config.in_service.match, self._clock.now())
