"""``--web.config.file``: TLS, passwords, headers and rate limit, in the format of Prometheus exporters.

`WebConfig` reloads it when it, or a file that it names, changes.

The format is that of Prometheus' exporter-toolkit (docs/web-configuration.md there). Settings that Python
cannot implement are errors: a security setting must not be ignored silently.
"""

import contextlib
import ipaddress
import logging
import re
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from exporter import files as secret_files
from exporter.clock import Clock
from exporter.config import loading, yamlfile
from exporter.config.yamlfile import Keys, YamlFile
from exporter.errors import ConfigurationError, Mistakes
from exporter.health import DegradedReason, Health
from exporter.timefmt import Duration

log = logging.getLogger(__name__)

CHECK_EVERY = 1.0  # seconds
_SUBJECT = "--web.config.file"
# The headers that the toolkit allows; if it checks their values, the allowed ones.
_HEADERS: dict[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
_TLS = "tls_server_config"
_MOST_BYTES = 1024 * 1024  # all public authorities take a quarter of it; a device file may be endless

_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}

_CLIENT_AUTH = {
    "NoClientCert": ssl.VerifyMode.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.VerifyMode.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.VerifyMode.CERT_REQUIRED,
}
# Python's ssl always verifies the certificate it requests; RequireClientCert is the toolkit's older name.
_WITHOUT_CHECK = frozenset({"RequestClientCert", "RequireAnyClientCert", "RequireClientCert"})

# Go can honour them, Python's ssl cannot, or only in part; with the remedies.
_NOT_HERE = {
    "cert": "write the certificate to a file, and name it as cert_file",
    "key": "write the key to a file that only the exporter's user can read, and name it as key_file",
    "client_ca": "write the certificates to a file, and name it as client_ca_file",
    "cipher_suites": "leave it out for OpenSSL's defaults, or set min_version: TLS13",
    "curve_preferences": "leave it out for OpenSSL's defaults",
}
_BCRYPT = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")


class RateLimit(msgspec.Struct, frozen=True):
    """A token bucket: one request per ``interval``, and up to ``burst`` at once."""

    interval: Duration = 0
    burst: int = 0


@dataclass(frozen=True)
class WebSettings:
    """A valid web configuration, by default plain HTTP without passwords; its ``repr`` has no secret."""

    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # bcrypt hashes by name
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_limit: RateLimit | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    protections: frozenset[str] = frozenset()  # the keys that keep clients out
    files: tuple[Path, ...] = ()  # all that it was read from
    secrets: tuple[Path, ...] = ()  # those that nobody else should read

    def warn(self) -> None:
        """Log which files with secrets others can read."""
        secret_files.warn(self.secrets)


class _TlsSection(msgspec.Struct, frozen=True):
    """``tls_server_config`` as written; "" and None mean that a key is absent.

    Go ignores ``prefer_server_cipher_suites``, and so does this.
    """

    cert: Any = None
    key: Any = None
    client_ca: Any = None
    cert_file: str | None = None
    key_file: str | None = None
    client_ca_file: str | None = None
    client_auth_type: str | None = None
    client_allowed_sans: list[str] | None = None
    min_version: str | None = None
    max_version: str | None = None
    cipher_suites: Any = None
    curve_preferences: Any = None
    prefer_server_cipher_suites: bool = True


class _HttpSection(msgspec.Struct, frozen=True):
    http2: bool = False
    headers: dict[str, str] = {}


class _WebFile(msgspec.Struct, frozen=True):
    tls_server_config: _TlsSection = _TlsSection()
    http_server_config: _HttpSection = _HttpSection()
    basic_auth_users: dict[str, str] = {}
    rate_limit: RateLimit = RateLimit()


def load(path: Path) -> WebSettings:
    """Load and validate a file, and the certificates and keys that it names, relative to itself.

    Raises:
        ConfigurationError: the file is invalid; with file, line, key and remedy, and no secret.
    """
    file, mistakes = yamlfile.read(path), Mistakes()
    content = loading.convert_sound(file, _WebFile, mistakes)
    with mistakes:
        tls, tls_files = _tls(file, content.tls_server_config)
    users = content.basic_auth_users
    for name, hashed in users.items():
        with mistakes:
            _check_user(file, name, hashed)
    headers = _headers(file, content.http_server_config, mistakes)
    with mistakes:
        rate_limit = _rate_limit(file, content.rate_limit)
    mistakes.check()
    return WebSettings(
        users={name: hashed.encode() for name, hashed in users.items()},
        headers=headers,
        rate_limit=rate_limit,
        tls=tls,
        protections=_protections(content),
        files=(path, *tls_files),
        secrets=tuple(_secret_files(path, content)),
    )


