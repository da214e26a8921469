"""The wiring: builds the parts from a configuration, and owns their start, reload and stop."""

import contextlib
import logging
import os
import queue
import signal
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from exporter import __version__, config
from exporter.approval import Approver
from exporter.clock import Clock
from exporter.config import Config, Overrides
from exporter.errors import ConfigurationError
from exporter.health import Health, Trouble
from exporter.hooks.runner import HookRunner
from exporter.hooks.withheld import Withheld
from exporter.imds import InstanceFacts, RateLimiter, client_of
from exporter.metrics import Metrics, SnapshotCollector
from exporter.model.messages import Sender
from exporter.model.snapshot import Snapshot
from exporter.notifications import planning
from exporter.notifications.addresses import NotifyUrls, variables
from exporter.notifications.notifier import Notifier, Plan
from exporter.reloading import Reloader
from exporter.serving import AsgiServer, listen
from exporter.state import Store
from exporter.tracing import Tracer
from exporter.watch import Watch
from exporter.watch.in_service import out_of_service
from exporter.watch.interruptions import Interruptions
from exporter.watch.pauses import PauseWatcher
from exporter.watch.poller import Poller
from exporter.watchdog import Watchdog
from exporter.web.app import Site, create_app
from exporter.web.renewal import WebConfig

log = logging.getLogger(__name__)

_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_RELOAD_SIGNALS = {signal.SIGHUP} if hasattr(signal, "SIGHUP") else set()

# Of the 10 s that a stop may take; the rest is for the state and the way out. Hooks end beside all else.
_STOP_SECONDS = 9.0
_RELOAD_STOP_SECONDS = 0.5
_POLLER_STOP_SECONDS = 3.0
_APPROVER_STOP_SECONDS = 0.5
_NOTIFIER_STOP_SECONDS = 1.5
_TRACER_STOP_SECONDS = 1.5
_SERVER_STOP_SECONDS = 1.5

# The system may hand a signal to any thread of ours, while its Python handler runs on the main thread only,
# and there not before something wakes it.
_LOOK_AGAIN_SECONDS = 1.0


