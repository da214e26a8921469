"""``--web.config.file`` while the program runs: reloaded when it, or a file that it names, changes."""

import contextlib
import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

from exporter.clock import Clock
from exporter.errors import ConfigurationError
from exporter.health import DegradedReason, Health
from exporter.web.settings import WebSettings

log = logging.getLogger(__name__)

CHECK_EVERY = 1.0  # seconds
_SUBJECT = "--web.config.file"
_Stamp = tuple[int, int, int] | None


class WebConfig:
    """The current settings; thread-safe.

    The files' times are checked on each connection and request, at most once a second, so that renewed
    certificates and changed users take effect. An invalid new file changes nothing, and is reported.
    """

    def __init__(self, path: Path | None, health: Health, clock: Clock) -> None:
        """Load the file, or raise ConfigurationError; None means plain HTTP without authentication."""
        self._path = path
        self._health = health
        self._clock = clock
        self._lock = threading.Lock()
        self._settings = _load(path) if path else WebSettings()
        self._seen = _stamps(self._settings.files)
        self._checked = clock.monotonic()

    def current(self) -> WebSettings:
        """Return the current settings; never raises."""
        with self._lock:
            if self._path and self._due():
                with contextlib.suppress(ConfigurationError):
                    self._renew(self._path)
            return self._settings

    def reload(self) -> None:
        """Reload the file now, or report and raise ConfigurationError and keep the old settings."""
        with self._lock:
            if self._path:
                self._renew(self._path)

    def ssl_contexts(self) -> Callable[[], ssl.SSLContext] | None:
        """Return a function that returns the TLS context for a new connection; None for plain HTTP."""
        return self._newest_context if self._settings.tls else None

    def _newest_context(self) -> ssl.SSLContext:
        # No reload switches TLS off.
        return cast("ssl.SSLContext", self.current().tls)

    def _due(self) -> bool:
        now = self._clock.monotonic()
        if now - self._checked < CHECK_EVERY:
            return False
        self._checked = now
        return _stamps(self._settings.files) != self._seen

    def _renew(self, path: Path) -> None:
        # Taken before reading, so that a change meanwhile is noticed next time. If reading fails it is not
        # stored: a half-written pair is read again a second later. So is a file that names other files.
        seen = _stamps(self._settings.files)
        self._seen = []
        try:
            settings = self._fresh(path)
        except ConfigurationError as error:
            self._health.report(DegradedReason.RELOAD_FAILED, str(error), _SUBJECT)
            raise
        self._settings, self._seen = settings, seen
        self._health.clear(DegradedReason.RELOAD_FAILED, _SUBJECT)
        log.info("web configuration reloaded", extra={"path": str(path)})

    def _fresh(self, path: Path) -> WebSettings:
        settings = _load(path)
        if (settings.tls is None) is not (self._settings.tls is None):
            raise ConfigurationError(
                f"{path}: TLS is switched on and off by a restart only; restart the exporter"
            )
        return settings


def _load(path: Path) -> WebSettings:
    # Imported on first use: most exporters have no such file.
    from exporter.web.webfile import load

    return load(path)


def _stamps(files: tuple[Path, ...]) -> list[_Stamp]:
    return [_stamp(file) for file in files]


def _stamp(path: Path) -> _Stamp:
    """Return modification time, size and inode; None if the file cannot be found."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
