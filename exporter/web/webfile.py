"""``--web.config.file``: TLS, passwords, headers and rate limit, in the format of Prometheus exporters.

The format is that of Prometheus' exporter-toolkit (docs/web-configuration.md there). Settings that Python
cannot implement are errors: a security setting must not be ignored silently.
"""

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec

from exporter import files as secret_files
from exporter.config import loading, yamlfile
from exporter.config.yamlfile import Keys, YamlFile
from exporter.errors import Mistakes
from exporter.web.settings import RateLimit, WebSettings
from exporter.web.tls import ContextBuilder, TlsSection

# The headers that the toolkit allows; if it checks their values, the allowed ones.
_HEADERS: dict[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
_BCRYPT = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")


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
    if section.key or content.basic_auth_users:
        yield path
    if section.key_file:
        yield path.parent / section.key_file


def _tls(file: YamlFile, section: TlsSection | None) -> tuple[ssl.SSLContext | None, tuple[Path, ...]]:
    faulty = any(keys[0] == "tls_server_config" for keys in file.faulty)
    if section is None or section == TlsSection() or faulty:
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
    if not value.isascii() or not all(letter.isprintable() for letter in value):
        raise file.error(keys, "must be one line of printable ASCII, as HTTP headers are")


def _rate_limit(file: YamlFile, limit: RateLimit) -> RateLimit | None:
    if limit.burst < 0 or (limit.interval and limit.burst == 0):
        raise file.error(("rate_limit", "burst"), "must be at least 1: with less, every request is refused")
    return limit if limit.interval else None
