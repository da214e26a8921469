"""HTTP/1.1 server: a thread for each connection, and h11 as the parser.

docs/decisions/0001-web-server.md explains why no existing server is used.
"""

import logging
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from email.utils import formatdate
from http.client import responses
from urllib.parse import unquote

import h11

from exporter.serving.http import Handler, HangUpError, Request, Response

log = logging.getLogger(__name__)

MAX_BYTES = 16 * 1024  # per request head, per request body, and per read
_MAX_HEADERS = 100  # a parsed header takes many times the bytes of a short one
# Before the path of an absolute URI, which may be empty (RFC 9112, 3.2.2).
_AUTHORITY = re.compile(rb"\Ahttps?://[^/?]*/?", re.IGNORECASE)

_MOST_CONNECTIONS = 128
_MOST_BODY_BYTES = 4 * 1024**2  # of the bodies that are being sent
_IDLE_SECONDS = 75.0  # between two requests
_REQUEST_SECONDS = 10.0  # for the client to send a request, after its TLS handshake if it is the first
_WRITE_SECONDS = 30.0  # for the client to read a response
_BUSY_SECONDS = 1.0  # for a connection to wait for its client, so that it can be ended
_DISCARD_SECONDS = 1.0  # for a refused client to notice
_PAUSE_SECONDS = 0.05  # where no more files or threads can be opened


