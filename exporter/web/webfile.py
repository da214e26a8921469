"""``--web.config.file``: TLS, passwords, headers and rate limit, in the format of Prometheus exporters.

`WebConfig` reloads it when it, or a file that it names, changes.

The format is that of Prometheus' exporter-toolkit (docs/web-configuration.md there). Settings that Python
cannot implement are errors: a security setting must not be ignored silently.
"""

import contextlib
import logging
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec

from exporter import files as secret_files
from exporter.clock import Clock
from exporter.config import loading, yamlfile
from exporter.config.yamlfile import Keys, YamlFile
from exporter.errors import ConfigurationError, Mistakes
from exporter.health import DegradedReason, Health
from exporter.timefmt import Duration
from exporter.web.tls import ContextBuilder, TlsSection

log = logging.getLogger(__name__)

CHECK_EVERY = 1.0  # seconds
_SUBJECT = "--web.config.file"
_Stamp = tuple[int, int, int] | None
# The headers that the toolkit allows; if it checks their values, the allowed ones.
_HEADERS: dict[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
_BCRYPT = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")


class RateLimit(msgspec.Struct, frozen=True):
    """A token bucket: one request per ``interval``, and up to ``burst`` at once."""

    interval: Duration = 0
    burst: int = 0


@dataclass(frozen=True)
class WebSettings:
    """A valid web configuration; without arguments plain HTTP without authentication.

    Its ``repr`` contains neither hashes nor keys.
    """

    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # bcrypt hashes by name
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_limit: RateLimit | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    files: tuple[Path, ...] = ()  # all that it was read from


class _HttpSection(msgspec.Struct, frozen=True):
    http2: bool | None = None
    headers: dict[str, str] | None = None


class _WebFile(msgspec.Struct, frozen=True):
    tls_server_config: TlsSection | None = None
    http_server_config: _HttpSection | None = None
    basic_auth_users: dict[str, str] | None = None
    rate_limit: RateLimit | None = None


def load(path: Path) -> WebSettings:
    """Load and validate a file, and the certificates and keys that it names, relative to itself.

    Raises:
        ConfigurationError: the file is invalid; with file, line, key and remedy, and no secret.
    """
    file, mistakes = yamlfile.read(path), Mistakes()
    content = loading.convert_sound(file, _WebFile, mistakes)
    with mistakes:
        tls, tls_files = _tls(file, content.tls_server_config)
    users = content.basic_auth_users or {}
    for name, hashed in users.items():
        with mistakes:
            _check_user(file, name, hashed)
    headers = _headers(file, content.http_server_config or _HttpSection(), mistakes)
    with mistakes:
        rate_limit = _rate_limit(file, content.rate_limit or RateLimit())
    mistakes.check()
    secret_files.warn(_secret_files(path, content))
    return WebSettings(
        users={name: hashed.encode() for name, hashed in users.items()},
        headers=headers,
        rate_limit=rate_limit,
        tls=tls,
        files=(path, *tls_files),
    )


def _secret_files(path: Path, content: _WebFile) -> Iterator[Path]:
    """List the files with secrets: keys, and password hashes, which can be attacked offline."""
    section = content.tls_server_config or TlsSection()
    if content.basic_auth_users:
        yield path
    if section.key_file:
        yield path.parent / section.key_file


def _tls(file: YamlFile, section: TlsSection | None) -> tuple[ssl.SSLContext | None, tuple[Path, ...]]:
    if section is None or section == TlsSection() or not file.is_sound("tls_server_config"):
        return None, ()
    return ContextBuilder(file, section).build()


def _check_user(file: YamlFile, name: str, hashed: str) -> None:
    keys = ("basic_auth_users", name)
    if ":" in name:
        raise file.error(keys, "a user's name cannot hold a colon in basic authentication; choose another")
    if not _BCRYPT.fullmatch(hashed):
        raise file.error(
            keys,
            "is not a bcrypt hash ($2a$, $2b$ or $2y$, cost 4 to 31); "
            "make one with: htpasswd -nBC 10 '' | tr -d ':\\n'",
        )


def _headers(file: YamlFile, section: _HttpSection, mistakes: Mistakes) -> dict[str, str]:
    place = ("http_server_config",)
    with mistakes:
        if section.http2:
            raise file.error(
                (*place, "http2"), "this server speaks HTTP/1.1 only; leave it out, or set it to false"
            )
    headers = section.headers or {}
    for name, value in headers.items():
        with mistakes:
            _check_header(file, (*place, "headers", name), name, value)
    return {name: value for name, value in headers.items() if value}


def _check_header(file: YamlFile, keys: Keys, name: str, value: str) -> None:
    if name not in _HEADERS:
        raise file.error(keys, f"this header cannot be configured; these can: {', '.join(_HEADERS)}")
    if _HEADERS[name] and value not in ("", *_HEADERS[name]):
        raise file.error(keys, f"must be {' or '.join(_HEADERS[name])}")
    if not (value.isascii() and value.isprintable()):
        raise file.error(keys, "must be one line of printable ASCII, as HTTP headers are")


def _rate_limit(file: YamlFile, limit: RateLimit) -> RateLimit | None:
    if limit.burst < 0 or (limit.interval and limit.burst == 0):
        raise file.error(("rate_limit", "burst"), "must be at least 1: with less, every request is refused")
    return limit if limit.interval else None


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
        self._settings = load(path) if path else WebSettings()
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
        settings = load(path)
        if (settings.tls is None) is not (self._settings.tls is None):
            raise ConfigurationError(
                f"{path}: TLS is switched on and off by a restart only; restart the exporter"
            )
        return settings


def _stamps(files: tuple[Path, ...]) -> list[_Stamp]:
    return [_stamp(file) for file in files]


def _stamp(path: Path) -> _Stamp:
    """Return modification time, size and inode; None if the file cannot be found."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
