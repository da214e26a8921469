"""Connections with TLS, from the first byte to the last."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from exporter.serving import Request, Response, Server
from tests.serving.support import GET, serving

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
LAST = GET[:-2] + b"Connection: close\r\n\r\n"
# More than the kernel takes in.
LARGE = b"#" * 2**24


async def large(_: Request) -> Response:
    """Answer with 16 MiB."""
    return Response(LARGE)


@contextmanager
def connected(server: Server, client: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """Connect with TLS; a connection that ends without saying so is an error."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain,
        client.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as secure,
    ):
        yield secure


def read_all(peer: ssl.SSLSocket) -> bytes:
    """Read until the end of the connection."""
    found = bytearray()
    while part := peer.recv(65536):
        found += part
    return bytes(found)


def test_requests_sent_at_once_are_all_answered(tls: Contexts) -> None:
    """One by one, and then the connection is closed in good order."""
    with serving(tls=lambda: tls[0]) as server, connected(server, tls[1]) as peer:
        peer.sendall(GET * 300 + LAST)
        assert read_all(peer).count(b"HTTP/1.1 200 OK\r\n") == 301


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n", b"413"),
        (b"nonsense\r\n\r\n", b"400"),
    ],
)
def test_a_refusal_arrives_whole(tls: Contexts, request_head: bytes, status: bytes) -> None:
    """The answer comes at once, and the connection is closed in good order."""
    with serving(tls=lambda: tls[0]) as server, connected(server, tls[1]) as peer:
        peer.sendall(request_head)
        assert read_all(peer).startswith(b"HTTP/1.1 " + status)


def test_a_large_answer_that_is_read_slowly_arrives_whole(tls: Contexts) -> None:
    """Closing the connection afterwards loses none of what is still on its way."""
    with serving(large, tls=lambda: tls[0]) as server, connected(server, tls[1]) as peer:
        peer.sendall(LAST)
        assert read_all(peer).count(b"#") == len(LARGE)
