"""The client of IMDS against well-behaved servers on real sockets; `test_client_hostile` has the others."""

import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from exporter.clock import SystemClock
from exporter.errors import ImdsError, PollOutcome
from exporter.imds.client import ImdsClient
from exporter.model.vm import VirtualMachine
from tests.clocks import HandClock
from tests.http_server import Connection, HttpServer, Request, answer, serving

if sys.platform != "win32":
    pass

DOCUMENT = b'{"DocumentIncarnation": 2, "Events": []}'


@contextmanager
def asking(server: HttpServer | str, **options: Any) -> Iterator[ImdsClient]:
    """Return a client with a clock that is moved by hand, and a timeout of 5 s, unless others are given."""
    url = server if isinstance(server, str) else server.url
    usual: dict[str, Any] = {"timeout": 5.0, "first_timeout": 5.0, "clock": HandClock()}
    with closing(ImdsClient(url, **(usual | options))) as client:
        yield client


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
    event_id = 'C7061BAC-AFDC-4513-B24B-AA5F13A16123, odd "id"'
    with (
        serving(lambda c, _: c.send(answer(next(replies)))) as server,
        asking(server.url + "/", api_version="2019-08-01", clock=SystemClock()) as client,
    ):
        assert client.fetch() == DOCUMENT
        client.approve(event_id)
        assert client.instance() == VirtualMachine(name="web_3")
        assert failure(client.instance).reason is PollOutcome.INVALID_DOCUMENT
    assert client.endpoint == server.url
    events, facts = "scheduledevents?api-version=2019-08-01", "instance?api-version=2021-12-13"
    paths = [("GET", events), ("POST", events), ("GET", facts), ("GET", facts)]
    assert [(one.method, one.path.removeprefix("/metadata/")) for one in server.requests] == paths
    headers = [one.headers for one in server.requests]
    assert {(one["metadata"], one["host"]) for one in headers} == {("true", f"127.0.0.1:{server.port}")}
    assert headers[1]["content-type"] == "application/json"
    expected = {"StartRequests": [{"EventId": event_id}]}
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

    with serving(respond) as server, asking(server) as client:
        assert [client.fetch() for _ in range(3)] == [DOCUMENT] * 3
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

    with serving(respond) as server, asking(server) as client:
        for _ in range(3):
            closed.clear()
            assert client.fetch() == DOCUMENT
            assert closed.wait(30)


@pytest.mark.parametrize("status", [204, 302, 400, 404, 429, 503])
def test_refusals(status: int) -> None:
    """Any status but 200 is a failure that names it; only 429 is a throttle, and no redirect is followed."""
    with serving(answer(DOCUMENT)) as other:
        location = f"Location: {other.url}/metadata/scheduledevents\r\n" if 300 <= status < 400 else ""
        reply = answer(b"" if status == 204 else b"why", f"{status} Any", location)
        with serving(reply) as server, asking(server) as client:
            calls = (client.fetch, lambda: client.approve("a"), client.instance)
            errors = [failure(call) for call in calls]
    expected = PollOutcome.THROTTLED if status == 429 else PollOutcome.HTTP_ERROR
    assert [(error.reason, error.status) for error in errors] == [(expected, status)] * 3
    text = f": status {status}" if status == 204 else f": status {status}: why"
    assert all(f"{error};".partition(text)[2].startswith(";") for error in errors)
    # A 400 or 404 may be about the API version: others are asked for, of documents and facts.
    more = 4 + 3 if status in (400, 404) else 0
    assert (len(server.requests), other.requests) == (3 + more, [])


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (302, "IMDS does not redirect; something else answers, such as a proxy"),
        (401, "IMDS asks for no password; something else answers"),
        (404, "correct imds.endpoint, leave imds.api_version at auto"),
        (421, "Guest Proxy Agent of Azure's Metadata Security Protocol does not know which process asks"),
        (429, "more than the 5 requests a second"),
        (500, "IMDS fails for now, or the Guest Proxy Agent"),
        (503, "ProxyAgent.Connection.log"),
    ],
)
def test_each_refusal_has_its_remedy(status: int, words: str) -> None:
    """The message names the likely cause by the status, and no firewall, since there is an answer."""
    with serving(answer(b"", f"{status} Any")) as server, asking(server) as client:
        message = str(failure(client.instance))
    assert words in message
    assert "firewall" not in message


