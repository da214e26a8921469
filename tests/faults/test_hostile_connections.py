"""Peers that take all they can get of the web server: its connections, its patience, its memory."""

import socket
import ssl
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from exporter.serving import server as serving_module
from exporter.serving.http import Request, Response
from exporter.serving.server import Server
from tests.end_to_end.program import eventually, resident
from tests.faults.attackers import HELLO
from tests.serving.support import GET, answer, ask, connect, is_closed, serving

LARGE = b"#" * 2**20
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


async def large(_: Request) -> Response:
    """Answer with a mebibyte."""
    return Response(LARGE)


def deaf(server: Server, client: ssl.SSLContext | None = None) -> socket.socket:
    """Open a connection that asks many times, and reads no more than the first byte."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.settimeout(30)
    peer.connect(("127.0.0.1", server.port))
    if client:
        peer = client.wrap_socket(peer, server_hostname="127.0.0.1")
    peer.sendall(GET * 50)
    assert peer.recv(1) == b"H"
    return peer


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("secure", [False, True])
def test_who_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch, tls: Contexts, *, secure: bool) -> None:
    """Many requests and no reading: an answer that nobody takes does not hold its connection for good."""
    monkeypatch.setattr(serving_module, "_WRITE_SECONDS", 0.2)
    with serving(large, tls=(lambda: tls[0]) if secure else None) as server:
        files = descriptors()
        with deaf(server, tls[1] if secure else None) as peer:
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


def test_a_flood_of_half_open_handshakes(tls: Contexts) -> None:
    """32 are in progress and take 24 MiB at most; probes are answered, and others' handshakes continue."""
    mine, theirs = tls
    with serving(tls=lambda: mine, max_connections=400) as server, ExitStack() as stack:

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
                begun = time.monotonic()
                scrape(begin())
                assert time.monotonic() - begun < 2
        assert all(is_closed(peer) for peer in flood[:-32])
        assert resident() - before < 24
        scrape(early)
