"""The client of IMDS against well-behaved servers on real sockets; `test_client_hostile` has the others."""

import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.clock import SystemClock
from exporter.errors import ImdsError, PollOutcome
from exporter.imds.client import ImdsClient
from exporter.model.vm import VirtualMachine
from tests.clocks import HandClock
from tests.http_server import Connection, HttpServer, Request, answer, serving

DOCUMENT = b'{"DocumentIncarnation": 2, "Events": []}'


def make_client(server: HttpServer | str, *, timeout: float = 5.0, first_timeout: float = 5.0) -> ImdsClient:
    url = server if isinstance(server, str) else server.url
    return ImdsClient(url, timeout=timeout, first_timeout=first_timeout, clock=HandClock())


def failure(call: Callable[[], object]) -> ImdsError:
    """Return a copy of the error that a call ends with."""
    try:
        call()
    except ImdsError as error:
        # The original holds on to frames and so, in a cycle with the test's own, to urllib3's open socket.
        return ImdsError(error.reason, str(error), error.status)
    pytest.fail("no error")


def test_requests() -> None:
    """Each request is as Azure requires; bodies come unchanged, facts only from a document that has some."""
    replies = iter([DOCUMENT, b"", b'{"compute": {"name": "web_3"}}', b"<html>"])
    ids = ["C7061BAC-AFDC-4513-B24B-AA5F13A16123", 'odd "id"']
    with serving(lambda c, _: c.send(answer(next(replies)))) as server:
        client = ImdsClient(server.url + "/", api_version="2019-08-01", clock=SystemClock())
        assert client.fetch() == DOCUMENT
        client.approve(ids)
        assert client.instance() == VirtualMachine(name="web_3")
        assert failure(client.instance).reason is PollOutcome.INVALID_DOCUMENT
        client.close()
    assert client.endpoint == server.url
    events, facts = "scheduledevents?api-version=2019-08-01", "instance?api-version=2021-12-13"
    paths = [("GET", events), ("POST", events), ("GET", facts), ("GET", facts)]
    assert [(one.method, one.path.removeprefix("/metadata/")) for one in server.requests] == paths
    headers = [one.headers for one in server.requests]
    assert {(one["metadata"], one["host"]) for one in headers} == {("true", f"127.0.0.1:{server.port}")}
    assert headers[1]["content-type"] == "application/json"
    expected = {"StartRequests": [{"EventId": event_id} for event_id in ids]}
    assert json.loads(server.requests[1].body) == expected


CHUNKS = b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in (DOCUMENT[:7], DOCUMENT[7:]))


@pytest.mark.parametrize(
    ("reply", "connections"),
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"0\r\nTrailer: x\r\n\r\n",
            1,
            id="chunks",
        ),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10 + answer(DOCUMENT), 1, id="announcements"),
        pytest.param(answer(DOCUMENT) + answer(b"late"), 3, id="a second answer"),
        pytest.param(answer(DOCUMENT, headers="Connection: close\r\n"), 3, id="close"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\n" + DOCUMENT, 3, id="HTTP/1.0"),
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + DOCUMENT, 3, id="no length"),
    ],
)
def test_framing(reply: bytes, connections: int) -> None:
    """A body is taken as it is framed, and a connection is used again only if it certainly can be."""

    def respond(connection: Connection, _: Request) -> None:
        connection.send(reply)
        if b"close" in reply or b"HTTP/1.0" in reply:
            connection.hang_up()

    with serving(respond) as server:
        client = make_client(server)
        assert [client.fetch() for _ in range(3)] == [DOCUMENT] * 3
        client.close()
    assert server.connections == connections


def reset(connection: Connection) -> None:
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(connection.sock.detach())


@pytest.mark.parametrize("close", [Connection.hang_up, reset])
def test_connection_closed_between_polls(close: Callable[[Connection], None]) -> None:
    """A server that drops idle connections does not make the next poll fail."""
    closed = threading.Event()

    def respond(connection: Connection, _: Request) -> None:
        connection.send(answer(DOCUMENT))
        close(connection)
        closed.set()

    with serving(respond) as server:
        client = make_client(server)
        for _ in range(3):
            closed.clear()
            assert client.fetch() == DOCUMENT
            assert closed.wait(30)
        client.close()


@pytest.mark.parametrize("status", [201, 204, 301, 302, 303, 307, 308, 400, 404, 405, 410, 429, 500, 503])
def test_refusals(status: int) -> None:
    """Any status but 200 is a failure that names it; only 429 is a throttle, and no redirect is followed."""
    with serving(answer(DOCUMENT)) as other:
        location = f"Location: {other.url}/metadata/scheduledevents\r\n" if 300 <= status < 400 else ""
        reply = answer(b"" if status == 204 else b"why", f"{status} Any", location)
        with serving(reply) as server:
            client = make_client(server)
            calls = (client.fetch, lambda: client.approve(["a"]), client.instance)
            errors = [failure(call) for call in calls]
            client.close()
    expected = PollOutcome.THROTTLED if status == 429 else PollOutcome.HTTP_ERROR
    assert [(error.reason, error.status) for error in errors] == [(expected, status)] * 3
    text = f": status {status}" if status == 204 else f": status {status}: why"
    assert all(str(error).endswith(text) for error in errors)
    # The first 400 or 404 may be about the API version.
    assert (len(server.requests) - 3 in (0, 1), other.requests) == (True, [])


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


def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Proxies and credentials in the environment are for others; a cookie is not sent back."""
    cookie = answer(DOCUMENT, headers="Set-Cookie: a=b; Path=/\r\n")
    with serving(answer(b"", "502 Proxy")) as proxy, serving(cookie) as server:
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
    assert not any({"authorization", "cookie"} & request.headers.keys() for request in server.requests)


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


def versions_asked(server: HttpServer) -> list[str]:
    return [request.path.partition("=")[2] for request in server.requests]


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found"])
def test_a_version_that_imds_does_not_know(status: str, caplog: pytest.LogCaptureFixture) -> None:
    """An older version is used instead, at the cost of one request; a day later the newest is tried again."""
    known = {"2020-07-01"}

    def respond(connection: Connection, request: Request) -> None:
        asked = request.path.partition("=")[2]
        connection.send(answer(DOCUMENT) if asked in known else answer(status=status))

    clock = HandClock()
    with caplog.at_level(logging.INFO), serving(respond) as server:
        client = ImdsClient(server.url, clock=clock)
        assert client.longest_poll == 2 * 150 + 10 + 60
        client.fetch()
        clock.pass_seconds(86_399)
        client.fetch()
        client.approve(["a"])
        assert client.api_version == "2020-07-01"
        known.add("2024-07-09")
        clock.pass_seconds(1)
        client.fetch()
        client.close()
        assert versions_asked(server) == ["2024-07-09", *["2020-07-01"] * 3, "2024-07-09"]
    assert caplog.messages == ["IMDS does not know the newest API version"]
    assert client.api_version == "2024-07-09"


@pytest.mark.parametrize("status", ["404 Not Found", "429 Too Many Requests", "500 Internal Server Error"])
def test_an_imds_that_knows_no_version(status: str) -> None:
    """Where the older version fails, too, the newest is asked for again at the next poll."""
    clock = HandClock()
    with serving(answer(status=status)) as server:
        client = ImdsClient(server.url, clock=clock)
        for _ in range(2):
            assert failure(client.fetch).reason is not PollOutcome.SUCCESS
            clock.pass_seconds(10)
        client.close()
        asked = ["2024-07-09", "2020-07-01"] if status.startswith("404") else ["2024-07-09"]
        assert versions_asked(server) == asked * 2
