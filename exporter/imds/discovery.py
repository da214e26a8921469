"""Discovery of IMDS if it is not at its static address: DHCP option 245, as DHCP clients store it on disk.

Source: Azure's page "Scheduled Events": a VM outside a virtual network has to discover the address. The
option is found in leases in these forms::

    option unknown-245 a8:3f:81:10;          dhclient
    OPTION_245=a83f8110                      systemd-networkd

Inside a virtual network the option usually names Azure's wire server, 168.63.129.16, so discovery is opt-in.
Windows keeps its leases in the registry, which is not searched.
"""

import logging
import re
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path

from exporter.config import IMDS_ADDRESS

log = logging.getLogger(__name__)

LEASE_FOLDERS = (
    Path("/run/systemd/netif/leases"),
    Path("/var/lib/dhcp"),
    Path("/var/lib/dhclient"),
    Path("/var/lib/NetworkManager"),
)

_TAIL_BYTES = 1024 * 1024  # dhclient only ever appends until it is restarted; the newest lease is at the end
_OPTION = re.compile(rb"^[ \t]*(?:option[ \t]+unknown-245[ \t]+([^;\n]*);|OPTION_245=([^\n]*))", re.MULTILINE)
_HEX = re.compile(rb"[0-9a-f]{1,2}(?::[0-9a-f]{1,2}){3}|[0-9a-f]{8}", re.IGNORECASE)


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
    leases: list[tuple[float, Path]] = []
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
                    leases.append((path.stat().st_mtime, path))
            except OSError as error:
                _skip(path, error.strerror or str(error))
    return [path for _, path in sorted(leases, reverse=True)]


def _address_in(path: Path) -> IPv4Address | None:
    """Return the last usable address in a lease file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES)
    except OSError as error:
        _skip(path, error.strerror or str(error))
        return None
    for dhclient, networkd in reversed(_OPTION.findall(text)):
        try:
            return _parse_address((dhclient or networkd).strip())
        except ValueError as error:
            _skip(path, f"option 245: {error}")
    return None


def _parse_address(value: bytes) -> IPv4Address:
    """Return the address in an option's value, or raise ValueError if it is none that a server can have."""
    if not _HEX.fullmatch(value):
        raise ValueError(f"{value.decode('latin-1')!r} is not four bytes")
    text = value.decode()
    address = IPv4Address(bytes(int(pair, 16) for pair in re.findall("[0-9a-fA-F]{1,2}", text)))
    if address.is_unspecified or address.is_multicast or address.is_reserved or address.is_loopback:
        raise ValueError(f"{address} is not a server's address")
    return address


def _skip(path: Path, problem: str) -> None:
    log.warning("DHCP lease ignored", extra={"path": str(path), "problem": problem})
