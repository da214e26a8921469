"""Requests and answers, TLS, and the stop."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from exporter.serving.addresses import listen
from exporter.serving.http import HangUpError, Request, Response
from exporter.serving.server import MAX_BYTES, Server
from tests.end_to_end.program import eventually
from tests.serving.support import GET, Gate, answer, ask, connect, echo, is_closed, serving

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
LAST = GET[:-2] + b"Connection: close\r\n\r\n"
# More than the kernel takes in.
LARGE = b"#" * 2**24


def test_bodies_are_bounded() -> None:
    """16 KiB pass, a byte more is answered 413; half of one, even after 100 Continue, is not a request."""
    seen: list[tuple[str, int]] = []

    def noted(request: Request) -> Response:
        seen.append((request.client, len(request.body)))
        return echo(request)

    with serving(noted) as server:
        with connect(server) as peer:
            peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
            assert peer.recv(1000).startswith(b"HTTP/1.1 100 ")
            peer.sendall(b"ab")
        assert ask(server, "POST", b"x" * MAX_BYTES) == (200, b"POST 16384")
        assert ask(server, "POST", b"x" * (MAX_BYTES + 1))[0] == 413
        assert ask(server, "POST", iter([b"x" * 10_000] * 2))[0] == 413
        assert ask(server, "POST", iter([b"x" * 10_000, b"x"])) == (200, b"POST 10001")
    assert seen == [("127.0.0.1", MAX_BYTES), ("127.0.0.1", 10_001)]


def test_a_refused_client_that_goes_on_sending_reads_why() -> None:
    """The connection is not reset before the client has the response."""
    with serving() as server, connect(server) as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert peer.recv(1) == b"H"
        peer.sendall(bytes(1_000_000))
        assert peer.recv(1000).startswith(b"TTP/1.1 413 ")
        assert peer.recv(1000) == b""


@pytest.mark.parametrize(("error", "logged"), [(ZeroDivisionError, 1), (HangUpError, 0)])
def test_a_failing_application(caplog: pytest.LogCaptureFixture, error: type[Exception], logged: int) -> None:
    """The client gets 500, and the log has the reason; an application may also hang up, without a word."""

    def failing(_: Request) -> Response:
        raise error

    with serving(failing) as server, connect(server) as peer:
        peer.sendall(LAST)
        assert peer.recv(1000)[:12] == (b"HTTP/1.1 500" if logged else b"")
    assert caplog.text.count(f"{error.__name__}\n") == logged == len(caplog.records)


def test_the_stop_is_quick_and_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Silent, idle and half-sent connections do not hold it up, nor does an answer that does not come."""
    before = threading.active_count()
    gate = Gate()
    server = Server(gate, listen("127.0.0.1:0"))
    server.start()
    with ExitStack() as stack:
        peers = [stack.enter_context(connect(server)) for _ in range(3)]
        peers[1].sendall(GET[:9])
        peers[2].sendall(GET)
        assert gate.entered.acquire(timeout=30)
        server.stop(0.5)
        assert all(is_closed(peer) for peer in peers)
    gate.open.set()
    server.stop(2.0)
    # A thread that has closed its connection has yet to end.
    eventually(lambda: threading.active_count() <= before)
    assert caplog.messages == []
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_an_answer_under_way_is_finished_before_the_stop() -> None:
    """It gets most of the time that the stop may take, and no more requests follow on its connection."""
    gate = Gate()
    server = Server(gate, listen("127.0.0.1:0"))
    server.start()
    with connect(server) as peer:
        peer.sendall(GET)
        assert gate.entered.acquire(timeout=30)
        stopping = threading.Thread(target=server.stop, args=(60,))
        stopping.start()
        gate.open.set()
        assert answer(peer)
        assert is_closed(peer)
        stopping.join(30)
    assert not stopping.is_alive()


def large(_: Request) -> Response:
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
    found = bytearray()
    while part := peer.recv(65536):
        found += part
    return bytes(found)


@pytest.mark.parametrize("secure", [False, True])
def test_a_client_that_ends_its_side_gets_its_answer(tls: Contexts, secure: bool) -> None:
    """As ``nc -N`` does, over TLS with its own ending and without."""
    gate = Gate()
    with serving(gate, tls=(lambda: tls[0]) if secure else None) as server, ExitStack() as stack:
        peer = stack.enter_context(connect(server))
        if secure:
            peer = stack.enter_context(tls[1].wrap_socket(peer, server_hostname="127.0.0.1"))
        peer.sendall(GET)
        assert gate.entered.acquire(timeout=30)
        socket.socket.shutdown(peer, socket.SHUT_WR)
        gate.open.set()
        assert answer(peer).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("sent", "status", "count"),
    [
        (GET * 300 + LAST, b"200", 301),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n", b"413", 1),
    ],
)
def test_all_answers_arrive_whole(tls: Contexts, sent: bytes, status: bytes, count: int) -> None:
    """Those to requests sent at once, and refusals; then the connection is closed in good order."""
    with serving(tls=lambda: tls[0]) as server, connected(server, tls[1]) as peer:
        peer.sendall(sent)
        assert read_all(peer).count(b"HTTP/1.1 " + status) == count


def test_a_large_answer_that_is_read_slowly_arrives_whole(tls: Contexts) -> None:
    """Closing the connection afterwards loses none of what is still on its way."""
    with serving(large, tls=lambda: tls[0]) as server, connected(server, tls[1]) as peer:
        peer.sendall(LAST)
        assert read_all(peer).count(b"#") == len(LARGE)