class Connection:
    """A connection to one client, used by its own thread; `end` may be called by any."""

    def __init__(self, peer: socket.socket, address: str) -> None:
        self.http = h11.Connection(h11.SERVER, MAX_BYTES)
        self.address = address
        self.trusted = False
        self.waiting: float | None = time.monotonic()  # for the client, since then; None while it works
        self.body = b""  # that is being sent
        self.ended = False
        self._socket = peer
        self._deadline = 0.0

    def allow(self, seconds: float) -> None:
        """Set the time that the client has for all reads and writes until the next call."""
        self._deadline = time.monotonic() + seconds

    def start_tls(self, context: Callable[[], ssl.SSLContext]) -> None:
        """Do the handshake; OSError if it fails. Until its first bytes arrive it takes no memory."""
        self._set_timeout()
        if not self._socket.recv(1, socket.MSG_PEEK):
            raise HangUpError
        self._socket = context().wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
        if self.ended:  # maybe while the socket changed
            raise HangUpError
        self._set_timeout()
        self._socket.do_handshake()

    def request(self) -> Request | None:
        """Return the next request, None at the end; RemoteProtocolError if it is malformed or too large."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                if self.http.they_are_waiting_for_100_continue:
                    self.write(h11.InformationalResponse(status_code=100, headers=[]))
                self.read()
            elif isinstance(event, h11.Request):
                head = event
                _check_head(head)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BYTES:
                    raise h11.RemoteProtocolError("body too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage) and head:
                path, _, query = _AUTHORITY.sub(b"/", head.target).partition(b"?")
                return Request(
                    head.method.decode(),
                    unquote(path.decode()),
                    query.decode("latin-1"),
                    tuple(head.headers),
                    bytes(body),
                    self.address,
                )
            else:
                return None

    def read(self) -> None:
        """Wait for more data, or for the client to end its side of the connection."""
        self._set_timeout()
        self.http.receive_data(self._socket.recv(MAX_BYTES))

    def write(self, event: h11.Event) -> None:
        """Write part of a response, and wait until the system has taken all of it."""
        if data := self.http.send(event):
            self._set_timeout()
            self._socket.sendall(data)

    def discard(self) -> None:
        """End this side, and read until the client ends its own.

        Closing with unread data resets the connection: the client could lose the response (RFC 9112, 9.6).
        """
        self._end_tls()
        socket.socket.shutdown(self._socket, socket.SHUT_WR)
        while True:
            self._set_timeout()
            # The data is of no interest, so it is not decrypted.
            if not socket.socket.recv(self._socket, MAX_BYTES):
                return

    def end(self) -> None:
        """Make reads and writes fail, in progress or later."""
        self.ended = True
        with suppress(OSError):
            # The method of SSLSocket would let its thread continue without TLS.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self._end_tls()
        self._socket.close()

    def _end_tls(self) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            with suppress(OSError, ValueError):
                # Without waiting for the client to end TLS.
                self._socket.setblocking(False)
                self._socket.unwrap()

    def _set_timeout(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)


def _check_head(head: h11.Request) -> None:
    headers = dict(head.headers)
    if len(head.headers) > _MAX_HEADERS:
        raise h11.RemoteProtocolError("too many headers", error_status_hint=431)
    if b"content-length" in headers and b"transfer-encoding" in headers:
        # h11 uses Transfer-Encoding; a proxy that uses Content-Length sees other requests (RFC 9112, 6.1).
        raise h11.RemoteProtocolError("ambiguous body length")
    if int(headers.get(b"content-length", b"0")) > MAX_BYTES:
        raise h11.RemoteProtocolError("body too large", error_status_hint=413)


class Server:
    """Serves an application from `start` until `stop`; the application is called by many threads.

    At most ``max_connections`` are open. For a further one, and where all bodies that are being sent take
    more than 4 MiB, a connection that waits for its client is ended: of the address that has the most of
    them, the one that has waited the longest. A connection is exempt if its latest request was
    authenticated. If none can be ended for a second, the new one is closed.
    ``request_timeout`` covers the TLS handshake and the whole request, ``idle_timeout`` the time between
    requests, both in seconds. Bodies over 16 KiB are refused with 413. If the application raises an
    exception, the response is a 500.
    """

    def __init__(
        self,
        app: Handler,
        listener: socket.socket,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        max_connections: int = _MOST_CONNECTIONS,
        idle_timeout: float = _IDLE_SECONDS,
        request_timeout: float = _REQUEST_SECONDS,
    ) -> None:
        """Take ownership of ``listener``; ``tls`` returns the TLS context for each new connection."""
        self._app = app
        self._listener = listener
        self._tls = tls
        self._max_connections = max_connections
        self._idle_timeout = idle_timeout
        self._request_timeout = request_timeout
        host, port, *_ = listener.getsockname()
        self._host: str = {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}.get(host, host)  # noqa: S104  # not bound here
        self.port: int = port
        # All threads end with the process: a stop waits for nobody.
        self._thread = threading.Thread(target=self._accept, name="web", daemon=True)
        self._changed = threading.Condition()
        self._open: set[Connection] = set()
        self._stopping = False

    @property
    def url(self) -> str:
        """The URL for clients on this machine, without a trailing slash."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop within ``timeout`` seconds, after the responses in progress; may be called again."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._stopping = True
            for connection in self._open:
                if connection.http.their_state in {h11.IDLE, h11.SEND_BODY}:
                    connection.end()
        with suppress(OSError):  # on Windows, where closing it suffices
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._open, 0.75 * timeout)
            for connection in self._open:
                connection.end()
            self._changed.wait_for(lambda: not self._open, deadline - time.monotonic())
        if self._thread.ident is not None:
            self._thread.join(max(deadline - time.monotonic(), 0.0))

    def _accept(self) -> None:
        while not self._stopping:
            try:
                peer, address = self._listener.accept()
            except OSError as error:  # the client has gone, no more files can be opened, or this stops
                if not self._stopping:
                    log.debug("connection not accepted", extra={"error": error})
                    time.sleep(_PAUSE_SECONDS)
                continue
            connection = Connection(peer, str(address[0]))
            try:
                if self._admit(connection):
                    threading.Thread(target=self._run, args=(connection,), name="web", daemon=True).start()
                    continue
            except RuntimeError as error:  # no more threads can be started
                log.debug("connection not accepted", extra={"error": error})
                time.sleep(_PAUSE_SECONDS)
            self._forget(connection)

    def _admit(self, connection: Connection) -> bool:
        """Count a connection as open, for which another one may be ended; return whether there is room."""
        deadline = time.monotonic() + _BUSY_SECONDS
        with self._changed:
            while len(self._open) >= self._max_connections:
                # One that was ended counts until its thread has noticed.
                if not any(connection.ended for connection in self._open) and (
                    longest := _longest_wait(self._open)
                ):
                    longest.end()
                if self._stopping or not self._changed.wait(deadline - time.monotonic()):
                    return False
            if not self._stopping:
                self._open.add(connection)
            return not self._stopping

    def _forget(self, connection: Connection) -> None:
        connection.close()
        with self._changed:
            self._open.discard(connection)
            self._changed.notify_all()

    def _run(self, connection: Connection) -> None:
        try:
            self._converse(connection)
        except (OSError, HangUpError) as error:
            log.debug("connection closed", extra={"error": error})
        except Exception:
            log.exception("connection failed")
        finally:
            self._forget(connection)

    def _converse(self, connection: Connection) -> None:
        try:
            connection.allow(self._request_timeout)
            if self._tls:
                connection.start_tls(self._tls)
            request = connection.request()
            while request:
                self._answer(connection, request)
                if connection.http.our_state is not h11.DONE:
                    return
                connection.http.start_next_cycle()
                # After the change of the state by which `stop` finds who sends no request.
                if self._stopping:
                    return
                if not connection.http.trailing_data[0]:
                    connection.allow(self._idle_timeout)
                    connection.read()
                connection.allow(self._request_timeout)
                request = connection.request()
        except h11.RemoteProtocolError as error:
            # h11 suggests 501 for an unknown transfer encoding, but that is a client error.
            status = error.error_status_hint if error.error_status_hint < 500 else 400
            self._respond(connection, Response(b"", status=status, headers={"connection": "close"}))
            connection.allow(_DISCARD_SECONDS)
            connection.discard()

    def _answer(self, connection: Connection, request: Request) -> None:
        connection.waiting = None
        try:
            response = self._app(request)
        except HangUpError:
            raise
        except Exception:
            log.exception("request failed", extra={"method": request.method, "path": request.path})
            response = Response(b"", status=500, headers={"connection": "close"})
        connection.trusted = response.authenticated
        self._respond(connection, response, head=request.method == "HEAD")
        connection.waiting = time.monotonic()

    def _respond(self, connection: Connection, response: Response, *, head: bool = False) -> None:
        with self._changed:
            connection.waiting = time.monotonic()
            connection.body = response.body
            self._limit_bodies(connection)
            self._changed.notify_all()
        connection.allow(_WRITE_SECONDS)
        self._begin(connection, response.status, response.all_headers())
        for part in () if head else response.parts or (response.body,):
            connection.allow(_WRITE_SECONDS)
            connection.write(h11.Data(data=part))
        connection.write(h11.EndOfMessage())
        connection.body = b""

    def _limit_bodies(self, newest: Connection) -> None:
        """End others that receive a body if all bodies take too much memory; several may receive the same."""
        while (
            sum({id(connection.body): len(connection.body) for connection in self._open}.values())
            > _MOST_BODY_BYTES
        ):
            longest = _longest_wait(connection for connection in self._open if connection.body)
            if longest is None or longest is newest:
                return
            longest.end()
            longest.body = b""

    def _begin(self, connection: Connection, status: int, headers: Mapping[str, str]) -> None:
        complete = {"date": formatdate(usegmt=True), **headers}
        if self._stopping:
            complete["connection"] = "close"
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in complete.items()]
        reason = responses.get(status, "").encode()
        connection.write(h11.Response(status_code=status, headers=encoded, reason=reason))


def _longest_wait(connections: Iterable[Connection]) -> Connection | None:
    """Return the connection to end first: of the address with the most of them, the longest wait."""
    waits = {
        connection: since
        for connection in connections
        if not (connection.trusted or connection.ended) and (since := connection.waiting) is not None
    }
    counts = Counter(connection.address for connection in waits)
    return min(waits, key=lambda connection: (-counts[connection.address], waits[connection]), default=None)
