"""The process: configuration, web server and signals around the pipeline; start, reload, stop."""

import contextlib
import itertools
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from exporter import __version__, config
from exporter.clock import Clock
from exporter.config import Config, Overrides, loading
from exporter.config.addresses import NotifyUrls
from exporter.config.loading import Loaded
from exporter.errors import ConfigurationError, ExporterError, Mistakes, StoppingError
from exporter.health import DegradedReason, Health
from exporter.metrics import Metrics, SnapshotCollector
from exporter.model.views import Demonstration, Snapshot
from exporter.outputs.alertmanager.loop import Alertmanagers
from exporter.outputs.approval.approver import Approver
from exporter.outputs.hooks.runner import HookRunner
from exporter.outputs.kubernetes.loop import NodeLoop
from exporter.outputs.notifications.output import Notifications
from exporter.outputs.otlp.output import Otlp
from exporter.outputs.output import Core, Output
from exporter.serving.addresses import listen
from exporter.serving.server import Server
from exporter.state.store import Store
from exporter.systemd import Systemd, status
from exporter.watch.pipeline import Pipeline
from exporter.web.app import WebApp
from exporter.web.webfile import WebConfig

log = logging.getLogger(__name__)

_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_RELOAD_SIGNALS = {signal.SIGHUP} if hasattr(signal, "SIGHUP") else set()

_CHECK_SECONDS = 10.0  # a target or template that is found invalid so soon ends the start
# Of the 10 s that a stop may take; the rest is for the state and the interpreter. Hooks end in parallel.
_STOP_SECONDS = 9.0
_RELOAD_STOP_SECONDS = 0.5
_SERVER_STOP_SECONDS = 1.0


# In the order of their stop: what others have done is exported last.
OUTPUTS: Sequence[type[Output]] = (
    Notifications,
    HookRunner,
    Approver,
    NodeLoop,
    Alertmanagers,
    Otlp,
)


