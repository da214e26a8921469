"""Requests that no browser sends: each gets its answer or none, and the next client is served."""

import base64
import contextlib
import http.client
import logging
import socket
import ssl
from collections.abc import Iterator

import bcrypt
import pytest

from exporter.web.settings import WebSettings
from tests.serving.support import GET, connect, is_closed, serving
from tests.web import support
from tests.web.certificates import Pki

HOST = b"Host: x\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def get(target: bytes, *lines: bytes, method: bytes = b"GET", version: bytes = b"HTTP/1.1") -> bytes:
    """Write a request's head."""
    return b"%s %s %s\r\n%s%s" % (method, target, version, b"".join(lines), HOST)


PATHS = {
    "two slashes": (b"//metrics", 404),
    "a step back": (b"/-/../metrics", 404),
    "steps back, encoded": (b"/%2e%2e/%2e%2e/etc/passwd", 404),
    "a slash, encoded": (b"/-%2fhealthy", 200),
    "letters, encoded": (b"/%6detrics", 200),
    "NUL, encoded": (b"/metrics%00", 404),
    "NUL": (b"/metrics\0", 400),
    "no UTF-8, encoded": (b"/%ff%fe", 404),
    "UTF-8": ("/ä".encode(), 400),
    "a wrong code": (b"/%zz%u1234%", 404),
    "an absolute URI": (b"http://evil.example/metrics", 404),
    "a host alone": (b"evil.example:443", 404),
    "an asterisk": (b"*", 404),
    "a fragment": (b"/metrics#x", 404),
    "nothing": (b"", 400),
    "a query alone": (b"?x", 200),
    "a long one": (b"/" + b"a" * 15_000, 404),
    "too long": (b"/" + b"a" * 700_000, 431),
    "a secret's place": (b"/api/v1/events/../../../web.yml", 404),
    "a thousand names": (b"/metrics?" + b"name[]=a%00&" * 1000, 200),
}
HEADS = {
    "HTTP/1.0": (get(b"/-/healthy", version=b"HTTP/1.0"), 200),
    "HTTP/2's preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404),
    "no version": (b"GET /-/healthy\r\n\r\n", 400),
    "no host": (b"GET /-/healthy HTTP/1.1\r\n\r\n", 400),
    "two hosts": (get(b"/-/healthy", b"Host: y\r\n"), 400),
    "line feeds alone": (b"GET /-/healthy HTTP/1.1\nHost: x\n\n", 200),
    "empty lines first": (b"\r\n\r\n" + get(b"/"), 400),
    "a method of its own": (get(b"/metrics", method=b"BREW"), 405),
    "TRACE": (get(b"/", method=b"TRACE"), 405),
    "CONNECT": (get(b"x:1", method=b"CONNECT"), 404),
    "a long method": (get(b"/", method=b"A" * 5000), 405),
    "a method with brackets": (get(b"/", method=b"(G)"), 400),
    "99 headers and the host": (get(b"/-/healthy", b"X: y\r\n" * 99), 200),
    "one header more": (get(b"/-/healthy", b"X: y\r\n" * 100), 431),
    "30,000 headers": (get(b"/-/healthy", b"X: y\r\n" * 30_000), 431),
    "a header of 10 MB": (get(b"/", b"X: " + b"a" * 10**7 + b"\r\n"), 431),
    "a header without a colon": (get(b"/", b"nonsense\r\n"), 400),
    "NUL in a header": (get(b"/", b"X: a\0b\r\n"), 400),
    "a folded header": (get(b"/-/healthy", b"X: a\r\n b\r\n"), 200),
    "a body on GET": (get(b"/-/healthy", b"Content-Length: 5\r\n") + b"hello", 200),
    "chunks on GET": (get(b"/-/healthy", CHUNKED) + b"5;e=1\r\nhello\r\n0\r\n\r\n", 200),
    "16,000 chunks": (get(b"/", CHUNKED, method=b"POST") + b"1\r\nx\r\n" * 16_000 + b"0\r\n\r\n", 405),
    "17,000 chunks": (get(b"/", CHUNKED, method=b"POST") + b"1\r\nx\r\n" * 17_000 + b"0\r\n\r\n", 413),
    "a chunk below 0": (get(b"/", CHUNKED, method=b"POST") + b"-5\r\nhello", 400),
    "two lengths": (get(b"/", b"Content-Length: 3\r\nContent-Length: 4\r\n") + b"abcd", 400),
    "a length below 0": (get(b"/", b"Content-Length: -1\r\n"), 400),
    "a length of 20 digits": (get(b"/", b"Content-Length: " + b"9" * 20 + b"\r\n"), 413),
    "a length of 5,000 digits": (get(b"/", b"Content-Length: " + b"9" * 5000 + b"\r\n"), 400),
    "an unknown encoding": (get(b"/", b"Transfer-Encoding: gzip, chunked\r\n"), 400),
    "100-continue": (get(b"/", b"Expect: 100-continue\r\nContent-Length: 3\r\n", method=b"POST"), 100),
    "100-continue for 3 MB": (get(b"/", b"Expect: 100-continue\r\nContent-Length: 3000000\r\n"), 413),
    "another expectation": (get(b"/-/healthy", b"Expect: 200-ok\r\n"), 200),
    "an upgrade to WebSocket": (get(b"/", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"), 200),
    "an upgrade to HTTP/2": (get(b"/", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"), 200),
    "Accept of bytes": (get(b"/metrics", b"Accept: \xff;;q=x;version=\xfe\r\n"), 200),
    "Accept of 15 kB": (get(b"/metrics", b"Accept: " + b"a/b," * 3750 + b"\r\n"), 200),
    "TLS": (bytes.fromhex("16030100c8010000c40303") + bytes(180), 400),
    "a proxy's line": (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + get(b"/"), 400),
    "five megabytes without a line": (b"a" * 5_000_000, 431),
}
REQUESTS = {name: (get(target), status) for name, (target, status) in PATHS.items()} | HEADS


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Serve a site that may be reloaded."""
    with support.served(support.site(support.snapshot(), lifecycle_enabled=True)) as found:
        yield found


def status(port: int, sent: bytes) -> int:
    """Send bytes, and return the status of the first answer; 0 where the connection was cut without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        try:
            peer.sendall(sent)
            answer = peer.recv(100)
        except ConnectionError:
            return 0
    if not answer:
        return 0
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer.split()[1])


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request(name: str, port: int, caplog: pytest.LogCaptureFixture) -> None:
    """The response is as expected, without a log message, and the next client is served."""
    sent, expected = REQUESTS[name]
    found = status(port, sent)
    # Whoever sends more than is read may be cut before the answer has arrived.
    assert found == expected or (found == 0 and expected in {413, 431} and len(sent) > 16_384)
    assert status(port, get(b"/-/healthy")) == 200
    assert caplog.messages == []


@pytest.mark.parametrize("count", [3, 1000])
def test_a_pipeline(count: int, port: int) -> None:
    """Requests sent at once are answered one by one, all of them."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        peer.sendall(get(b"/-/healthy") * (count - 1) + get(b"/-/healthy", b"Connection: close\r\n"))
        answer = b""
        while part := peer.recv(2**20):
            answer += part
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == count


@pytest.mark.parametrize("method", [b"POST", b"GET"])
def test_a_body_of_two_lengths_is_refused(method: bytes) -> None:
    """What a proxy may treat as one request is not treated as two."""
    lengths = b"Content-Length: 3\r\n" + CHUNKED
    with serving() as server, connect(server) as peer:
        peer.sendall(get(b"/", lengths, method=method) + b"0\r\n\r\n" + GET)
        assert peer.recv(1000).startswith(b"HTTP/1.1 400 ")
        assert is_closed(peer)


CREDENTIALS = [b"", b"=", b"====", b"\xff\xfe" * 1000, b"a b c", b"QQ" * 7000]
CREDENTIALS += [
    base64.b64encode(text) for text in (b"alice", b"alice:", b":", b"\xff:\xff", b"alice:secret\0")
]
CREDENTIALS += [base64.b64encode(b"alice:" + b"s" * 11_000), base64.b64encode(b"\0" * 100)]


def test_credentials_of_garbage(caplog: pytest.LogCaptureFixture) -> None:
    """No malformed header grants access; the correct password does, before and after."""
    users = {"alice": bcrypt.hashpw(b"secret", bcrypt.gensalt(4))}
    site = support.site(support.snapshot(), settings=lambda: WebSettings(users=users))
    right = b"Authorization: Basic " + base64.b64encode(b"alice:secret") + b"\r\n"
    with support.served(site) as port:
        for scheme in (b"Basic ", b"Bearer ", b"basic", b"Digest ", b""):
            for given in CREDENTIALS:
                assert status(port, get(b"/metrics", b"Authorization: " + scheme + given + b"\r\n")) == 401
        assert status(port, get(b"/metrics", right)) == 200
        # Two headers are one value with a comma, and so no base64.
        assert status(port, get(b"/metrics", right, right)) == 401
    assert caplog.messages == []


HELLO = bytes.fromhex("16030100c8010000c40303")
HANDSHAKES = [
    b"",
    b"\0",
    b"\x16",
    HELLO,
    HELLO + bytes(189),
    HELLO + b"\xff" * 189,
    b"\x16\x03\x01\xff\xff" + b"a" * 65535,
]
HANDSHAKES += [
    b"\x80\x2e\x01\x00\x02",
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"\x17\x03\x03\x00\x05hello",
    GET,
    b"\r\n" * 50_000,
]


def test_tls_of_garbage(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    """No handshake that goes wrong or ends early is a word in the log, and a good one works after."""
    mine = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    mine.load_cert_chain(pki.folder / "cert.pem", pki.folder / "key.pem")
    theirs = ssl.create_default_context(cafile=str(pki.folder / "ca.pem"))
    with support.served(support.site(support.snapshot()), lambda: mine) as port:
        for sent in HANDSHAKES:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
                # The server may have cut the connection by then.
                with contextlib.suppress(OSError):
                    peer.sendall(sent)
                    peer.shutdown(socket.SHUT_WR)
                assert is_closed(peer)
        strangers = ssl.create_default_context()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as peer, pytest.raises(ssl.SSLError):
            strangers.wrap_socket(peer, server_hostname="127.0.0.1")
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=theirs)
        connection.request("GET", "/-/healthy")
        assert connection.getresponse().status == 200
        connection.close()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
