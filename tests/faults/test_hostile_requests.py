"""Requests that no browser sends."""

import pytest

from tests.serving.support import GET, connect, is_closed, serving

SMUGGLED = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"


@pytest.mark.parametrize("request_", [SMUGGLED, SMUGGLED.replace(b"POST", b"GET")])
def test_a_body_of_two_lengths_is_refused(request_: bytes) -> None:
    """What a proxy may take for one request is not taken for two."""
    with serving() as server, connect(server) as peer:
        peer.sendall(request_ + GET)
        assert peer.recv(1000).startswith(b"HTTP/1.1 400 ")
        assert is_closed(peer)
