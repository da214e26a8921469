"""Peers that take all they can get of the web server: its connections, its patience, its memory."""

import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from exporter.serving import server as serving_module
from exporter.serving.http import Request, Response
from exporter.serving.server import Server
from tests.end_to_end.program import eventually, resident
from tests.serving.support import GET, HELLO, answer, ask, connect, is_closed, serving

LARGE = b"#" * 2**20
LAST = GET[:-2] + b"Connection: close\r\n\r\n"
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


def large(_: Request) -> Response:
    """Answer with a mebibyte."""
    return Response(LARGE)


def deaf(
    server: Server, source: str = "", client: ssl.SSLContext | None = None, requests: bytes = GET * 50
) -> socket.socket:
    """Open a connection that asks many times, and reads no more than the first byte."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.bind((source, 0))
    peer.settimeout(30)
    peer.connect(("127.0.0.1", server.port))
    if client:
        peer = client.wrap_socket(peer, server_hostname="127.0.0.1")
    peer.sendall(requests)
    assert peer.recv(1) == b"H"
    return peer


def received(peer: socket.socket) -> int:
    """Read until the connection is closed; return the number of bytes."""
    count = 0
    with suppress(ConnectionError):
        while part := peer.recv(2**20):
            count += len(part)
    return count


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("secure", [False, True])
def test_who_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch, tls: Contexts, *, secure: bool) -> None:
    """Many requests and no reading: an answer that nobody takes does not hold its connection for good."""
    monkeypatch.setattr(serving_module, "_WRITE_SECONDS", 0.2)
    with serving(large, tls=(lambda: tls[0]) if secure else None) as server:
        files = descriptors()
        with deaf(server, client=tls[1] if secure else None) as peer:
            # Of the two ends, that of the server goes. Reading before that would be progress.
            eventually(lambda: descriptors() == files + 1)
            assert is_closed(peer)


def test_who_does_not_read_makes_room() -> None:
    """Where all connections are held so, a scrape is served, as their answers wait for the peer alone."""
    with serving(large, max_connections=5) as server, ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(deaf(server))
        for _ in range(5):
            assert ask(server, connection="close") == (200, LARGE)


def test_large_bodies_for_slow_readers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit, of the address with the most the longest wait is ended, but none that is trusted."""
    size = 2**24  # more than the kernel takes in
    monkeypatch.setattr(serving_module, "_MOST_BODY_BYTES", 3 * size)

    def renewed(request: Request) -> Response:
        return Response(bytes(size), authenticated=request.header(b"host") == "trusted")

    with serving(renewed) as server, ExitStack() as stack:

        def begin(source: str = "", host: bytes = b"x") -> socket.socket:
            peer = deaf(server, source, requests=LAST.replace(b"x", host))
            return stack.enter_context(peer)

        trusted, elsewhere = begin(host=b"trusted"), begin("127.0.0.2")
        *ended, last = (begin() for _ in range(3))
        assert [received(peer) > size for peer in ended] == [False, False]
        assert [received(peer) > size for peer in (trusted, elsewhere, last)] == [True, True, True]


def test_a_flood_of_half_open_handshakes(tls: Contexts) -> None:
    """They take 32 MiB at most; scrapes are served meanwhile, and a handshake from elsewhere continues."""
    mine, theirs = tls
    with serving(tls=lambda: mine, request_timeout=600) as server, ExitStack() as stack:

        def begin() -> ssl.SSLSocket:
            peer = theirs.wrap_socket(
                connect(server), server_hostname="127.0.0.1", do_handshake_on_connect=False
            )
            return stack.enter_context(peer)

        def scrape(peer: ssl.SSLSocket) -> None:
            peer.settimeout(30)
            peer.do_handshake()
            peer.sendall(GET)
            assert answer(peer)

        scrape(begin())
        early = begin()
        early.setblocking(False)
        with suppress(ssl.SSLWantReadError):
            early.do_handshake()
        before, flood = resident(), []
        for number in range(300):
            source, there = ("127.0.0.2", 0), ("127.0.0.1", server.port)
            flood.append(stack.enter_context(socket.create_connection(there, 30, source)))
            with suppress(OSError):
                flood[-1].sendall(HELLO)
            if number % 50 == 49:
                scrape(begin())
        assert all(is_closed(peer) for peer in flood[:-128])
        assert resident() - before < 32
        scrape(early)