class Options(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """What the command line says; ``notify`` has URLs with secrets and is not shown."""

    config_file: Path | None = None
    overrides: Overrides = Overrides()
    notify: NotifyUrls = NotifyUrls()
    listen_address: str = ":9843"
    web_config_file: Path | None = None
    enable_lifecycle: bool = False


class _Signal(StrEnum):
    STOP = "stop"
    RELOAD = "reload"
    DIED = "died"


class App:
    """The running exporter: `start`, then `wait` for a signal or an error, then `stop`."""

    def __init__(
        self, options: Options, clock: Clock, *, senders: Mapping[str, Sender] | None = None
    ) -> None:
        """Read the configuration; ``senders`` are targets, beside its own, that get everything.

        Raises:
            ConfigurationError: it is bad.
        """
        self._options = options
        self._clock = clock
        self._signals: queue.SimpleQueue[_Signal] = queue.SimpleQueue()
        self._reloader = Reloader(self._prepare)
        self._senders = senders or {}
        self._config, self._plan = self._read()
        self._limiter = RateLimiter(clock)
        self._watchdog = Watchdog(clock)
        self.health = Health(clock)
        self._registry = CollectorRegistry()
        disable_created_metrics()
        ProcessCollector(registry=self._registry)
        self._metrics = Metrics(self._registry)
        self._tracer = Tracer(self._metrics, self.health, clock, ask=self._ask_instance, environ=os.environ)

    @property
    def snapshot(self) -> Snapshot:
        """What the watch knows now."""
        return self._watch.snapshot

    @property
    def url(self) -> str:
        """Where the web server answers."""
        return self._server.url

    def start(self) -> None:
        """Take up the work.

        Raises:
            ConfigurationError: a flag or a file is wrong.
            StateDirectoryInUseError: another exporter works there.
            ListenError: the address is taken.
        """
        directory = config.state_directory(self._config)
        self._web = WebConfig(self._options.web_config_file, self.health, self._clock)
        with contextlib.ExitStack() as undo:
            listener = undo.enter_context(listen(self._options.listen_address))
            self._store = Store.open(directory, health=self.health, clock=self._clock)
            undo.callback(self._store.close)
            self._build()
            self._server = AsgiServer(create_app(self._site()), listener, tls=self._web.ssl_contexts())
            undo.pop_all()
        self._server.start()
        self._poller.start()
        log.info("started", extra={"version": __version__, "url": self.url, "state": directory})

    def _build(self) -> None:
        known = self._store.load()
        self._notifier = Notifier(self._store.outbox, self._metrics, self._tracer, self.health, self._clock)
        self._approver = Approver(
            approvals=self._store.approvals,
            jobs=self._store.hook_jobs,
            snapshot=lambda: self.snapshot,
            counts=self._metrics,
            tracer=self._tracer,
            clock=self._clock,
            known=known,
            poll=self._poll_now,
        )
        self._hooks = HookRunner(
            self._store.hook_jobs, self._metrics, self._tracer, self._clock, ended=self._approver.wake
        )
        interruptions = Interruptions(lambda: self.snapshot, self._metrics, self._clock)
        self._pauses = PauseWatcher(
            interruptions.paused, clock=self._clock, on_step=interruptions.set_forward
        )
        self._watch = Watch(
            memory=self._store,
            teller=self._notifier,
            metrics=self._metrics,
            tracer=self._tracer,
            hooks=self._hooks,
            approvals=self._approver,
            pauses=self._pauses,
            health=self.health,
            clock=self._clock,
            known=known,
        )
        self._poller = Poller(
            self._watch, self._clock, self._watchdog, died=partial(self._signals.put, _Signal.DIED)
        )
        self._use(self._config, self._plan)
        self._registry.register(
            SnapshotCollector(lambda: self.snapshot, self.health, self._clock, waiting=self._notifier.pending)
        )

    def wait(self) -> bool:
        """Serve until a signal says stop, reloading meanwhile; False if the poller died or work hangs."""
        while (hanging := self._watchdog.check()) is None:
            try:
                signalled = self._signals.get(timeout=_LOOK_AGAIN_SECONDS)
            except queue.Empty:
                continue
            if signalled is not _Signal.RELOAD:
                return signalled is _Signal.STOP
            self._reloader.request()
        log.error("exiting, so that a supervisor can restart the exporter", extra={"reason": hanging})
        return False

    def request_stop(self, *_: object) -> None:
        """Make `wait` return; safe in a signal handler."""
        self._signals.put(_Signal.STOP)

    def request_reload(self, *_: object) -> None:
        """Make `wait` reload; safe in a signal handler."""
        self._signals.put(_Signal.RELOAD)

    def _prepare(self) -> Callable[[], None]:
        """Read the configuration again, and return the function that applies it.

        Raises:
            ConfigurationError: it is bad, or changes what only a restart can; the old one stays in use.
        """
        try:
            fresh, plan = self._fresh()
            self._web.reload()
        except ConfigurationError as error:
            self._metrics.loaded(None)
            self.health.report(Trouble.RELOAD_FAILED, str(error))
            raise
        return partial(self._use, fresh, plan)

    def stop(self) -> None:
        """End the work within 10 s, and keep what is open for the next start."""
        deadline = self._clock.monotonic() + _STOP_SECONDS
        self._hooks.begin_stop()
        self._reloader.stop(_RELOAD_STOP_SECONDS)
        ended = self._poller.stop(_POLLER_STOP_SECONDS)
        self._pauses.stop(0.0)
        ended = self._approver.stop(_APPROVER_STOP_SECONDS) and ended
        ended = self._notifier.stop(_NOTIFIER_STOP_SECONDS) and ended
        self._tracer.stop(_TRACER_STOP_SECONDS)
        self._server.stop(_SERVER_STOP_SECONDS)
        ended = self._hooks.join(deadline - self._clock.monotonic()) and ended
        last_success = self._watch.known.last_success
        if ended and last_success is not None:
            self._store.note_last_success(last_success)
        if ended:
            self._store.close()
        log.info("stopped")

    def _poll_now(self) -> None:
        self._poller.wake()

    def _ask_instance(self) -> InstanceFacts:
        return self._client.instance()

    def _read(self) -> tuple[Config, Plan]:
        options = self._options
        return planning.load(
            options.config_file, options.overrides, options.notify, os.environ, senders=self._senders
        )

    def _fresh(self) -> tuple[Config, Plan]:
        fresh, plan = self._read()
        if fresh.state.directory != self._config.state.directory:
            raise ConfigurationError("state.directory cannot change while the exporter runs; restart it")
        return fresh, plan

    def _use(self, settings: Config, plan: Plan) -> None:
        self._client = client_of(settings.imds, self._clock, self._limiter, self._watchdog)
        self._config = settings
        self._tracer.configure(settings)
        self._metrics.notifying(plan.senders)
        self._metrics.approving(rule.name for rule in settings.approval.rules)
        self._metrics.hooking(hook.name for hook in settings.hooks)
        self._notifier.configure(plan)
        self._hooks.configure(settings.hooks, Withheld(variables(settings.notifications)))
        self._approver.configure(settings, self._client)
        self._poller.configure(settings, self._client)
        self._metrics.loaded(self._clock.now())
        self.health.clear(Trouble.RELOAD_FAILED)

    def _site(self) -> Site:
        return Site(
            snapshot=lambda: self.snapshot,
            health=self.health,
            clock=self._clock,
            registry=self._registry,
            reload=self._reloader.request,
            lifecycle_enabled=self._options.enable_lifecycle,
            approval=self._approver.view,
            in_service=lambda: out_of_service(
                self.snapshot, self._config.in_service.match, self._clock.now()
            ),
            settings=self._web.current,
        )


def run(options: Options, clock: Clock) -> int:
    """Run the exporter until SIGTERM or SIGINT, and return the exit status.

    Until the handlers are installed here, signals are handled as `exporter.__main__` has prepared them.
    """
    if hasattr(signal, "SIGCHLD"):
        # Whoever starts us with it ignored would have the system throw away how hooks end.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    app = App(options, clock)
    for number in _STOP_SIGNALS:
        signal.signal(number, app.request_stop)
    for number in _RELOAD_SIGNALS:
        signal.signal(number, app.request_reload)
        if sys.platform != "win32":
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    app.start()
    try:
        return 0 if app.wait() else 1
    finally:
        app.stop()
        # On its way out the interpreter restores the default actions: a late signal would be the exit status.
        for number in _STOP_SIGNALS | _RELOAD_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