@pytest.mark.parametrize(
    ("status", "connected", "sign"),
    [
        (200, "close", "/metadata/scheduledevents is answered"),
        (403, "keep-alive", "the connection stays open"),
    ],
)
def test_what_else_may_answer_403(status: int, connected: str, sign: str) -> None:
    """Unless both paths are refused and the connection is closed, others are named, with a remedy."""

    def respond(connection: Connection, request: Request) -> None:
        answered = 403 if "instance" in request.path else status
        connection.send(answer(DOCUMENT, f"{answered} Any", f"Connection: {connected}\r\n"))

    with serving(respond) as server, asking(server) as client:
        if status == 200:
            client.fetch()
        else:
            assert str(failure(client.fetch)).endswith(" a network policy blocks it: use hostNetwork")
        message = str(failure(client.instance))
    assert "the Metadata Security Protocol refuses" in message
    blocked = f"or, as {sign}, a pod-identity proxy or a network policy blocks it"
    assert message.endswith(f"; {blocked}: use hostNetwork, or set instance.name")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *((" 7 ", 7), ("301", 300), ("9" * 5000, 300), ("soon", 0), ("-5", 0), ("\xb2", 0)),
        *(("Wed, 04 Mar 2026 22:01:30 GMT", 90), ("Wed, 04 Mar 2026 23:00:00 GMT", 300)),
        *(("Wed, 04 Mar 2026 21:00:00 GMT", 0), ("Wednesday, 04-Mar-26 22:00:09 GMT", 9)),
        ("Wed, 04 Mar 99999999999999999999 22:01:30 GMT", 0),
    ],
)
@pytest.mark.parametrize("status", [429, 500, 503])
def test_retry_after(status: int, header: str, seconds: float) -> None:
    """IMDS says with 429 and 503 how long to wait: in seconds or until a time, at most 5 minutes."""
    reply = answer(b"", f"{status} Any").replace(
        b"\r\n", f"\r\nRetry-After: {header}\r\n".encode("latin-1"), 1
    )
    with serving(reply) as server, asking(server) as client, pytest.raises(ImdsError) as caught:
        client.fetch()
    assert caught.value.retry_after == (0 if status == 500 else seconds)
    caught.value.__traceback__ = None


def test_refusal_in_words() -> None:
    """The message has the start of what the server said, on one line, without control characters."""
    body = b'{"error":\r\n\t"\x1b[31mnot\x00 now\xff\xe2\x80\xae"}' + b"x" * 10_000
    with serving(answer(body, "500 Oops")) as server, asking(server) as client:
        error = failure(client.fetch)
    message = str(error)
    start = f'GET {server.url}/metadata/scheduledevents: status 500: {{"error": " [31mnot now\ufffd "}}xxx'
    assert message.startswith(start)
    assert message.isprintable()
    assert len(message) < 400


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
        client = ImdsClient(server.url, clock=HandClock())
        assert client.fetch() == DOCUMENT
        client.approve("a")
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

    with serving(respond) as server, asking(server) as client:
        bodies: list[bytes] = []
        thread = threading.Thread(target=lambda: bodies.append(client.fetch()))
        thread.start()
        assert fetching.wait(30)
        client.approve("a")
        approved.set()
        thread.join()
    assert bodies == [DOCUMENT]


def versions_asked(server: HttpServer) -> list[str]:
    return [request.path.partition("=")[2] for request in server.requests]


def refusing(
    status: str, named: Sequence[str], known: Collection[str]
) -> Callable[[Connection, Request], None]:
    """Return an IMDS that knows these API versions, and names some of them where it refuses another one."""
    error = {"error": "Bad request", "newest-versions": named} if named else {"error": "Bad request"}
    document = json.dumps({"compute": {"name": "a"}, "DocumentIncarnation": 1, "Events": []}).encode()

    def respond(connection: Connection, request: Request) -> None:
        is_known = request.path.partition("=")[2] in known
        connection.send(answer(document) if is_known else answer(json.dumps(error).encode(), status))

    return respond


NEWEST, FACTS = "2024-07-09", "2021-12-13"