def _protections(content: _WebFile) -> frozenset[str]:
    """Return the keys of a file that restrict access; without any of them, more clients would have access."""
    section = content.tls_server_config
    asked = _CLIENT_AUTH.get(section.client_auth_type or "", ssl.VerifyMode.CERT_NONE)
    present = {
        "basic_auth_users": bool(content.basic_auth_users),
        _TLS: section != _TlsSection(),
        "client_auth_type": asked >= ssl.VerifyMode.CERT_OPTIONAL,
        "RequireAndVerifyClientCert": asked is ssl.VerifyMode.CERT_REQUIRED,
        # Without it, the authorities of the system are trusted.
        "client_ca_file": bool(section.client_ca_file),
        "client_allowed_sans": section.client_allowed_sans is not None,
    }
    return frozenset(key for key, is_present in present.items() if is_present)


def _secret_files(path: Path, content: _WebFile) -> Iterator[Path]:
    """List the files with secrets: keys, and password hashes, which can be attacked offline."""
    section = content.tls_server_config
    if content.basic_auth_users:
        yield path
    if section.key_file:
        yield path.parent / section.key_file


def _tls(file: YamlFile, section: _TlsSection) -> tuple[ssl.SSLContext | None, tuple[Path, ...]]:
    if section == _TlsSection() or not file.is_sound("tls_server_config"):
        return None, ()
    return _ContextBuilder(file, section).build()


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
    for name, value in section.headers.items():
        with mistakes:
            _check_header(file, (*place, "headers", name), name, value)
    return {name: value for name, value in section.headers.items() if value}


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


class _ContextBuilder:
    """Builds an SSL context from a section; errors have the file and line."""

    def __init__(self, file: YamlFile, section: _TlsSection) -> None:
        """``file`` is the file of the section, for errors."""
        self._file = file
        self._section = section
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def build(self) -> tuple[ssl.SSLContext, tuple[Path, ...]]:
        """Return the context, and the files it was read from.

        Raises:
            ConfigurationError: a file is missing, the key does not match, a setting cannot be honoured.
        """
        for key, remedy in _NOT_HERE.items():
            if getattr(self._section, key):
                raise self._error(key, f"is not supported by this exporter; {remedy}")
        self._versions()
        files = (*self._certificate(), *self._clients())
        self._context.set_alpn_protocols(["http/1.1"])
        return self._context, files

    def _error(self, key: str, message: str) -> ConfigurationError:
        return self._file.error((_TLS, key), message)

    def _versions(self) -> None:
        lowest, highest = (self._section.min_version or "TLS12", self._section.max_version or "TLS13")
        for key, name in (("min_version", lowest), ("max_version", highest)):
            if name not in _VERSIONS:
                raise self._error(key, f"must be one of {', '.join(_VERSIONS)}")
        if _VERSIONS[lowest] > _VERSIONS[highest]:
            raise self._error(
                "max_version", "is below min_version, so that no client could connect; raise it"
            )
        with warnings.catch_warnings():
            # Python deprecates TLS 1.0 and 1.1; they are used only if explicitly configured.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._context.minimum_version = _VERSIONS[lowest]
            self._context.maximum_version = _VERSIONS[highest]
        if _VERSIONS[lowest] < ssl.TLSVersion.TLSv1_2:
            # OpenSSL 3 supports TLS 1.0 and 1.1 only at its lowest security level.
            self._context.set_ciphers("DEFAULT:!aNULL:!eNULL:@SECLEVEL=0")

    def _certificate(self) -> tuple[Path, Path]:
        for name in ("cert_file", "key_file"):
            if not getattr(self._section, name):
                raise self._error(name, f"is missing; TLS needs {name}")
        cert = self._pem("cert_file", b"-----BEGIN CERTIFICATE-----", "certificate")
        key = self._pem("key_file", b"PRIVATE KEY-----", "private key")
        try:
            self._context.load_cert_chain(cert, key, password=self._no_passphrase)
        except ssl.SSLError as error:
            # The latter, if the key has another type than the certificate's.
            if error.reason in ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
                raise self._error("key_file", "does not belong to the certificate") from error
            raise self._error("cert_file", f"cannot be used: {_reason(error)}") from error
        return cert, key

    def _clients(self) -> tuple[Path, ...]:
        section = self._section
        kind = section.client_auth_type or "NoClientCert"
        if kind in _WITHOUT_CHECK:
            raise self._error(
                "client_auth_type",
                "asks for a certificate without checking it, which is not possible here; "
                "use RequireAndVerifyClientCert or VerifyClientCertIfGiven",
            )
        if kind not in _CLIENT_AUTH:
            raise self._error(
                "client_auth_type", f"must be one of {', '.join((*_CLIENT_AUTH, *sorted(_WITHOUT_CHECK)))}"
            )
        authorities = self._client_ca(kind)
        self._context.verify_mode = _CLIENT_AUTH[kind]
        if section.client_allowed_sans is not None:
            if kind != "RequireAndVerifyClientCert":
                message = "needs client_auth_type: RequireAndVerifyClientCert, so that there is a name"
                raise self._error("client_allowed_sans", message)
            self._context.sslsocket_class = _checking(
                frozenset(map(_normal_name, section.client_allowed_sans))
            )
        return authorities

    def _client_ca(self, kind: str) -> tuple[Path, ...]:
        if not self._section.client_ca_file:
            # As in Go: the system's authorities.
            self._context.set_default_verify_paths()
            return ()
        if kind == "NoClientCert":
            message = "is given, but client_auth_type asks for no certificate; set RequireAndVerifyClientCert"
            raise self._error("client_ca_file", message)
        authority = self._pem("client_ca_file", b"-----BEGIN CERTIFICATE-----", "certificate")
        # As in Go, every certificate in the file is trusted, including intermediate authorities.
        self._context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        try:
            self._context.load_verify_locations(authority)
        except ssl.SSLError as error:
            raise self._error("client_ca_file", f"cannot be used: {_reason(error)}") from error
        return (authority,)

    def _no_passphrase(self) -> str:
        raise self._error("key_file", "is encrypted, and there is nobody to type a passphrase; decrypt it")

    def _pem(self, key: str, marker: bytes, kind: str) -> Path:
        """Return the path of the file that a key names, which must have such PEM text."""
        path: Path = self._file.path.parent / getattr(self._section, key)
        try:
            with secret_files.open_to_read(path) as file:
                is_marked = marker in file.read(_MOST_BYTES)
        except OSError as error:
            raise self._error(key, f"the file cannot be read: {error.strerror}") from error
        if not is_marked:
            raise self._error(key, f"contains no PEM {kind}")
        return path


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "not understood by OpenSSL").lower().replace("_", " ")


