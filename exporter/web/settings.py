"""The settings of the web server, which `exporter.web.webfile` reads from ``--web.config.file``."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from exporter.config.values import Duration


class RateLimit(msgspec.Struct, frozen=True):
    """A token bucket: one request per ``interval``, and up to ``burst`` at once."""

    interval: Duration = 0
    burst: int = 0


@dataclass(frozen=True)
class WebSettings:
    """A valid web configuration; without arguments plain HTTP without authentication.

    ``users`` maps names to bcrypt hashes. ``files`` are all files that it was read from. Its ``repr``
    contains neither hashes nor keys.
    """

    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_limit: RateLimit | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    files: tuple[Path, ...] = ()
