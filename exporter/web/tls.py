"""TLS from ``tls_server_config``, whose names are Go's, by Python's `ssl`."""

import ipaddress
import logging
import os
import re
import ssl
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from exporter import files
from exporter.config.yamlfile import YamlFile
from exporter.errors import ConfigurationError

log = logging.getLogger(__name__)

_AT = "tls_server_config"
_KEY = re.compile(rb"-----BEGIN (?:RSA )?PRIVATE KEY-----(.*?)-----END", re.DOTALL)
_LONG_KEY_BYTES = 1500
# All public authorities take a quarter of it; a device file may be endless.
_MOST_BYTES = 1024 * 1024

_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}

_CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}

_CLIENT_AUTH = {
    "NoClientCert": ssl.VerifyMode.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.VerifyMode.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.VerifyMode.CERT_REQUIRED,
}
# Python's ssl always verifies the certificate it requests; RequireClientCert is the toolkit's older name.
_WITHOUT_CHECK = frozenset({"RequestClientCert", "RequireAnyClientCert", "RequireClientCert"})

_TLS13_CIPHERS = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)

# tls.CipherSuites() of Go 1.19 to 1.25; the last four were removed in 1.22.
_CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}


class TlsSection(msgspec.Struct, frozen=True):
    """``tls_server_config`` as written; "" and None mean that a key is absent."""

    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    client_ca_file: str | None = None
    client_auth_type: str | None = None
    client_allowed_sans: list[str] | None = None
    min_version: str | None = None
    max_version: str | None = None
    cipher_suites: list[str] | None = None
    curve_preferences: list[str] | None = None
    prefer_server_cipher_suites: bool = True


