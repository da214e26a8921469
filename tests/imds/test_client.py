"""The client of IMDS against well-behaved servers on real sockets; `test_client_hostile` has the others."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.clock import SystemClock
from exporter.errors import ImdsError, PollOutcome
from exporter.imds import ImdsClient, RateLimiter
from exporter.model.vm import VirtualMachine
from tests.clocks import HandClock
from tests.http_server import Connection, HttpServer, Request, answer, serving

DOCUMENT = b'{"DocumentIncarnation": 2, "Events": []}'


def make_client(server: HttpServer | str, *, timeout: float = 5.0, first_timeout: float = 5.0) -> ImdsClient:
    """Return a client without a rate limit."""
    clock = HandClock()
    limiter = RateLimiter(clock, clock.pass_seconds)
    url = server if isinstance(server, str) else server.url
    return ImdsClient(url, timeout=timeout, first_timeout=first_timeout, clock=clock, limiter=limiter)


def failure(call: Callable[[], object]) -> ImdsError:
    """Return a copy of the error that a call ends with."""
    try:
        call()
    except ImdsError as error:
        # The original holds on to frames and so, in a cycle with the test's own, to urllib3's open socket.
        return ImdsError(error.reason, str(error))
    pytest.fail("no error")


def test_fetch() -> None:
    """A fetch returns the body unchanged, and its request is as Azure requires."""
    with serving(answer(DOCUMENT)) as server:
        client = ImdsClient(server.url + "/", api_version="2019-08-01", clock=SystemClock())
        assert client.fetch() == DOCUMENT
        client.close()
    [request] = server.requests
    assert (request.method, request.path) == ("GET", "/metadata/scheduledevents?api-version=2019-08-01")
    assert request.headers["metadata"] == "true"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert client.endpoint == server.url


def test_keep_alive() -> None:
    """One connection serves one request after the other, refused ones included."""
    replies = [answer(DOCUMENT), answer(b"busy", "429 Too Many Requests"), answer(b"{}", "500 Oops")]
    with serving(lambda c, _: c.send(replies[len(server.requests) % 3])) as server:
        client = make_client(server)
        for _ in range(4):
            failure(client.fetch)
            failure(client.fetch)
            client.fetch()
        client.close()
    assert (server.connections, len(server.requests)) == (1, 12)


def test_chunked_body() -> None:
    """A body in chunks is put together."""
    chunks = b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in (DOCUMENT[:7], DOCUMENT[7:]))
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(head + chunks + b"0\r\nTrailer: x\r\n\r\n") as server:
        client = make_client(server)
        assert [client.fetch(), client.fetch()] == [DOCUMENT, DOCUMENT]
        client.close()
    assert server.connections == 1


@pytest.mark.parametrize("head", ["HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"])
def test_body_up_to_the_end_of_the_connection(head: str) -> None:
    """A body without a length ends with the connection; the next fetch opens another."""

    def respond(connection: Connection, _: Request) -> None:
        connection.send(head.encode() + DOCUMENT)
        connection.hang_up()

    with serving(respond) as server:
        client = make_client(server)
        assert [client.fetch(), client.fetch()] == [DOCUMENT, DOCUMENT]
        client.close()


def test_connection_closed_between_polls() -> None:
    """A server that drops idle connections does not make the next poll fail."""
    closed = threading.Event()

    def respond(connection: Connection, _: Request) -> None:
        connection.send(answer(DOCUMENT))
        connection.hang_up()
        closed.set()

    with serving(respond) as server:
        client = make_client(server)
        for _ in range(3):
            closed.clear()
            assert client.fetch() == DOCUMENT
            assert closed.wait(30)
        client.close()


def test_approve() -> None:
    """An approval posts all ids in one request."""
    with serving(answer()) as server:
        client = make_client(server)
        client.approve(["C7061BAC-AFDC-4513-B24B-AA5F13A16123", 'odd "id"'])
        client.close()
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/metadata/scheduledevents?api-version=2020-07-01")
    assert request.headers["metadata"] == "true"
    assert request.headers["content-type"] == "application/json"
    ids = ["C7061BAC-AFDC-4513-B24B-AA5F13A16123", 'odd "id"']
    assert json.loads(request.body) == {"StartRequests": [{"EventId": event_id} for event_id in ids]}


def test_instance() -> None:
    """The facts about this VM are those of the document, and nothing is made of one that is none."""
    bodies = iter([b'{"compute": {"name": "web_3"}}', b"<html>"])
    with serving(lambda c, _: c.send(answer(next(bodies)))) as server:
        client = make_client(server)
        assert client.instance() == VirtualMachine(name="web_3")
        error = failure(client.instance)
        client.close()
    assert error.reason is PollOutcome.INVALID_DOCUMENT
    assert server.requests[0].path == "/metadata/instance?api-version=2021-12-13"
    assert server.requests[0].headers["metadata"] == "true"


@pytest.mark.parametrize("call", ["fetch", "approve", "instance"])
@pytest.mark.parametrize("status", [201, 204, 400, 404, 405, 410, 429, 500, 503])
def test_refusals(call: str, status: int) -> None:
    """Any status but 200 is a failure that names it, and only 429 is a throttle."""
    with serving(answer(b"" if status == 204 else b"why", f"{status} Any")) as server:
        client = make_client(server)
        error = failure(
            {"fetch": client.fetch, "approve": lambda: client.approve(["a"]), "instance": client.instance}[
                call
            ]
        )
        client.close()
    assert error.reason is (PollOutcome.THROTTLED if status == 429 else PollOutcome.HTTP_ERROR)
    assert f": status {status}" in str(error)


def test_refusal_in_words() -> None:
    """The message has the start of what the server said, on one line, without control characters."""
    body = b'{"error":\r\n\t"\x1b[31mnot\x00 now\xff\xe2\x80\xae"}' + b"x" * 10_000
    with serving(answer(body, "500 Oops")) as server:
        client = make_client(server)
        error = failure(client.fetch)
        client.close()
    message = str(error)
    start = f'GET {server.url}/metadata/scheduledevents: status 500: {{"error": " [31mnot now\ufffd "}}xxx'
    assert message.startswith(start)
    assert message.isprintable()
    assert len(message) < 250


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects(status: int) -> None:
    """A redirect is a failure, and is not followed, for reading and approving alike."""
    with serving(answer(DOCUMENT)) as other:
        location = f"Location: {other.url}/metadata/scheduledevents\r\n"
        with serving(answer(b"", f"{status} Gone", location)) as server:
            client = make_client(server)
            errors = [failure(client.fetch), failure(lambda: client.approve(["a"]))]
            client.close()
    assert [error.reason for error in errors] == [PollOutcome.HTTP_ERROR] * 2
    assert (len(server.requests), len(other.requests)) == (2, 0)


def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Proxies and credentials in the environment are for others."""
    with serving(answer(b"", "502 Proxy")) as proxy, serving(answer(DOCUMENT)) as server:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        client = make_client(server)
        assert client.fetch() == DOCUMENT
        client.approve(["a"])
        client.close()
    assert proxy.connections == 0
    assert all("authorization" not in request.headers for request in server.requests)


