"""Who is waited for, for how long, and who has to go where room is short."""

import socket
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from exporter.serving.http import Request, Response
from tests.end_to_end.program import eventually
from tests.serving.support import GET, Gate, answer, ask, connect, echo, is_closed, serving


@pytest.mark.parametrize(
    "start", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab", GET + GET[:9]]
)
def test_a_request_that_is_never_complete_is_cut(start: bytes) -> None:
    """Silence, half a head, half a body, also behind a complete request: the connection is closed."""
    with serving(request_timeout=0.2, idle_timeout=120) as server, connect(server) as peer:
        peer.sendall(start)
        assert is_closed(peer)


@pytest.mark.parametrize("first", [b"", GET])
def test_a_drip_is_cut(first: bytes) -> None:
    """A byte now and then does not renew the patience, neither at first nor after a request."""
    with serving(request_timeout=0.3) as server, connect(server) as peer:
        peer.sendall(first)
        if first:
            answer(peer)
        peer.settimeout(0.02)

        def closed() -> bool:
            try:
                peer.send(b"G")
                return peer.recv(100) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        eventually(closed, every=0)


def test_a_connection_may_rest_between_requests() -> None:
    """Longer than a request may take, as may the application, and until the idle timeout."""
    gate = Gate()
    with serving(gate, request_timeout=0.3) as server, connect(server) as peer:

        def wait_longer_than_a_request_may_take() -> None:
            with connect(server) as silent:
                assert is_closed(silent)

        peer.sendall(GET)
        assert gate.entered.acquire(timeout=30)
        wait_longer_than_a_request_may_take()
        gate.open.set()
        assert answer(peer)
        wait_longer_than_a_request_may_take()
        peer.sendall(GET)
        assert answer(peer)
    with serving(idle_timeout=0.2) as server, connect(server) as peer:
        peer.sendall(GET)
        assert answer(peer)
        assert is_closed(peer)


def test_a_scrape_among_silent_connections() -> None:
    """Six hundred, far more than the limit, do not block others; those idle the longest are closed."""
    with serving(max_connections=50) as server, ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(600)]
        assert ask(server) == (200, b"GET 0")
        assert is_closed(silent[0])


def test_room_is_made_by_the_address_that_takes_the_most() -> None:
    """A client from elsewhere keeps its connection, although it has waited the longest."""
    with serving(max_connections=3) as server, ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        elsewhere = stack.enter_context(socket.create_connection(address, 30, ("127.0.0.2", 0)))
        many = [stack.enter_context(connect(server)) for _ in range(10)]
        for peer in many[:8]:
            assert is_closed(peer)
        elsewhere.sendall(GET)
        assert answer(elsewhere)


def test_room_is_made_by_those_that_rest() -> None:
    """With room for three, the two that are being answered stay, and the idle one goes."""
    gate = Gate()
    gate.open.set()
    with serving(gate, max_connections=3) as server, ExitStack() as stack:
        idle, *busy = (stack.enter_context(connect(server)) for _ in range(3))
        idle.sendall(GET)
        answer(idle)
        assert gate.entered.acquire(timeout=30)
        gate.open.clear()
        for peer in busy:
            peer.sendall(GET)
            assert gate.entered.acquire(timeout=30)
        newest = stack.enter_context(connect(server))
        newest.sendall(GET)
        assert is_closed(idle)
        assert gate.entered.acquire(timeout=30)
        refused = stack.enter_context(connect(server))
        assert is_closed(refused)
        gate.open.set()
        for peer in (*busy, newest):
            assert answer(peer)


def _gatekeeper(request: Request) -> Response:
    return replace(echo(request), authenticated=bool(request.header(b"authorization")))


def test_a_trusted_connection_never_makes_room() -> None:
    """It stays until its newest request is not trusted; where all are trusted, none is accepted."""
    trusted = GET[:-2] + b"Authorization: x\r\n\r\n"
    with serving(_gatekeeper, max_connections=3) as server, ExitStack() as stack:

        def flood() -> None:
            peers = [stack.enter_context(connect(server)) for _ in range(20)]
            assert all(is_closed(peer) for peer in peers[:-3])

        peer = stack.enter_context(connect(server))
        for request in (trusted, trusted, GET):
            peer.sendall(request)
            assert answer(peer)
            flood()
        assert is_closed(peer)
    with serving(_gatekeeper, max_connections=1) as server, connect(server) as peer:
        for _ in range(2):
            peer.sendall(trusted)
            assert answer(peer)
            with connect(server) as late:
                assert is_closed(late)
