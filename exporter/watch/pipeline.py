"""The wiring between IMDS and the outputs: the watch, and what acts on its transitions."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from exporter.clock import Clock
from exporter.config import state_directory
from exporter.config.loading import Loaded
from exporter.errors import Mistakes
from exporter.health import Health
from exporter.imds.client import RateLimiter, client_of
from exporter.metrics import Metrics
from exporter.model.lifecycle import Life
from exporter.model.views import (
    NO_APPROVAL,
    ApprovalView,
    ConfigurationView,
    Minute,
    NodeView,
    Snapshot,
    TargetView,
    WorkView,
)
from exporter.outputs.output import Core, Output
from exporter.state.store import Store
from exporter.watch.poller import Poller
from exporter.watch.watch import Watch, out_of_service
from exporter.work import Inbox, Watchdog

_POLLER_STOP_SECONDS = 3.0
_LEAST_STOP_SECONDS = 0.5  # for an output whose time others have used up


class Pipeline:
    """The watch and the outputs, as `Views` show them: `configure`, `start`, then `stop`."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        health: Health,
        clock: Clock,
        outputs: Sequence[Callable[[Core], Output]],
        *,
        died: Callable[[], None],
    ) -> None:
        """Build the parts; ``died`` is called if an unexpected error ends the poller."""
        self.health, self.clock = health, clock
        self.watchdog = Watchdog(self.clock)
        self._store = store
        self._limiter = RateLimiter(self.clock)
        inbox = Inbox()
        core = Core(store, metrics, health, clock, inbox, self)
        self._outputs = tuple(make(core) for make in outputs)
        store.drop_jobs(but=[output.name for output in self._outputs])
        self._watch = Watch(core, self._outputs)
        self._poller = Poller(self._watch, inbox, self.clock, self.watchdog, died=died)

    @property
    def snapshot(self) -> Snapshot:
        return self._watch.snapshot

    @property
    def polls(self) -> tuple[Minute, ...]:
        return self._poller.polls.last_hour(self.clock.now())

    @property
    def node(self) -> NodeView | None:
        return next((output.node for output in self._outputs if output.node is not None), None)

    def targets(self) -> tuple[TargetView, ...]:
        return tuple(target for output in self._outputs for target in output.targets())

    def pending(self) -> Mapping[str, int]:
        return {name: count for output in self._outputs for name, count in output.pending().items()}

    def approval(self, life: Life) -> ApprovalView:
        views = (output.approval(life) for output in self._outputs)
        return next((view for view in views if view is not NO_APPROVAL), NO_APPROVAL)

    def work(self, lives: Collection[str]) -> Mapping[str, Sequence[WorkView]]:
        return {life: [view for output in self._outputs for view in output.work(life)] for life in lives}

    def check(self, loaded: Loaded, environ: Mapping[str, str], mistakes: Mistakes) -> None:
        """Add what only a test of a configuration shows, which may take 10 s."""
        for output in self._outputs:
            output.check(loaded, environ, mistakes)

    def configure(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        settings = loaded.config
        client = client_of(settings.imds, self.clock, self._limiter)
        if self.snapshot.ready and self.snapshot.endpoint == client.endpoint:
            client.expect_answers()
        self._settings = settings
        self.node_name = settings.kubernetes.node_name(environ)
        for output in self._outputs:
            output.configure(loaded, environ)
        # The poller takes it over later, after the poll in progress.
        self._poller.configure(settings, client)
        file = loaded.file.path
        signals = tuple(signal for output in self._outputs for signal in output.signals)
        self.configuration = ConfigurationView(
            file=str(file.absolute()) if file != Path() else None,
            state_directory=str(state_directory(settings).absolute()),
            approval=settings.approval.mode.value,
            hooks=tuple(hook.name for hook in settings.hooks),
            tracing="traces" in signals,
            otlp=signals,
        )

    def start(self) -> None:
        self._poller.start()

    def stop(self, timeout: float) -> bool:
        """Stop all parts within ``timeout`` seconds; return whether nothing writes to the state any more."""
        deadline = self.clock.monotonic() + timeout
        for output in self._outputs:
            output.begin_stop()
        ended = [self._poller.stop(_POLLER_STOP_SECONDS)]
        for output in self._outputs:
            left = max(deadline - self.clock.monotonic(), _LEAST_STOP_SECONDS)
            ended.append(output.stop(min(output.stop_seconds, left)))
        return all(ended)

    def record_last_success(self) -> None:
        """Record the time of the last valid document; call it when all parts have ended."""
        last_success = self.snapshot.last_success
        if last_success is not None:
            self._store.record_last_success(last_success)

    def out_of_service(self) -> str:
        return out_of_service(self.snapshot, self._settings.in_service.match, self.clock.now())
