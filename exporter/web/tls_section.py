"""What users write of TLS."""

import msgspec


class TlsSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``tls_server_config`` as it is written; "" and None mean that it is left out."""

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
