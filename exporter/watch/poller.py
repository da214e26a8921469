"""The thread that polls: once per interval, more slowly while IMDS fails, until it is told to stop."""

import logging
import threading
from collections.abc import Callable

from exporter.clock import Clock
from exporter.config import Config
from exporter.errors import PollOutcome
from exporter.imds import Backoff, ImdsClient
from exporter.watch import Watch
from exporter.watchdog import Watchdog

log = logging.getLogger(__name__)


class Poller:
    """Polls on a thread of its own; ``died`` is called there should it ever end by an error of ours."""

    def __init__(self, watch: Watch, clock: Clock, watchdog: Watchdog, *, died: Callable[[], None]) -> None:
        self._watch = watch
        self._clock = clock
        self._watchdog = watchdog
        self._died = died
        self._lock = threading.Lock()
        self._next: tuple[Config, ImdsClient] | None = None
        self._wake = threading.Event()
        self._stopping = False
        # A poll may wait for IMDS for minutes; the end of the process must not.
        self._thread = threading.Thread(target=self._run, name="poller", daemon=True)

    def configure(self, config: Config, client: ImdsClient) -> None:
        """Set the configuration and the client to use from the next poll on, which comes at once."""
        with self._lock:
            replaced, self._next = self._next, (config, client)
        if replaced is not None:
            replaced[1].close()
        self._wake.set()

    def wake(self) -> None:
        """Poll now, not only when the interval is over."""
        self._wake.set()

    def start(self) -> None:
        """Begin to poll; `configure` comes first."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Ask the thread to end, and return whether it did within ``timeout`` seconds."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop()
        except Exception:
            log.exception("the poller died")
            self._died()

    def _loop(self) -> None:
        client: ImdsClient | None = None
        backoff = Backoff(1.0, clock=self._clock)
        while not self._stopping:
            self._wake.clear()
            with self._lock:
                given, self._next = self._next, None
            if given is not None:
                if client is not None:
                    client.close()
                config, client = given
                self._watch.configure(config, client.endpoint)
                backoff = Backoff(config.imds.poll_interval, clock=self._clock)
            if client is None:
                raise RuntimeError("configure() comes before start()")
            started = self._clock.monotonic()
            with self._watchdog.limit("the poll", client.longest_poll):
                outcome = self._watch.poll(client)
            delay = backoff.after(outcome is PollOutcome.SUCCESS, self._clock.monotonic() - started)
            self._wake.wait(delay)