class ContextBuilder:
    """Builds an SSL context from a section; errors have the file and line."""

    def __init__(self, file: YamlFile, section: TlsSection) -> None:
        """``file`` is the file of the section, for errors."""
        self._file = file
        self._section = section
        self._files: list[Path] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def build(self) -> tuple[ssl.SSLContext, tuple[Path, ...]]:
        """Return the context, and the files it was read from.

        Raises:
            ConfigurationError: a file is missing, the key does not match, a setting cannot be honoured.
        """
        self._versions()
        self._ciphers()
        self._curves()
        self._certificate()
        self._clients()
        self._context.set_alpn_protocols(["http/1.1"])
        return self._context, tuple(self._files)

    def _error(self, key: str, message: str) -> ConfigurationError:
        return self._file.error((_AT, key), message)

    def _versions(self) -> None:
        lowest, highest = (self._section.min_version or "TLS12", self._section.max_version or "TLS13")
        for key, name in (("min_version", lowest), ("max_version", highest)):
            if name not in _VERSIONS:
                raise self._error(key, f"must be one of {', '.join(_VERSIONS)}")
        if _VERSIONS[lowest] > _VERSIONS[highest]:
            raise self._error(
                "max_version", f"{highest} is below min_version, {lowest}; no client could connect"
            )
        with warnings.catch_warnings():
            # Python deprecates TLS 1.0 and 1.1; they are used only if explicitly configured.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._context.minimum_version = _VERSIONS[lowest]
            self._context.maximum_version = _VERSIONS[highest]

    def _ciphers(self) -> None:
        names = self._section.cipher_suites or []
        for index, name in enumerate(names):
            if name not in _CIPHERS and name not in _TLS13_CIPHERS:
                keys = (_AT, "cipher_suites", index)
                raise self._file.error(keys, "unknown cipher suite; Go's names of secure suites are known")
        named13 = _TLS13_CIPHERS.intersection(names)
        if named13 and named13 != _TLS13_CIPHERS and self._context.maximum_version == _VERSIONS["TLS13"]:
            raise self._error(
                "cipher_suites",
                "TLS 1.3 suites cannot be chosen singly; name all three or none, or set max_version: TLS12",
            )
        older = [_CIPHERS[name] for name in names if name in _CIPHERS]
        # OpenSSL 3 supports TLS 1.0 and 1.1 only at its lowest security level.
        level = ["@SECLEVEL=0"] if self._context.minimum_version < _VERSIONS["TLS12"] else []
        if older or level:
            self._context.set_ciphers(":".join([*(older or ["DEFAULT", "!aNULL", "!eNULL"]), *level]))
        if not self._section.prefer_server_cipher_suites:
            self._context.options &= ~ssl.Options.OP_CIPHER_SERVER_PREFERENCE

    def _curves(self) -> None:
        names = self._section.curve_preferences or []
        for index, name in enumerate(names):
            if name not in _CURVES:
                keys = (_AT, "curve_preferences", index)
                raise self._file.error(keys, f"unknown curve; must be one of: {', '.join(_CURVES)}")
        if len(names) > 1:
            raise self._error(
                "curve_preferences", "only one curve can be set here; name one, or leave it out for all"
            )
        try:
            for name in names:
                self._context.set_ecdh_curve(_CURVES[name])
        except (ssl.SSLError, ValueError) as error:
            # Debian's Python 3.11.2 supports only the older curves, although its OpenSSL has X25519.
            raise self._error(
                "curve_preferences", "this Python cannot set that curve; name CurveP256, or leave it out"
            ) from error

    def _certificate(self) -> None:
        with self._pem("cert") as cert, self._pem("key") as key:
            if cert is None or key is None:
                missing = "cert" if cert is None else "key"
                raise self._error(f"{missing}_file", f"is missing; TLS needs {missing}_file (or {missing})")
            self._expect(cert, "cert", b"-----BEGIN CERTIFICATE-----", "certificate")
            self._expect(key, "key", b"PRIVATE KEY-----", "private key")
            try:
                self._context.load_cert_chain(cert, key, password=self._no_passphrase)
            except ssl.SSLError as error:
                # The latter, if the key has another type than the certificate's.
                if error.reason in ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
                    raise self._error(self._key("key"), "does not belong to the certificate") from error
                raise self._error(self._key("cert"), f"cannot be used: {_reason(error)}") from error
            if _is_long(key):
                log.warning(
                    "TLS handshakes with this key are slow: clients without a password could delay scrapes",
                    extra={"path": key, "remedy": "use a key of P-256, or of RSA with 2048 bits"},
                )

    def _clients(self) -> None:
        section = self._section
        kind = section.client_auth_type or "NoClientCert"
        if kind in _WITHOUT_CHECK:
            raise self._error(
                "client_auth_type",
                f"{kind} asks for a certificate without checking it, which is not possible here; "
                "use RequireAndVerifyClientCert or VerifyClientCertIfGiven",
            )
        if kind not in _CLIENT_AUTH:
            raise self._error(
                "client_auth_type", f"must be one of {', '.join((*_CLIENT_AUTH, *sorted(_WITHOUT_CHECK)))}"
            )
        self._client_ca(kind)
        self._context.verify_mode = _CLIENT_AUTH[kind]
        if section.client_allowed_sans is not None:
            if kind != "RequireAndVerifyClientCert":
                message = "needs client_auth_type: RequireAndVerifyClientCert, so that there is a name"
                raise self._error("client_allowed_sans", message)
            self._context.sslobject_class = _checking(
                frozenset(map(_normal_name, section.client_allowed_sans))
            )

    def _client_ca(self, kind: str) -> None:
        with self._pem("client_ca") as authority:
            if authority is None:
                # As in Go: the system's authorities.
                self._context.set_default_verify_paths()
                return
            if kind == "NoClientCert":
                message = (
                    "is given, but client_auth_type asks for no certificate; set RequireAndVerifyClientCert"
                )
                raise self._error(self._key("client_ca"), message)
            self._expect(authority, "client_ca", b"-----BEGIN CERTIFICATE-----", "certificate")
            # As in Go, every certificate in the file is trusted, including intermediate authorities.
            self._context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
            try:
                self._context.load_verify_locations(authority)
            except ssl.SSLError as error:
                raise self._error(self._key("client_ca"), f"cannot be used: {_reason(error)}") from error

    def _no_passphrase(self) -> str:
        raise self._error(
            self._key("key"), "is encrypted, and there is nobody to type a passphrase; decrypt it"
        )

    def _key(self, what: str) -> str:
        return what if getattr(self._section, what) else f"{what}_file"

    def _expect(self, path: Path, what: str, marker: bytes, name: str) -> None:
        try:
            with files.open_to_read(path) as file:
                found = marker in file.read(_MOST_BYTES)
        except OSError as error:
            raise self._error(self._key(what), f"the file cannot be read: {error.strerror}") from error
        if not found:
            raise self._error(self._key(what), f"contains no PEM {name}")

    @contextmanager
    def _pem(self, what: str) -> Iterator[Path | None]:
        inline: str | None = getattr(self._section, what)
        name: str | None = getattr(self._section, f"{what}_file")
        if inline and name:
            raise self._error(what, f"is set in addition to {what}_file; keep one of them")
        if inline:
            with _as_file(inline.encode()) as path:
                yield path
        elif name:
            path = self._file.path.parent / name
            self._files.append(path)
            yield path
        else:
            yield None


@contextmanager
def _as_file(content: bytes) -> Iterator[Path]:
    """Yield a temporary file with the content, in memory if possible; `ssl` reads keys only from files."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pem"), "wb") as memory:
            memory.write(content)
            memory.flush()
            yield Path(f"/proc/self/fd/{memory.fileno()}")
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "pem")
        path.write_bytes(content)
        yield path


def _is_long(path: Path) -> bool:
    """Return whether the key in a PEM file is one of RSA with much more than 2048 bits, by its length.

    PKCS #1 and PKCS #8 take some 1,200 bytes for 2048 bits, 1,800 for 3072; other kinds take a few hundred.
    """
    with files.open_to_read(path) as file:
        found = _KEY.search(file.read(_MOST_BYTES))
    return found is not None and len(found[1]) * 3 / 4 > _LONG_KEY_BYTES


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "not understood by OpenSSL").lower().replace("_", " ")


def _checking(allowed: frozenset[str]) -> type[ssl.SSLObject]:
    """Return a connection class that accepts only clients whose certificate has an allowed name."""

    class Checking(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            # Typeshed's type for a certificate does not distinguish its fields.
            certificate: dict[str, Any] = dict(self.getpeercert() or {})
            if not any(_normal_name(value) in allowed for _, value in certificate.get("subjectAltName", ())):
                raise ssl.SSLCertVerificationError("the client's certificate has no allowed name")

    return Checking


def _normal_name(name: str) -> str:
    """Return an IP address in its shortest form, as Go does; OpenSSL writes IPv6 in full."""
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return name
