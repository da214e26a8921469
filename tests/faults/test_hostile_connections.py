"""Peers that take all they can get of the web server: its connections, its patience, its memory."""

import socket
import threading
from contextlib import ExitStack

import pytest

from exporter.serving import Request, Response, Server
from exporter.serving import server as serving_module
from tests.end_to_end.program import eventually
from tests.serving.support import GET, is_closed, serving

LARGE = b"#" * 2**20


async def large(_: Request) -> Response:
    """Answer with a mebibyte."""
    return Response(LARGE)


def deaf(server: Server, requests: int = 50) -> socket.socket:
    """Open a connection that asks many times, and reads no more than the first byte."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.settimeout(30)
    peer.connect(("127.0.0.1", server.port))
    peer.sendall(GET * requests)
    assert peer.recv(1) == b"H"
    return peer


def read_all(server: Server) -> int:
    """Ask once, and return the length of the answer's body."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as peer:
        peer.sendall(GET[:-2] + b"Connection: close\r\n\r\n")
        answer = b""
        while part := peer.recv(2**20):
            answer += part
    return len(answer.partition(b"\r\n\r\n")[2])


def test_who_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many requests and no reading: an answer that nobody takes does not hold its connection for good."""
    with serving(large) as server:
        with monkeypatch.context() as patch:
            patch.setattr(serving_module, "_WRITE_SECONDS", 0.2)
            with deaf(server) as peer:
                # Reading before that would be progress.
                eventually(lambda: not server._tasks)
                assert is_closed(peer)
        assert read_all(server) == len(LARGE)


def test_who_does_not_read_makes_room() -> None:
    """Where all connections are held so, a scrape is served, as their answers wait for the peer alone."""
    with serving(large, max_connections=5) as server, ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(deaf(server))
        for _ in range(5):
            assert read_all(server) == len(LARGE)


def test_a_stop_waits_for_who_is_reading() -> None:
    """An answer that is being read when the server stops, more than the kernel takes in, arrives whole."""
    size = 16 * len(LARGE)

    async def huge(_: Request) -> Response:
        return Response(LARGE * 16)

    with serving(huge) as server, deaf(server, 1) as peer:
        stopping = threading.Thread(target=server.stop, args=(10,))
        stopping.start()
        taken = 0
        while part := peer.recv(65536):
            taken += part.count(b"#")
        stopping.join()
    assert taken == size


def test_who_reads_slowly_gets_it_all() -> None:
    """A large answer that is read in pieces arrives whole, and the connection can be used again."""
    with serving(large) as server, deaf(server, 2) as peer:
        taken = 0
        while taken < 2 * len(LARGE):
            part = peer.recv(65536)
            assert part
            taken += part.count(b"#")
        peer.sendall(GET)
        assert peer.recv(100).startswith(b"HTTP/1.1 200")
