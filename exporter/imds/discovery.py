r"""Discovery of IMDS if it is not at its static address: DHCP option 245, as DHCP clients store it on disk.

Source: Azure's page "Scheduled Events": a VM outside a virtual network has to discover the address. The
option is found in leases in these forms::

    option unknown-245 a8:3f:81:10;          dhclient, without a declaration of the option
    option unknown-245 "\250?\201\020";      the same, if the bytes look like text
    option ms-wireserver 168.63.129.16;      dhclient, if an administrator declared name and type
    OPTION_245=a83f8110                      systemd-networkd

Inside a virtual network the option usually names Azure's wire server, 168.63.129.16, so discovery is opt-in.
Windows keeps its leases in the registry, which is not searched.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address
from pathlib import Path

from exporter.config import IMDS_ADDRESS

log = logging.getLogger(__name__)

LEASE_FOLDERS = (
    Path("/run/systemd/netif/leases"),
    Path("/var/lib/dhcp"),
    Path("/var/lib/dhcp3"),
    Path("/var/lib/dhclient"),
    Path("/var/lib/NetworkManager"),
    Path("/run/NetworkManager"),
)

# dhclient only ever appends until it is restarted; the newest lease is at the end.
_TAIL_BYTES = 1024 * 1024
_OPTION = re.compile(
    rb"""^[ \t]*
    (?: option [ \t]+ (?: (?:unknown|option|private)[-_]245 | [\w-]*wire-?server[\w-]* ) [ \t]+
        (?P<dhclient> "(?:[^"\\\n]|\\.)*" | [^;\n]* ) [ \t]* ;
      | OPTION_245 [ \t]* = [ \t]* (?P<networkd> [^\n]* )
    )""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_HEX_PAIRS = re.compile(rb"[0-9a-f]{1,2}(?::[0-9a-f]{1,2}){3}", re.IGNORECASE)
_HEX_DIGITS = re.compile(rb"(?:0x)?([0-9a-f]{8})", re.IGNORECASE)
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)


def discover_endpoint(paths: Sequence[Path] = LEASE_FOLDERS) -> str:
    """Return the address from the newest lease file in ``paths`` (folders) that has one; else the static one.

    It is a URL without path, and logged with its source. Missing, unreadable or malformed files are skipped,
    the latter two with a warning; nothing is raised.
    """
    searched = ", ".join(map(str, paths))
    endpoint, source = IMDS_ADDRESS, f"no DHCP option 245 in {searched}: the static address is used"
    for path in _lease_files(paths):
        address = _address_in(path)
        if address is not None:
            endpoint, source = f"http://{address}", f"DHCP option 245 in {path} says {address}"
            break
    log.info("endpoint discovered", extra={"endpoint": endpoint, "source": source})
    return endpoint


def _lease_files(folders: Sequence[Path]) -> list[Path]:
    """Return the lease files, newest first."""
    found: list[tuple[float, Path]] = []
    for folder in folders:
        try:
            paths = [path for path in folder.iterdir() if "lease" in path.name or folder.name == "leases"]
        except FileNotFoundError:
            continue
        except OSError as error:
            _skip(folder, error.strerror or str(error))
            continue
        for path in paths:
            try:
                if path.is_file():
                    found.append((path.stat().st_mtime, path))
            except OSError as error:
                _skip(path, error.strerror or str(error))
    return [path for _, path in sorted(found, reverse=True)]


def _address_in(path: Path) -> IPv4Address | None:
    """Return the last usable address in a lease file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES)
    except OSError as error:
        _skip(path, error.strerror or str(error))
        return None
    for value in reversed(list(_values(text))):
        try:
            return _parse_address(value)
        except ValueError as error:
            _skip(path, f"option 245: {error}")
    return None


def _values(text: bytes) -> Iterator[bytes]:
    for match in _OPTION.finditer(text):
        yield (match["networkd"] if match["dhclient"] is None else match["dhclient"]).strip()


def _parse_address(value: bytes) -> IPv4Address:
    """Return the address in an option's value, or raise ValueError if it is none that a server can have."""
    inner = value[1:-1] if value[:1] == value[-1:] == b'"' else None
    plain = value if inner is None else inner
    if _HEX_PAIRS.fullmatch(plain):
        address = IPv4Address(bytes(int(pair, 16) for pair in plain.split(b":")))
    elif digits := _HEX_DIGITS.fullmatch(plain):
        address = IPv4Address(bytes.fromhex(digits[1].decode()))
    elif inner is not None and len(raw := _ESCAPE.sub(_unescape, inner)) == 4:
        address = IPv4Address(raw)
    else:
        address = IPv4Address(plain.decode("latin-1"))
    if address.is_unspecified or address.is_multicast or address.is_reserved or address.is_loopback:
        raise ValueError(f"{address} is not a server's address")
    return address


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else code


def _skip(path: Path, problem: str) -> None:
    log.warning("DHCP lease ignored", extra={"path": str(path), "problem": problem})
