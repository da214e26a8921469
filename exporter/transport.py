"""A client of HTTP: one server, connections that are kept, one deadline for each answer.

docs/decisions/0002-imds-client.md explains why not `requests.adapters.HTTPAdapter`.
"""

import contextlib
import io
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import h11
import msgspec

from exporter.errors import basic
from exporter.timefmt import parse_retry_after

BODY_LIMIT = 1024 * 1024
_EXCERPT_LIMIT = 4096
_PIECE_BYTES = 65536
_MOST_ANNOUNCEMENTS = 10  # a server may announce its answer (status 100, 103) a few times, but not forever
_CONNECT_SECONDS = 10.0  # connection times of 6 s have been reported; after 10 s no answer is to be expected
_PORTS = {"http": 80, "https": 443}
_END = h11.EndOfMessage()


class Request(msgspec.Struct, frozen=True):
    """A request; ``url`` is absolute. Host and Content-Length are added to ``headers``."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


class Answer(NamedTuple):
    """An answer; ``headers`` are pairs with names in lower case."""

    status: int
    body: bytes
    headers: Sequence[tuple[bytes, bytes]]
    is_last: bool = False  # whether the server closes the connection after it

    def header(self, name: bytes) -> str:
        """Return the first value of a header; "" if it is absent."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name), "")

    def date(self) -> datetime | None:
        """Return the time of the server's clock; None without a valid header Date."""
        try:
            at = parsedate_to_datetime(self.header(b"date"))
        except (ValueError, OverflowError):
            return None
        # Without a zone (-0000) it is not the date of a server.
        return at if at.tzinfo is not None else None

    def clock_offset(self, sent: datetime, received: datetime) -> float:
        """Return by how many seconds the client's clock is ahead of the server's, negative if it is behind.

        The server has dated its answer between the two times of the client's clock; 0 without a valid Date.
        """
        at = self.date()
        if at is None:
            return 0.0
        return max((sent - at).total_seconds(), 0.0) or min((received - at).total_seconds(), 0.0)

    def retry_after(self, now: datetime) -> float:
        """Return for how many seconds the server asks to be left alone, with status 429 or 503."""
        if self.status not in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            return 0.0
        return parse_retry_after(self.header(b"retry-after"), now) or 0.0


class LargeAnswerError(Exception):
    """The body of an answer is over the limit."""


