"""The client of IMDS against servers on real sockets that are silent, slow, endless or malformed."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.errors import ImdsError, PollOutcome
from exporter.transport import BODY_LIMIT
from tests.http_server import (
    Connection,
    HttpServer,
    Request,
    Respond,
    answer,
    dripping,
    endless,
    serving,
    then_hang_up,
)
from tests.imds.test_client import DOCUMENT, asking, failure

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = OK + b"Content-Length: 5000\r\n\r\n"


def refusing(status: str) -> Respond:
    """Answer with this status and a body that comes byte by byte."""
    return dripping(f"HTTP/1.1 {status}\r\nLocation: /\r\nContent-Length: 5000\r\n\r\n".encode(), b"x" * 5000)


def silent(connection: Connection, _: Request) -> None:
    connection.stopping.wait(30)


def ask(server: HttpServer | str, timeout: float = 5.0, method: str = "GET") -> ImdsError:
    with asking(server, timeout=timeout, first_timeout=timeout) as client:
        return failure(client.fetch if method == "GET" else lambda: client.approve("a"))


TIMEOUT, HTTP_ERROR = PollOutcome.TIMEOUT, PollOutcome.HTTP_ERROR


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        pytest.param(silent, TIMEOUT, id="silence"),
        pytest.param(dripping(LONG, b"x" * 5000), TIMEOUT, id="body"),
        pytest.param(dripping(b"", OK * 1000), TIMEOUT, id="status line"),
        pytest.param(dripping(OK, b"X: y\r\n" * 1000), TIMEOUT, id="headers"),
        pytest.param(dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), TIMEOUT, id="announcements"),
        pytest.param(refusing("500 Oops"), HTTP_ERROR, id="refusal"),
        pytest.param(endless(b"HTTP/1.1 302 Found\r\n\r\n", bytes(64)), HTTP_ERROR, id="endless redirect"),
        pytest.param(refusing("429 Slow down"), PollOutcome.THROTTLED, id="throttle"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_slow_servers(respond: Respond, reason: PollOutcome, method: str) -> None:
    """However little at a time a server sends, the caller is back at the timeout; a refusal stays one."""
    sent = threading.Event()

    def noted(connection: Connection, request: Request) -> None:
        respond(connection, request)
        sent.set()

    with serving(noted) as server:
        error = ask(server, timeout=0.4, method=method)
        assert reason is TIMEOUT or not sent.is_set()
    assert error.reason is reason
    if reason is TIMEOUT:
        assert str(error) == f"{method} {server.url}/metadata/scheduledevents: no answer within 0.4 s"


def test_first_answer() -> None:
    """The longer timeout holds until the first success, or until it is known that IMDS answers."""
    ready: list[bool] = []

    def respond(connection: Connection, _: Request) -> None:
        if len(server.requests) == 1:
            connection.send(answer(b"", "500 Oops"))
        elif len(server.requests) == 2:
            ready.append(connection.stopping.wait(0.8))
            connection.send(answer(DOCUMENT))
        else:
            connection.stopping.wait(30)

    with serving(respond) as server:
        with asking(server, timeout=0.3, first_timeout=30) as client:
            failure(client.fetch)
            assert client.fetch() == DOCUMENT
            errors = [failure(client.fetch), failure(client.instance)]
        # As after a reload.
        with asking(server, timeout=0.3, first_timeout=30) as client:
            assert client.longest_poll == 2 * (30 + 0.3) + 60
            client.expect_answers()
            errors.append(failure(client.fetch))
    assert ([error.reason for error in errors], ready) == ([PollOutcome.TIMEOUT] * 3, [False])
    assert all("0.3 s" in str(error) for error in errors)


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_usual_ports(monkeypatch: pytest.MonkeyPatch, scheme: str, port: int) -> None:
    """A URL without a port means that of its scheme; connecting takes 10 s at most."""
    asked: list[tuple[tuple[str, int], float]] = []
    monkeypatch.setattr(socket, "create_connection", lambda *given: asked.append(given))
    assert ask(f"{scheme}://imds.test", timeout=60).reason is PollOutcome.CONNECTION_ERROR
    assert asked == [(("imds.test", port), 10.0)]


def test_unanswered_connect() -> None:
    """A connection that is not taken up ends with the timeout."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        # A full backlog drops what comes next, as a firewall does.
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
        error = ask(f"http://127.0.0.1:{address[1]}", timeout=0.4)
    assert error.reason is PollOutcome.TIMEOUT


