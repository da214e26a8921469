"""The wiring: builds the parts from a configuration, and owns their start, reload and stop."""

import logging
import queue
import signal
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from exporter import __version__, config
from exporter.clock import Clock
from exporter.config import Config, Overrides
from exporter.discovery import discover_endpoint
from exporter.errors import ConfigurationError
from exporter.health import Health, Trouble
from exporter.imds import ImdsClient
from exporter.metrics import Metrics, SnapshotCollector
from exporter.poller import Poller
from exporter.serving import AsgiServer, listen
from exporter.snapshot import Snapshot
from exporter.state import Store
from exporter.values import DISCOVER
from exporter.watch import Watch
from exporter.web.app import Site, create_app
from exporter.web.settings import WebSettings

log = logging.getLogger(__name__)

# Of the 10 s that a stop may take; the rest is for the state and the way out.
_POLLER_STOP_SECONDS = 3.0
_SERVER_STOP_SECONDS = 2.0


class Options(msgspec.Struct, frozen=True):
    """What the command line says."""

    config_file: Path | None = None
    overrides: Overrides = Overrides()
    listen_address: str = ":9843"
    web_config_file: Path | None = None
    enable_lifecycle: bool = False


class _Signal(StrEnum):
    STOP = "stop"
    RELOAD = "reload"
    DIED = "died"


class App:
    """The running exporter; `start`, then `wait` for a signal or `request_stop`, then `stop`."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._signals: queue.SimpleQueue[_Signal] = queue.SimpleQueue()
        self._config = config.load(options.config_file, options.overrides)
        self.health = Health(clock)
        self.registry = CollectorRegistry()
        disable_created_metrics()
        ProcessCollector(registry=self.registry)
        self._metrics = Metrics(self.registry)

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
        web = self._web_settings()
        sockets = listen(self._options.listen_address)
        self._store = Store.open(config.state_directory(self._config), health=self.health, clock=self._clock)
        self._watch = Watch(self._store, self._metrics, self.health, self._clock, known=self._store.load())
        self._poller = Poller(self._watch, self._clock, died=partial(self._signals.put, _Signal.DIED))
        self._use(self._config)
        self.registry.register(SnapshotCollector(lambda: self.snapshot, self.health, self._clock))
        self._server = self._make_server(web, sockets)
        self._server.start()
        self._poller.start()
        facts = {"version": __version__, "url": self.url, "state": config.state_directory(self._config)}
        log.info("started", extra=facts)