def _checking(allowed: frozenset[str]) -> type[ssl.SSLSocket]:
    """Return a connection class that accepts only clients whose certificate has an allowed name."""

    class Checking(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            # Typeshed's type for a certificate does not distinguish its fields.
            certificate: dict[str, Any] = dict(self.getpeercert() or {})
            if not any(_normal_name(value) in allowed for value in _names(certificate)):
                raise ssl.SSLCertVerificationError("the client's certificate has no allowed name")

    return Checking


def _names(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a certificate that are texts; those of a directory are not."""
    return (name for _, name in certificate.get("subjectAltName", ()) if isinstance(name, str))


def _normal_name(name: str) -> str:
    """Return an IP address in its shortest form, as Go does; OpenSSL writes IPv6 in full."""
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return name


class WebConfig:
    """The current settings; thread-safe.

    The files' times are checked on each connection and request, at most once a second, so that renewed
    certificates and changed users take effect. A new file that is invalid, or that lacks TLS, client
    certificates or passwords where the current settings have them, changes nothing, and is reported.
    """

    def __init__(self, path: Path | None, health: Health, clock: Clock) -> None:
        """Load the file, or raise ConfigurationError; None means plain HTTP without authentication."""
        self._path = path
        self._health = health
        self._clock = clock
        self._lock = threading.Lock()
        self._settings = load(path) if path else WebSettings()
        self._settings.warn()
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
        settings.warn()
        self._health.clear(DegradedReason.RELOAD_FAILED, _SUBJECT)
        log.info("web configuration reloaded", extra={"path": str(path)})

    def _fresh(self, path: Path) -> WebSettings:
        settings = load(path)
        # An empty file, or the first half of one that is being written, is valid.
        if removed := self._settings.protections - settings.protections:
            raise ConfigurationError(
                f"{path}: no longer has {', '.join(sorted(removed))}: the former settings stay in use; "
                "write it again, since a restart would serve without it"
            )
        if settings.tls and not self._settings.tls:
            raise ConfigurationError(f"{path}: TLS is switched on by a restart only; restart the exporter")
        return settings


def _stamps(paths: tuple[Path, ...]) -> list[secret_files.Stamp]:
    return [secret_files.stamp(path) for path in paths]