class Transport:
    """Sends requests to the server of ``endpoint``, a URL; thread-safe.

    Each request in progress has a connection of its own, so that a slow one does not delay the others.
    ``timeout`` is in seconds, for the whole answer. Cookies, redirects, and proxies and credentials in the
    environment are not used. Errors are those of sockets and h11. ``tls`` returns the context of each new
    connection, by default one that trusts the authorities of the system. ``proxy`` is the URL of a proxy of
    HTTP, with its user name and password if it needs them, or "".
    """

    def __init__(
        self,
        endpoint: str,
        *,
        limit: int = BODY_LIMIT,
        tls: Callable[[], ssl.SSLContext] | None = None,
        proxy: str = "",
    ) -> None:
        self.endpoint = endpoint
        self._proxy = proxy
        self._limit = limit
        self._tls = tls or ssl.create_default_context
        self._idle: list[_Connection] = []
        self._closed = False

    def send(self, request: Request, timeout: float, limit: int | None = None) -> Answer:
        """Return the answer; of a refusal's body, little more than the first 4 KiB.

        Raises:
            TimeoutError: the answer is not complete in time. A refusal need not be complete.
            LargeAnswerError: its body has more bytes than ``limit``, by default that of all answers.
        """
        deadline = time.monotonic() + timeout
        connection = self._connect(deadline)
        try:
            return connection.exchange(request, limit or self._limit, deadline)
        finally:
            if connection.can_be_kept():
                self._idle.append(connection)
            else:
                connection.close()
            if self._closed:
                self.close()

    def close(self) -> None:
        """Close the connections: idle ones now, the others after use. Later requests open new ones."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _connect(self, deadline: float) -> "_Connection":
        with contextlib.suppress(IndexError):
            while True:
                kept = self._idle.pop()
                if kept.is_quiet():
                    return kept
                kept.close()
        return self._open(deadline)

    def _open(self, deadline: float) -> "_Connection":
        url = _split(self.endpoint)
        proxy = _split(self._proxy) if self._proxy else None
        server, timeout = proxy or url, min(_CONNECT_SECONDS, _left(deadline))
        sock = socket.create_connection((server.hostname or "", _port(server)), timeout)
        try:
            # The head of a POST must not wait for the acknowledgement of the previous request.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            if url.scheme == "http":
                return _Connection(sock, proxy)
            if proxy:
                _Connection(sock).open_tunnel(url, proxy, deadline)
            sock.settimeout(_left(deadline))
            sock = self._tls().wrap_socket(sock, server_hostname=url.hostname)
        except BaseException:
            sock.close()
            raise
        return _Connection(sock)


class _Connection:
    """A connection, which h11 reads and writes; ``proxy`` is the proxy at its other end, if it forwards."""

    def __init__(self, sock: socket.socket, proxy: SplitResult | None = None) -> None:
        self._socket = sock
        self._proxy = proxy
        self._http = h11.Connection(h11.CLIENT)

    def is_quiet(self) -> bool:
        """Return whether the server has neither closed the connection nor sent anything unasked."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(_PIECE_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def exchange(self, request: Request, limit: int, deadline: float) -> Answer:
        self._send(request, deadline)
        events = self._events(deadline)
        head = next(events)
        status: int = head.status_code
        body = io.BytesIO()
        accepted = status < HTTPStatus.MULTIPLE_CHOICES
        try:
            for event in events:
                body.write(event.data)
                if body.tell() > (limit if accepted else _EXCERPT_LIMIT):
                    break
        except Exception:
            # The status of a refusal is sufficient; the body only adds detail for the log.
            if accepted:
                raise
        if accepted and body.tell() > limit:
            raise LargeAnswerError(f"the answer is over {limit / 2**20:g} MiB")
        is_last = self._http.their_state in (h11.MUST_CLOSE, h11.CLOSED)
        return Answer(status, body.getvalue(), head.headers, is_last)

    def open_tunnel(self, url: SplitResult, proxy: SplitResult, deadline: float) -> None:
        """Make a proxy connect to the server of ``url`` (RFC 9110, "CONNECT")."""
        authority = f"{_host(url)}:{_port(url)}"
        headers = [("Host", authority), *_credentials(proxy)]
        self._write(h11.Request(method="CONNECT", target=authority, headers=headers), None, deadline)
        status: int = next(self._events(deadline)).status_code
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise ConnectionError(f"the proxy answered with status {status}")

    def _send(self, request: Request, deadline: float) -> None:
        self._write(_head(request, self._proxy), request.body, deadline)

    def _write(self, head: h11.Request, body: bytes | None, deadline: float) -> None:
        data = self._http.send(head) or b""
        if body is not None:
            data += self._http.send(h11.Data(data=body)) or b""
        data += self._http.send(_END) or b""
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(data)

    def _events(self, deadline: float) -> Iterator[Any]:
        """Yield the head of the answer, then the parts of its body."""
        announcements = 0
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._receive(deadline)
            elif isinstance(event, h11.Response | h11.Data):
                yield event
            elif isinstance(event, h11.EndOfMessage):
                return
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionError("the server closed the connection without an answer")
            elif (announcements := announcements + 1) > _MOST_ANNOUNCEMENTS:
                raise ConnectionError("the server announced an answer again and again")

    def _receive(self, deadline: float) -> None:
        self._socket.settimeout(_left(deadline))
        data = self._socket.recv(_PIECE_BYTES)
        if not data and self._http.their_state is h11.SEND_RESPONSE:
            raise ConnectionError("the server closed the connection without an answer")
        self._http.receive_data(data)

    def can_be_kept(self) -> bool:
        """Prepare for the next request, and return whether that is possible."""
        http = self._http
        if not http.our_state is http.their_state is h11.DONE or http.trailing_data[0]:
            return False
        http.start_next_cycle()
        return True

    def close(self) -> None:
        self._socket.close()


def _split(endpoint: str) -> SplitResult:
    url = urlsplit(endpoint)
    if url.scheme not in _PORTS or not url.hostname:
        raise ValueError(f"{endpoint!r} is not an HTTP URL")
    return url


def _host(url: SplitResult) -> str:
    host = url.hostname or ""
    return f"[{host}]" if ":" in host else host


def _port(url: SplitResult) -> int:
    return url.port or _PORTS[url.scheme]


def _head(request: Request, proxy: SplitResult | None) -> h11.Request:
    url = urlsplit(request.url)
    host = url.netloc.rpartition("@")[2]
    headers = [("Host", host), *request.headers.items()]
    if request.body is not None:
        headers.append(("Content-Length", str(len(request.body))))
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    if proxy:
        target, headers = f"http://{host}{target}", headers + _credentials(proxy)
    return h11.Request(method=request.method, target=target, headers=headers)


def _credentials(proxy: SplitResult) -> list[tuple[str, str]]:
    """Return the header with the user name and the password in a proxy's URL, if there are any."""
    credentials = proxy.netloc.rpartition("@")[0]
    return [("Proxy-Authorization", f"Basic {basic(credentials)}")] if credentials else []


def _left(deadline: float) -> float:
    """Return the seconds that are left, or raise TimeoutError."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
