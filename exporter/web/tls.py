"""TLS from ``tls_server_config``, whose names are Go's, by Python's `ssl`."""

import ipaddress
import ssl
import warnings
from pathlib import Path
from typing import Any

import msgspec

from exporter import files
from exporter.config.yamlfile import YamlFile
from exporter.errors import ConfigurationError

_AT = "tls_server_config"
# All public authorities take a quarter of it; a device file may be endless.
_MOST_BYTES = 1024 * 1024

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


class TlsSection(msgspec.Struct, frozen=True):
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


class ContextBuilder:
    """Builds an SSL context from a section; errors have the file and line."""

    def __init__(self, file: YamlFile, section: TlsSection) -> None:
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
        found = (*self._certificate(), *self._clients())
        self._context.set_alpn_protocols(["http/1.1"])
        return self._context, found

    def _error(self, key: str, message: str) -> ConfigurationError:
        return self._file.error((_AT, key), message)

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
        found = self._client_ca(kind)
        self._context.verify_mode = _CLIENT_AUTH[kind]
        if section.client_allowed_sans is not None:
            if kind != "RequireAndVerifyClientCert":
                message = "needs client_auth_type: RequireAndVerifyClientCert, so that there is a name"
                raise self._error("client_allowed_sans", message)
            self._context.sslsocket_class = _checking(
                frozenset(map(_normal_name, section.client_allowed_sans))
            )
        return found

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
            with files.open_to_read(path) as file:
                found = marker in file.read(_MOST_BYTES)
        except OSError as error:
            raise self._error(key, f"the file cannot be read: {error.strerror}") from error
        if not found:
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
            if not any(_normal_name(value) in allowed for _, value in certificate.get("subjectAltName", ())):
                raise ssl.SSLCertVerificationError("the client's certificate has no allowed name")

    return Checking


def _normal_name(name: str) -> str:
    """Return an IP address in its shortest form, as Go does; OpenSSL writes IPv6 in full."""
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return name