@pytest.mark.parametrize(
    ("status", "named", "known", "events", "facts"),
    [
        # Azure Stack Hub: the newest that IMDS names, of documents only one that has been tried.
        ("400", ["2018-10-01", "2018-02-01"], "2018-10-01 2019-01-01",
         [NEWEST, NEWEST, "2020-07-01", "2019-01-01"], [FACTS, "2018-10-01"]),
        ("400", ["2019-04-01", "2018-10-01"], "2019-04-01 2017-08-01",
         [NEWEST, "2019-04-01"], [FACTS, "2019-04-01"]),
        # The names are of versions that are refused, too, or nonsense.
        ("400", ["2020-07-01", "x", 7, "2020-06-01&a=b"], "2019-01-01 2019-06-01",
         [NEWEST, "2020-07-01", "2019-01-01"], [FACTS, "2020-07-01", "2019-06-01"]),
        # All that IMDS names are newer.
        ("404", ["2031-01-01", "2030-01-01"], "2030-01-01 2017-08-01",
         [NEWEST, NEWEST, "2020-07-01", "2019-01-01", "2017-08-01"], [FACTS, "2030-01-01"]),
        # IMDS names none.
        ("400", [], "2017-08-01 2017-12-01",
         [NEWEST, NEWEST, "2020-07-01", "2019-01-01", "2017-08-01"],
         [FACTS, FACTS, "2019-06-01", "2017-12-01"]),
        ("404", [], "2020-07-01 2019-06-01",
         [NEWEST, NEWEST, "2020-07-01"], [FACTS, FACTS, "2019-06-01"]),
    ],
)  # fmt: skip
def test_older_versions(
    status: str, named: list[str], known: str, events: list[str], facts: list[str]
) -> None:
    """Where IMDS refuses a version, older ones are asked for, those it names first; one it accepts stays."""
    with serving(refusing(f"{status} Any", named, known.split())) as server, asking(server) as client:
        for call in (client.fetch, client.fetch, client.instance, client.instance):
            call()
        assert (client.api_version, client.instance_api_version) == (events[-1], facts[-1])
        assert versions_asked(server) == [*events, events[-1], *facts, facts[-1]]


@pytest.mark.parametrize("status", ["400 Any", "404 Any"])
@pytest.mark.parametrize("used", [NEWEST, "2020-07-01"])
def test_a_single_refusal(status: str, used: str) -> None:
    """The version in use is asked for once more, and stays in use."""
    refusals: list[str] = []

    def respond(connection: Connection, request: Request) -> None:
        is_known = request.path.endswith(used) and not refusals
        connection.send(
            answer(DOCUMENT) if is_known else answer(status=refusals.pop() if refusals else status)
        )

    with serving(respond) as server, asking(server) as client:
        client.fetch()
        server.requests.clear()
        refusals.append(status)
        client.fetch()
        assert (client.api_version, versions_asked(server)) == (used, [used, used])


def test_the_version_in_use_is_refused_later() -> None:
    """All others are asked for again at once, the newest first."""
    known = {"2020-07-01"}
    with serving(refusing("404 Any", [], known)) as server, asking(server) as client:
        client.fetch()
        known.clear()
        known.add("2019-01-01")
        client.fetch()
        assert versions_asked(server)[3:] == ["2020-07-01", "2020-07-01", NEWEST, NEWEST, "2019-01-01"]


def test_a_configured_version_is_the_only_one() -> None:
    """What the configuration demands is not replaced."""
    with serving(refusing("400 Any", ["2019-01-01"], ["2019-01-01"])) as server:
        with asking(server, api_version="2020-07-01") as client:
            assert failure(client.fetch).status == 400
        assert versions_asked(server) == ["2020-07-01"]


def test_slow_refusals() -> None:
    """No further version is asked for once the timeout has passed, so that a poll has its time limit."""
    clock = HandClock()

    def respond(connection: Connection, _: Request) -> None:
        clock.pass_seconds(6)
        connection.send(answer(status="404 Not Found"))

    with serving(respond) as server:
        with asking(server, clock=clock, timeout=10, first_timeout=10) as client:
            assert failure(client.fetch).status == 404
        assert versions_asked(server) == [NEWEST, NEWEST]