def test_cookies() -> None:
    """A cookie is neither kept nor sent back."""
    with serving(answer(DOCUMENT, headers="Set-Cookie: a=b; Path=/\r\n")) as server:
        client = make_client(server)
        client.fetch()
        client.fetch()
        client.close()
    assert "cookie" not in server.requests[1].headers


def test_slow_fetch_does_not_hold_up_an_approval() -> None:
    """While one thread waits for a document, another can approve."""
    approved = threading.Event()
    fetching = threading.Event()

    def respond(connection: Connection, request: Request) -> None:
        if request.method == "GET":
            fetching.set()
            assert approved.wait(30)
        connection.send(answer(DOCUMENT))

    with serving(respond) as server:
        client = make_client(server)
        bodies: list[bytes] = []
        thread = threading.Thread(target=lambda: bodies.append(client.fetch()))
        thread.start()
        assert fetching.wait(30)
        client.approve(["a"])
        approved.set()
        thread.join()
        client.close()
    assert bodies == [DOCUMENT]


def test_request_within_the_handling_of_an_error() -> None:
    """The reason is that of this request, whatever the caller was handling when it sent it."""
    with serving(answer(b"", "500 Oops")) as server:
        client = make_client(server)
        url = server.url

    def fail() -> None:
        raise TimeoutError("of the caller")

    try:
        fail()
    except TimeoutError:
        error = failure(client.fetch)
    client.close()
    assert error.reason is PollOutcome.CONNECTION_ERROR
    assert str(error) == f"GET {url}/metadata/scheduledevents: Connection refused"


def test_close() -> None:
    """Closing ends idle connections; a later request still works, and leaves none behind."""
    ended = threading.Semaphore(0)

    def respond(connection: Connection, _: Request) -> None:
        connection.send(answer(DOCUMENT))
        connection.sock.settimeout(5)
        assert connection.sock.recv(1) == b""
        ended.release()

    with serving(respond) as server:
        client = make_client(server)
        client.fetch()
        client.close()
        assert ended.acquire(timeout=30)
        client.fetch()
        assert ended.acquire(timeout=30)
