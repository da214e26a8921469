"""The wiring between IMDS and the receivers: the watch, and the parts that act on its transitions."""

import os
from collections.abc import Callable, Mapping

from exporter.approval import Approver
from exporter.clock import Clock
from exporter.config import Config
from exporter.health import Health
from exporter.hooks.jobs import inherited
from exporter.hooks.runner import HookRunner
from exporter.imds import RateLimiter, client_of
from exporter.metrics import Metrics
from exporter.model.jobs import CommandResult, Finding, Pause
from exporter.model.lifecycle import Known
from exporter.model.views import Minute, Snapshot
from exporter.notifications.addresses import variables
from exporter.notifications.notifier import Notifier
from exporter.notifications.planning import Plan
from exporter.state import Store
from exporter.tracing import Tracer
from exporter.watch import Watch, out_of_service
from exporter.watch.pauses import Interruptions, PauseWatcher
from exporter.watch.poller import Poller
from exporter.work import Watchdog

# Together less than a stop may take. Hooks end in parallel.
_POLLER_STOP_SECONDS = 3.0
_APPROVER_STOP_SECONDS = 0.5
_NOTIFIER_STOP_SECONDS = 1.5
_TRACER_STOP_SECONDS = 1.5


class Pipeline:
    """The watch, and the parts that act on its transitions: `configure`, `start`, then `stop`."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        health: Health,
        clock: Clock,
        watchdog: Watchdog,
        *,
        died: Callable[[], None],
    ) -> None:
        """Build the parts; ``died`` is called if an unexpected error ends the poller."""
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._watchdog = watchdog
        self._limiter = RateLimiter(clock)
        self._config = Config()
        known = store.load()
        self._tracer = Tracer(
            store.spans, metrics, health, clock, vm=lambda: self.snapshot.vm, environ=os.environ
        )
        self.notifier = Notifier(store.outbox, metrics, self._tracer, health, clock)
        self._hooks = HookRunner(
            store.hook_jobs,
            clock,
            traceparent=self._tracer.hook_traceparent,
            trace=self._tracer.hooked,
            ended=self._hook_ended,
        )
        self.approver = self._approver_of(known)
        interruptions = Interruptions(lambda: self.snapshot, metrics.paused, clock, report=self._report)
        self._pauses = PauseWatcher(interruptions.paused, clock=clock, on_step=interruptions.set_forward)
        self._watch = self._watch_from(known, health)
        for finding in store.findings():
            self._watch.inbox.put(finding)
        self._poller = Poller(self._watch, clock, watchdog, died=died)

    def _approver_of(self, known: Known) -> Approver:
        return Approver(
            approvals=self._store.approvals,
            jobs=self._store.hook_jobs,
            snapshot=lambda: self.snapshot,
            count=self._metrics.decided,
            trace=self._tracer.approved,
            clock=self._clock,
            known=known,
            report=self._report,
            poll=self._poll_now,
        )

    def _watch_from(self, known: Known, health: Health) -> Watch:
        return Watch(
            store=self._store,
            notifier=self.notifier,
            metrics=self._metrics,
            tracer=self._tracer,
            hooks=self._hooks,
            look_for_approvals=self.approver.wake,
            watch_for_pauses=self._pauses.watch,
            health=health,
            clock=self._clock,
            known=known,
        )

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot of the watch."""
        return self._watch.snapshot

    @property
    def polls(self) -> tuple[Minute, ...]:
        """The polls of the last hour, by minute."""
        return self._poller.polls.last_hour(self._clock.now())

    def configure(self, settings: Config, plan: Plan, environ: Mapping[str, str]) -> None:
        """Apply a configuration; hooks inherit those variables of ``environ`` that contain no secrets."""
        client = client_of(settings.imds, self._clock, self._limiter, self._watchdog)
        self._config = settings
        self._tracer.configure(settings)
        self._metrics.notifying(plan.senders)
        self._metrics.approving(rule.name for rule in settings.approval.rules)
        self._metrics.hooking(hook.name for hook in settings.hooks)
        self.notifier.configure(plan)
        self._hooks.configure(settings.hooks, inherited(environ, variables(settings)))
        self.approver.configure(settings, client)
        self._poller.configure(settings, client)

    def start(self) -> None:
        """Start to poll; call `configure` first."""
        self._poller.start()

    def begin_stop(self) -> None:
        """End the hooks that run, while the other parts stop."""
        self._hooks.begin_stop()

    def stop(self) -> bool:
        """Stop all parts but hooks, and return whether they ended in time."""
        ended = self._poller.stop(_POLLER_STOP_SECONDS)
        self._pauses.stop(0.0)
        ended = self.approver.stop(_APPROVER_STOP_SECONDS) and ended
        ended = self.notifier.stop(_NOTIFIER_STOP_SECONDS) and ended
        self._tracer.stop(_TRACER_STOP_SECONDS)
        return ended

    def join(self, timeout: float) -> bool:
        """Wait for hooks, and return whether they ended within ``timeout`` seconds."""
        return self._hooks.join(timeout)

    def note_last_success(self) -> None:
        """Record the time of the last valid document; call it when all parts have ended."""
        last_success = self.snapshot.last_success
        if last_success is not None:
            self._store.note_last_success(last_success)

    def out_of_service(self) -> str:
        """Return the reason why this VM should get no new work, or ""."""
        return out_of_service(self.snapshot, self._config.in_service.match, self._clock.now())

    def _poll_now(self) -> None:
        self._poller.wake()

    def _hook_ended(self, hook: str, result: CommandResult, failure: Finding | None) -> None:
        self._metrics.hook_ended(hook, result.outcome, result.seconds)
        self._tracer.wake()
        if failure is not None:
            self._report(failure)
        self.approver.wake()

    def _report(self, finding: Finding | Pause) -> None:
        self._poller.report(finding)
