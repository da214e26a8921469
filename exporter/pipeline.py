"""The wiring between IMDS and the receivers: the watch, and the parts that act on its transitions."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from exporter.config import state_directory
from exporter.config.addresses import variables
from exporter.config.loading import Loaded
from exporter.imds.client import RateLimiter, client_of
from exporter.model.lifecycle import Life
from exporter.model.views import (
    ApprovalView,
    ConfigurationView,
    Minute,
    NodeView,
    Snapshot,
    TargetView,
    WorkView,
)
from exporter.outputs.alertmanager.loop import Alertmanagers
from exporter.outputs.approval.approver import Approver
from exporter.outputs.hooks.runner import HookRunner, inherited
from exporter.outputs.kubernetes.loop import NodeLoop
from exporter.outputs.kubernetes.results import DrainResults
from exporter.outputs.notifications.planning import Plan
from exporter.outputs.notifications.sender import SenderProcess
from exporter.outputs.notifications.worker import Notifier, WorkerDependencies
from exporter.outputs.otlp import Tracer
from exporter.shared import Shared
from exporter.state.store import Store
from exporter.watch.poller import Poller
from exporter.watch.watch import Watch, out_of_service
from exporter.work import Inbox, Watchdog

# Together less than a stop may take. Hooks end in parallel.
_POLLER_STOP_SECONDS = 3.0
_APPROVER_STOP_SECONDS = 0.5
_TRACER_STOP_SECONDS = 1.5
_NODE_STOP_SECONDS = 0.5
_ALERTMANAGER_STOP_SECONDS = 0.5


class Pipeline:
    """The watch, and the parts that act on its transitions: `configure`, `start`, then `stop`.

    What it shows to the web application and to a scrape is that of `Views`.
    """

    def __init__(
        self,
        store: Store,
        shared: Shared,
        *,
        sender: SenderProcess,
        died: Callable[[], None],
    ) -> None:
        """Build the parts; ``died`` is called if an unexpected error ends the poller."""
        metrics, self.health, self.clock = shared
        self.watchdog = Watchdog(self.clock)
        self._store = store
        self._metrics = metrics
        self._limiter = RateLimiter(self.clock)
        inbox = Inbox()
        self._tracer = Tracer(store, shared, lambda: self.snapshot)
        self.hooks = HookRunner(store.hook_jobs, shared, inbox)
        drains = DrainResults(store.hook_jobs, shared, inbox)
        self.node_loop = NodeLoop(lambda: self.snapshot, drains)
        self._alertmanagers = Alertmanagers(lambda: self.snapshot, shared)
        self._approver = Approver(store, shared, inbox)
        self.notifier = Notifier(WorkerDependencies(store.outbox, sender, self.approval, shared))
        self._watch = Watch(
            store,
            shared,
            inbox,
            notifier=self.notifier,
            hooks=self.hooks,
            approver=self._approver,
            readers=(self.node_loop, self._alertmanagers, self._tracer),
        )
        inbox.put(*store.reports())
        self._poller = Poller(self._watch, inbox, self.clock, self.watchdog, died=died)

    @property
    def snapshot(self) -> Snapshot:
        return self._watch.snapshot

    @property
    def polls(self) -> tuple[Minute, ...]:
        return self._poller.polls.last_hour(self.clock.now())

    @property
    def node_name(self) -> str:
        return self.notifier.plan.node

    @property
    def node(self) -> NodeView | None:
        return self.node_loop.view

    def targets(self) -> tuple[TargetView, ...]:
        return (*self.notifier.targets(), *self._alertmanagers.targets())

    def pending(self) -> Mapping[str, int]:
        return self.notifier.pending() | self._alertmanagers.pending()

    def approval(self, life: Life) -> ApprovalView:
        return self._approver.view(life)

    def work(self, lives: Collection[str]) -> Mapping[str, Sequence[WorkView]]:
        return self._store.work(lives)

    def configure(self, loaded: Loaded, plan: Plan, environ: Mapping[str, str]) -> None:
        """Apply a configuration; hooks inherit those variables of ``environ`` that contain no secrets."""
        settings = loaded.config
        client = client_of(settings.imds, self.clock, self._limiter)
        if self.snapshot.ready and self.snapshot.endpoint == client.endpoint:
            client.expect_answers()
        self._settings = settings
        self._tracer.configure(settings, environ)
        self._metrics.notifying(plan.addresses)
        self._metrics.approving(rule.name for rule in settings.approval.rules)
        self._metrics.hooking(hook.name for hook in settings.hooks)
        self.notifier.configure(plan)
        self.hooks.configure(settings.hooks, inherited(environ, variables(settings)))
        self.node_loop.configure(settings.kubernetes, environ)
        self._alertmanagers.configure(settings.alertmanager, loaded.alertmanagers, settings.web)
        # The poller takes it over later, after the poll in progress.
        self._approver.supersede(settings)
        self._poller.configure(settings, client, self._tracer.sampled_share)
        file = loaded.file.path
        self.configuration = ConfigurationView(
            file=str(file.absolute()) if file != Path() else None,
            state_directory=str(state_directory(settings).absolute()),
            approval=settings.approval.mode.value,
            hooks=tuple(hook.name for hook in settings.hooks),
            tracing=self._tracer.is_on,
            otlp=self._tracer.signals,
        )

    def start(self) -> None:
        self._poller.start()

    def stop(self) -> bool:
        """Stop all parts but ``hooks`` and ``notifier``, and return whether they ended in time."""
        ended = (
            self._poller.stop(_POLLER_STOP_SECONDS),
            self._approver.stop(_APPROVER_STOP_SECONDS),
            self.node_loop.stop(_NODE_STOP_SECONDS),
        )
        # It does not write to the state.
        self._alertmanagers.stop(_ALERTMANAGER_STOP_SECONDS)
        self._tracer.stop(_TRACER_STOP_SECONDS)
        return all(ended)

    def record_last_success(self) -> None:
        """Record the time of the last valid document; call it when all parts have ended."""
        last_success = self.snapshot.last_success
        if last_success is not None:
            self._store.record_last_success(last_success)

    def out_of_service(self) -> str:
        return out_of_service(self.snapshot, self._settings.in_service.match, self.clock.now())