@pytest.mark.parametrize(
    "url", ["http://a..b", "http://[::1", "http://\udcff", "http://host.invalid", "ftp://a"]
)
def test_impossible_endpoint(url: str) -> None:
    """An invalid address is a connection that fails."""
    error = ask(url)
    assert (error.reason, error.status) == (PollOutcome.CONNECTION_ERROR, 0)


@pytest.mark.parametrize(
    "respond",
    [
        pytest.param(endless(OK + b"Content-Length: 900000000000\r\n\r\n", b"x"), id="length"),
        pytest.param(endless(CHUNKED, b"100\r\n" + b"x" * 256 + b"\r\n"), id="small chunks"),
        pytest.param(endless(OK + b"\r\n", b"x"), id="no length"),
        pytest.param(lambda c, _: c.send(answer(b"x" * (BODY_LIMIT + 1))), id="a byte over"),
    ],
)
def test_endless_body(respond: Respond) -> None:
    """An answer over 1 MiB is refused while it comes; one of 1 MiB is taken."""
    with serving(respond) as server:
        error = ask(server, timeout=20)
    with serving(answer(b"x" * BODY_LIMIT)) as server, asking(server, timeout=20) as client:
        assert len(client.fetch()) == BODY_LIMIT
    assert error.reason is PollOutcome.INVALID_DOCUMENT
    assert str(error).endswith(": the answer is over 1 MiB")


@pytest.mark.parametrize(
    "respond",
    [
        pytest.param(endless(OK, b"X: y\r\n"), id="headers"),
        pytest.param(endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), id="announcements"),
        pytest.param(endless(CHUNKED + b"0\r\n", b"X: y\r\n"), id="trailers"),
        pytest.param(
            then_hang_up(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 11 + answer(DOCUMENT)), id="more announcements"
        ),
        pytest.param(then_hang_up(b""), id="nothing"),
        pytest.param(then_hang_up(b"SSH-2.0-OpenSSH_9.2\r\n"), id="another protocol"),
        pytest.param(then_hang_up(LONG + b"hello"), id="truncated"),
        pytest.param(then_hang_up(CHUNKED + b"5\r\nhello\r\n"), id="no last chunk"),
        pytest.param(then_hang_up(CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n"), id="negative chunk length"),
    ],
)
def test_garbled_answers(respond: Respond) -> None:
    """An incomplete or malformed answer is a connection error, in one printable line."""
    with serving(respond) as server:
        error = ask(server, timeout=20)
    assert error.reason is PollOutcome.CONNECTION_ERROR
    assert str(error).isprintable()
    assert " object at 0x" not in str(error)
    assert len(str(error)) < 300


FRAGMENTS = st.sampled_from(
    b"HTTP/1.1 200 OK|HTTP/1.1 302 Found|HTTP/1.0 204|HTTP/1.1 100 Continue\r\n|HTTP/1.1 |200| |:|\n|\r|\0|"
    b"Content-Length: |Content-Length: 5\r\n|Transfer-Encoding: chunked|Content-Type: a; charset=|"
    b"Location: //[|Content-Encoding: gzip|Set-Cookie: a=b; expires=x|Connection: close|-1|0|5\r\nhello|ffff|"
    b'9999999999999999|\r\n\r\n|{"compute": {"name": 1}}|{"compute": '.split(b"|")
)


@settings(max_examples=150)
@given(st.lists(FRAGMENTS | st.just(b"\r\n") | st.binary(max_size=20), max_size=15))
def test_any_answer(pieces: list[bytes]) -> None:
    """Whatever bytes come back, each method returns a value or raises ImdsError."""
    with serving(then_hang_up(b"".join(pieces))) as server, asking(server) as client:
        calls: list[Callable[[], object]] = [client.fetch, client.instance, lambda: client.approve("a")]
        for call in calls:
            with contextlib.suppress(ImdsError):
                call()


def tls(authority: trustme.CA) -> Callable[[socket.socket], socket.socket]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return lambda sock: context.wrap_socket(sock, server_side=True)


def test_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TLS has the same one deadline, from the handshake on, and an untrusted certificate is refused."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        assert ask(url, timeout=0.4).reason is TIMEOUT
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def respond(connection: Connection, _: Request) -> None:
        if len(server.requests) < 2:
            connection.send(answer(DOCUMENT))
        else:
            connection.send(LONG)
            connection.drip(b"x" * 5000)

    with serving(respond, tls(authority)) as server:
        url = server.url.replace("http:", "https:")
        error = ask(url)
        assert error.reason is PollOutcome.CONNECTION_ERROR
        assert "certificate verify failed" in str(error)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        with asking(url, timeout=0.5) as client:
            assert client.fetch() == DOCUMENT
            assert failure(client.fetch).reason is PollOutcome.TIMEOUT
