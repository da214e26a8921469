"""The web configuration while the program runs: read again when one of its files changes."""

import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

from exporter.clock import Clock
from exporter.errors import ConfigurationError
from exporter.health import DegradedReason, Health
from exporter.web.settings import WebSettings

log = logging.getLogger(__name__)

CHECK_EVERY = 1.0  # seconds; a certificate that was renewed may wait that long
_SUBJECT = "--web.config.file"

_Signature = tuple[tuple[int, int, int] | None, ...]


class WebConfig:
    """The settings that hold now; thread-safe.

    Certificates are renewed and users change while the program runs: the files' times are looked at when
    somebody connects or asks, at most once a second. A new file that is bad changes nothing, and is reported.
    """

    def __init__(self, path: Path | None, health: Health, clock: Clock) -> None:
        """Read the file; None means plain HTTP, open to everybody.

        Raises:
            ConfigurationError: it is bad.
        """
        self._path = path
        self._health = health
        self._clock = clock
        self._lock = threading.Lock()
        self._settings = WebSettings.load(path) if path else WebSettings()
        self._seen = _signature(self._settings.files)
        self._checked = clock.monotonic()

    def current(self) -> WebSettings:
        """Return the settings that hold now; never raises."""
        with self._lock:
            if self._path and self._due():
                try:
                    self._load(self._path)
                except ConfigurationError as error:
                    self._health.report(DegradedReason.RELOAD_FAILED, str(error), _SUBJECT)
            return self._settings

    def reload(self) -> None:
        """Read the file again now.

        Raises:
            ConfigurationError: it is bad; the old settings stay.
        """
        with self._lock:
            if self._path:
                self._load(self._path)

    def ssl_contexts(self) -> Callable[[], ssl.SSLContext] | None:
        """Return what gives a new connection its TLS context, by the newest files; None for plain HTTP."""
        return self._newest_context if self._settings.tls else None

    def _newest_context(self) -> ssl.SSLContext:
        context = self.current().tls
        if context is None:
            raise ConfigurationError("TLS cannot be switched off while the program runs")
        return context

    def _due(self) -> bool:
        now = self._clock.monotonic()
        if now - self._checked < CHECK_EVERY:
            return False
        self._checked = now
        return _signature(self._settings.files) != self._seen

    def _load(self, path: Path) -> None:
        # Taken before reading: what changes meanwhile differs from it, and is read next time.
        # Where reading fails nothing counts as seen: a half-written pair is tried again a second later.
        seen = _signature(self._settings.files)
        self._seen = ()
        settings = WebSettings.load(path)
        if (settings.tls is None) is not (self._settings.tls is None):
            raise ConfigurationError(
                f"{path}: TLS is switched on and off by a restart only; restart the exporter"
            )
        if settings.files != self._settings.files:
            seen = _signature(settings.files)
        self._settings, self._seen = settings, seen
        self._health.clear(DegradedReason.RELOAD_FAILED, _SUBJECT)
        log.info("web configuration read again", extra={"path": str(path)})


def _signature(files: tuple[Path, ...]) -> _Signature:
    return tuple(map(_stamp, files))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
