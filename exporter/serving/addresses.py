"""Listen addresses in the format of Prometheus exporters."""

import contextlib
import errno
import socket
from pathlib import Path

from exporter.errors import ConfigurationError, ExporterError, one_line

BACKLOG = 1024
_FLAG = "--web.listen-address"


def listen(address: str) -> socket.socket:
    """Listen on an address such as ``:9843`` or ``[::]:9843`` (every interface, IPv4 and IPv6).

    Connections are queued from then on. A host name resolves to its first IPv4 address, or to its first
    address if it has no IPv4 address.

    Raises:
        ConfigurationError: the address is malformed, or its host is unknown.
        ExporterError: it cannot be bound.
    """
    host, port = _split(address)
    try:
        listener = _bind(host, port)
    except (socket.gaierror, ValueError) as error:
        raise ConfigurationError(
            f"{_FLAG}: the name of the host, {one_line(repr(host))}, cannot be resolved; correct it"
        ) from error
    except OSError as error:
        # `create_server` appends the address as a Python tuple.
        reason = (error.strerror or str(error)).partition(" (while")[0].lower()
        if error.errno == errno.EADDRINUSE:
            reason += f"{_listening(int(port))}; stop it, or choose another port with {_FLAG}"
        else:
            reason += f"; choose another address with {_FLAG}"
        raise ExporterError(f"cannot listen on {address}: {reason}") from error
    # Accepted connections inherit this option. Without it, the body of a response can be delayed by 40 ms
    # until the client acknowledges the head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    return listener


def _listening(port: int) -> str:
    """Return `` by NAME (pid N)`` for the process that listens on a port, or "" if that cannot be read.

    The tables of sockets are described in Linux' ``Documentation/networking/proc_net_tcp.rst``.
    """
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in table.read_text().splitlines()]
            sockets |= {
                f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")
            }
    for descriptor in Path("/proc").glob("[0-9]*/fd/*") if sockets else ():
        with contextlib.suppress(OSError):
            if str(descriptor.readlink()) in sockets:
                process = descriptor.parents[1]
                return f" by {(process / 'comm').read_text().strip()} (pid {process.name})"
    return ""


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    remedy = "use a form like :9843, 127.0.0.1:9843 or [::1]:9843"
    if set("/@") & set(address):
        # It may contain a password.
        raise ConfigurationError(f"{_FLAG}: the value is not HOST:PORT; {remedy}")
    if not colon:
        raise ConfigurationError(f"{_FLAG}: {one_line(repr(address))} is not HOST:PORT; {remedy}")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if ":" in host and bare == host:
        raise ConfigurationError(f"{_FLAG}: an IPv6 address needs brackets; {remedy}")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ConfigurationError(
            f"{_FLAG}: the port, {one_line(repr(port))}, is not a number from 0 to 65535; {remedy}"
        )
    return bare, int(port)


def _bind(host: str, port: int) -> socket.socket:
    if host not in ("", "::"):
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, bound = min(addresses, key=lambda address: address[0] != socket.AF_INET)
        return socket.create_server(bound, family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        except OSError as error:
            # Raised if IPv6 is supported but disabled.
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                raise
    return socket.create_server(("", port), backlog=BACKLOG)