class Options(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The flags of ``run``; ``notify`` contains secrets and is left out of the representation."""

    config_file: Path | None = None
    overrides: Overrides = Overrides()
    notify: NotifyUrls = NotifyUrls()
    listen_address: str = ":9843"
    web_config_file: Path | None = None
    enable_lifecycle: bool = False


def read(options: Options, environ: Mapping[str, str], mistakes: Mistakes) -> Loaded:
    """Load a configuration with the addresses of the outputs; errors are added to ``mistakes``."""
    loaded = _parsed(options, mistakes)
    addresses = {make.name: make.section.addresses(loaded, environ, mistakes) for make in OUTPUTS}
    return loaded._replace(addresses=addresses)


def checked(options: Options, environ: Mapping[str, str], mistakes: Mistakes) -> tuple[Loaded, Sequence[str]]:
    """Load a configuration and test it as an exporter would; return what to print of that, too."""
    loaded = read(options, environ, mistakes)
    tests = [make.section.check(loaded, environ, mistakes) for make in OUTPUTS]
    return loaded, list(itertools.chain.from_iterable(tests))


def load(file: Path | None, overrides: Overrides) -> Config:
    """Load a configuration without addresses, and so without the secrets of the exporter.

    Raises:
        ConfigurationError: something is wrong; with file and line where there is one.
    """
    mistakes = Mistakes()
    loaded = _parsed(Options(file, overrides), mistakes)
    mistakes.check()
    return loaded.config


def _parsed(options: Options, mistakes: Mistakes) -> Loaded:
    settings, parsed = loading.load_parsed(options.config_file, options.overrides, mistakes)
    for make in OUTPUTS:
        loading.add(make.section.faults(settings, parsed), parsed, mistakes)
    return Loaded(settings, parsed, options.notify)


class _Signal(StrEnum):
    STOP = "stop"
    RELOAD = "reload"
    DIED = "died"


class App:
    """The running exporter: `start`, then `wait` for a signal or an error, then `stop`."""

    demonstration: Demonstration | None = None

    def __init__(
        self, options: Options, clock: Clock, outputs: Sequence[Callable[[Core], Output]] = OUTPUTS
    ) -> None:
        self._options = options
        self._outputs = outputs
        self._clock = clock
        self._systemd = Systemd(os.environ)
        self._signals: queue.SimpleQueue[_Signal | Mistakes] = queue.SimpleQueue()
        self._reloading = threading.Lock()  # held from reading a configuration until it is applied
        self._is_stopping = False
        self._loaded = self._read()
        self._config = self._loaded.config
        self.health = Health(clock)
        self._reported: list[str] = []  # what the check of targets found only after the start
        disable_created_metrics()
        self._metrics = Metrics(CollectorRegistry())
        ProcessCollector(registry=self._metrics.registry)

    @property
    def snapshot(self) -> Snapshot:
        return self._pipeline.snapshot

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> None:
        directory = config.state_directory(self._config)
        self._web = WebConfig(self._options.web_config_file, self.health, self._clock)
        with contextlib.ExitStack() as undo:
            listener = undo.enter_context(listen(self._options.listen_address))
            self._store = Store.open(directory, health=self.health, clock=self._clock)
            undo.callback(self._store.close)
            self._build()
            application = WebApp(
                self._pipeline,
                self._metrics,
                self._web.current,
                self.reload if self._options.enable_lifecycle else None,
                demonstration=self.demonstration,
            )
            self._server = Server(application, listener, tls=self._web.ssl_contexts())
            undo.pop_all()
        self._server.start()
        self._pipeline.start()
        # Neither polling nor stopping waits for it.
        threading.Thread(target=self._check_targets, name="check targets", daemon=True).start()
        log.info("started", extra={"version": __version__, "url": self.url, "state": directory})

    def _build(self) -> None:
        self._pipeline = Pipeline(
            self._store,
            self._metrics,
            self.health,
            self._clock,
            self._outputs,
            died=partial(self._signals.put, _Signal.DIED),
        )
        self._use(self._loaded)
        self._metrics.registry.register(SnapshotCollector(self._pipeline))

    def _check_targets(self) -> None:
        mistakes = Mistakes()
        self._pipeline.check(self._loaded, os.environ, mistakes)
        self._signals.put(mistakes)

    def wait(self) -> bool:
        """Handle signals until one asks to stop; return False if the poller died or work hangs.

        The service manager is told that the exporter is ready once targets have been checked, or after 10 s.
        """
        ready_at = self._clock.monotonic() + _CHECK_SECONDS
        is_ready = False
        while (hanging := self._pipeline.watchdog.check()) is None:
            left = ready_at - self._clock.monotonic()
            if not is_ready and left <= 0:
                is_ready = True
                self._systemd.ready()
            if is_ready:
                self._systemd.alive(status(self.snapshot, self.health.problems()))
            try:
                signalled = self._signals.get(timeout=self._systemd.interval if is_ready else left)
            except queue.Empty:
                continue
            if isinstance(signalled, Mistakes):
                self._take(signalled, refuse=not is_ready)
                ready_at = self._clock.monotonic()
            elif signalled is not _Signal.RELOAD:
                return signalled is _Signal.STOP
            else:
                # It may take long. Signals are handled meanwhile.
                threading.Thread(target=self._reload_by_signal, name="reload", daemon=True).start()
        log.error("exiting, so that a supervisor can restart the exporter", extra={"reason": hanging})
        return False

    def _take(self, mistakes: Mistakes, *, refuse: bool) -> None:
        """Report what the check of targets found until a reload; with ``refuse``, it ends the start."""
        if self._config is not self._loaded.config:
            return
        if refuse:
            mistakes.check()
        self._reported = mistakes.problems
        for problem in self._reported:
            self.health.report(DegradedReason.NOTIFICATIONS_FAILING, problem, problem)

    def request_stop(self, *_: object) -> None:
        """Make `wait` return; safe in a signal handler."""
        self._signals.put(_Signal.STOP)

    def request_reload(self, *_: object) -> None:
        """Make `wait` reload; safe in a signal handler."""
        self._signals.put(_Signal.RELOAD)

    def reload(self) -> None:
        """Read the configuration again and apply it, in this thread; one at a time.

        Raises:
            ConfigurationError: it is invalid; the current one stays in use.
            StoppingError: the exporter is stopping.
        """
        with self._reloading:
            if self._is_stopping:
                raise StoppingError
            try:
                fresh = self._prepare()
            except ConfigurationError as error:
                facts = {"error": str(error)}
                log.warning("reload failed; keeping the current configuration", extra=facts)
                raise
            if self._is_stopping:
                raise StoppingError
            self._use(fresh)
            log.info("configuration reloaded")

    def _reload_by_signal(self) -> None:
        self._systemd.reloading()
        try:
            self.reload()
        except ExporterError:
            # The log has it.
            pass
        except Exception:
            log.exception("reload failed")
        self._systemd.ready()

    def _prepare(self) -> Loaded:
        problem = ""
        try:
            fresh = self._fresh()
            problem = "nothing was reloaded, as the web configuration was invalid; reload again"
            self._web.reload()
        except ConfigurationError as error:
            self._metrics.loaded(None)
            self.health.report(DegradedReason.RELOAD_FAILED, problem or str(error))
            raise
        return fresh

    def stop(self) -> None:
        """Stop within 10 s; unfinished jobs stay in the state for the next start."""
        self._systemd.stopping()
        deadline = self._clock.monotonic() + _STOP_SECONDS
        self._is_stopping = True
        # No part is configured while it stops; one that is still being read is not applied any more.
        if self._reloading.acquire(timeout=_RELOAD_STOP_SECONDS):
            self._reloading.release()
        ended = self._pipeline.stop(deadline - _SERVER_STOP_SECONDS - self._clock.monotonic())
        self._server.stop(_SERVER_STOP_SECONDS)
        if ended:
            self._pipeline.record_last_success()
            self._store.close()
        log.info("stopped")

    def _read(self) -> Loaded:
        mistakes = Mistakes()
        loaded = read(self._options, os.environ, mistakes)
        mistakes.check()
        loaded.warn()
        return loaded

    def _fresh(self) -> Loaded:
        fresh, mistakes = self._read(), Mistakes()
        if fresh.config.state.directory != self._config.state.directory:
            raise ConfigurationError("state.directory cannot change while the exporter runs; restart it")
        self._pipeline.check(fresh, os.environ, mistakes)
        mistakes.check()
        return fresh

    def _use(self, loaded: Loaded) -> None:
        self._config = loaded.config
        self._pipeline.configure(loaded, os.environ)
        self._metrics.loaded(self._clock.now())
        self.health.clear(DegradedReason.RELOAD_FAILED)
        for problem in self._reported:
            self.health.clear(DegradedReason.NOTIFICATIONS_FAILING, problem)


def run(options: Options, clock: Clock) -> int:
    """Run the exporter until SIGTERM or SIGINT, and return the exit status.

    Until this installs its handlers, signals are handled as set up by `exporter.__main__`.
    """
    if hasattr(signal, "SIGCHLD"):
        # If it is ignored, which can be inherited, `subprocess` takes every end of a hook for a success.
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
        # At exit the interpreter restores the default actions: a late signal would set the exit status.
        for number in _STOP_SIGNALS | _RELOAD_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
