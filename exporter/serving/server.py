"""HTTP/1.1 server, built on h11 and asyncio streams.

docs/decisions/0001-web-server.md explains why no existing server is used.
"""

import asyncio
import contextlib
import logging
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from functools import partial
from http.client import responses
from typing import TypeVar
from urllib.parse import unquote

import h11

from exporter.serving.http import Handler, HangUpError, Request, Response

log = logging.getLogger(__name__)

MAX_BYTES = 16 * 1024  # per request head, per request body, and per read
# Before the path of an absolute URI, which may be empty.
_AUTHORITY = re.compile(rb"\Ahttps?://[^/?]*/?", re.IGNORECASE)
_MAX_HEADERS = 100  # a parsed header takes many times the bytes of a short one

T = TypeVar("T")


class Connection:
    """HTTP/1.1 connection to one client. The server enforces the time limits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.http = h11.Connection(h11.SERVER, MAX_BYTES)
        self.trusted = False
        self.transport = writer.transport
        self.transport.set_write_buffer_limits(high=0)
        self._reader, self._writer = reader, writer
        # Not asyncio's TLS, which takes 256 KiB per connection, and ends one whose client has sent its last
        # request.
        self._tls: ssl.SSLObject | None = None
        self._received, self._unsent = ssl.MemoryBIO(), ssl.MemoryBIO()

    @property
    def peer(self) -> str:
        """The client's address, without its port."""
        address = self.transport.get_extra_info("peername")
        return str(address[0]) if address else ""

    async def begins_tls(self) -> None:
        """Wait for the first bytes of a handshake."""
        await self._receive()

    async def start_tls(self, context: ssl.SSLContext) -> None:
        self._tls = context.wrap_bio(self._received, self._unsent, server_side=True)
        await self._call_tls(self._tls.do_handshake)

    async def request(self) -> Request | None:
        """Return the next request, None at the end; RemoteProtocolError if it is malformed or too large."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                if self.http.they_are_waiting_for_100_continue:
                    self.write(h11.InformationalResponse(status_code=100, headers=[]))
                await self.read()
            elif isinstance(event, h11.Request):
                head = event
                _check_head(head)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BYTES:
                    raise h11.RemoteProtocolError("body too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage) and head:
                path, _, query = _origin_form(head.target).partition(b"?")
                return Request(
                    head.method.decode(),
                    unquote(path.decode()),
                    query.decode("latin-1"),
                    tuple(head.headers),
                    bytes(body),
                    self.peer,
                )
            else:
                return None

    async def read(self) -> None:
        """Wait for more data, or for the client to end its side of the connection."""
        if self._tls is None:
            data = await self._reader.read(MAX_BYTES)
        else:
            try:
                data = await self._call_tls(self._tls.read, MAX_BYTES)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                data = b""
        self.http.receive_data(data)

    def write(self, event: h11.Event) -> None:
        """Write part of a response without waiting for the client to read it."""
        data = self.http.send(event)
        if self._tls is None:
            self._writer.write(data or b"")
        elif data:
            self._tls.write(data)
            self._flush()

    async def sent(self) -> None:
        """Wait until everything written is sent, so that closing the connection loses nothing."""
        await self._writer.drain()

    def close(self) -> None:
        if self._tls is not None:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._writer.close()

    async def _call_tls(self, call: Callable[..., T], *args: int) -> T:
        while True:
            try:
                return call(*args)
            except ssl.SSLWantReadError:
                pass
            finally:
                self._flush()
            await self._receive()

    async def _receive(self) -> None:
        if data := await self._reader.read(MAX_BYTES):
            self._received.write(data)
        else:
            self._received.write_eof()

    def _flush(self) -> None:
        self._writer.write(self._unsent.read())


def _origin_form(target: bytes) -> bytes:
    """Return the path and query of a request target, which may be an absolute URI (RFC 9112, 3.2.2)."""
    return _AUTHORITY.sub(b"/", target)


def _check_head(head: h11.Request) -> None:
    headers = dict(head.headers)
    if len(head.headers) > _MAX_HEADERS:
        raise h11.RemoteProtocolError("too many headers", error_status_hint=431)
    if b"content-length" in headers and b"transfer-encoding" in headers:
        # h11 uses Transfer-Encoding; a proxy that uses Content-Length sees other requests (RFC 9112, 6.1).
        raise h11.RemoteProtocolError("ambiguous body length")
    if int(headers.get(b"content-length", b"0")) > MAX_BYTES:
        raise h11.RemoteProtocolError("body too large", error_status_hint=413)


_MOST_CONNECTIONS = 128
_IDLE_SECONDS = 75.0  # between two requests
_REQUEST_SECONDS = 10.0  # for the client to send a request
_WRITE_SECONDS = 30.0  # for the peer to read a response
_LOOK_AGAIN_SECONDS = 0.05
_BUSY_SECONDS = 1.0  # for requests in progress to end
_MOST_BODY_BYTES = 4 * 1024**2  # of the bodies that are being sent
_MOST_HANDSHAKES = 32  # in progress; each can take some 300 KiB


class _Protocol(asyncio.StreamReaderProtocol):
    """Takes a connection that breaks for one that the client has closed.

    Streams would keep the error in a future that nobody awaits, and log it with a traceback, depending on
    what the garbage collector finds first.
    """

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        super().connection_lost(None)


class Server:
    """Serves an application on its own thread, from `start` until `stop`.

    Once ``max_connections`` are open, a new connection replaces one that waits for its client: of the address
    that has the most of them, the one that has waited the longest. If none waits, the new one waits for up to
    a second; if all are trusted, it is closed. At most 32 TLS handshakes are in progress. A connection is
    trusted if its latest request was authenticated.
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
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="web", daemon=True)
        self._started = threading.Event()
        # Of the connections that are accepted at once; the others stay until their requests are read.
        self._burst = max_connections // 8
        self._opening: set[asyncio.Task[object]] = set()
        self._tasks: dict[Connection, asyncio.Task[None]] = {}
        self._waiting: dict[Connection, None] = {}  # for the client; the longest wait comes first
        self._handshakes: dict[Connection, None] = {}  # in progress, the oldest first
        self._bodies: dict[Connection, bytes] = {}  # that are being sent, the oldest first

    @property
    def url(self) -> str:
        """The URL for clients on this machine, without a trailing slash."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self, timeout: float) -> None:
        """Stop within ``timeout`` seconds, after the responses in progress; may be called again."""
        if not self._started.is_set():
            self._listener.close()
            return
        self._grace = timeout * 0.75
        with suppress(RuntimeError):  # the loop is closed: already stopped
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("the web server did not stop in time")

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._turn = asyncio.Lock()
        self._listener.setblocking(False)
        accepting = asyncio.create_task(self._accept())
        self._started.set()
        await self._stopping.wait()
        # To cancel the task instead could lose a connection that it has been given.
        with suppress(NotImplementedError):  # on Windows, where closing the socket ends the task
            self._loop.remove_reader(self._listener)
        self._listener.close()
        await self._yield()
        for connection in list(self._waiting):
            if connection.http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                self._drop(connection)
        # `asyncio.run` cancels those that remain after the grace period.
        if tasks := asyncio.all_tasks() - {asyncio.current_task(), accepting}:
            await asyncio.wait(tasks, timeout=self._grace)

    async def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                peer, _ = await self._loop.sock_accept(self._listener)
                if self._stopping.is_set() or not await self._make_room():
                    peer.close()
                    continue
                self._open(peer)
            except OSError as error:  # the client has gone, or no more files can be opened
                log.debug("connection not accepted", extra={"error": error})
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            if len(self._opening) >= self._burst:
                # Reads requests that have arrived already, before other connections can replace these.
                await self._yield()

    def _open(self, peer: socket.socket) -> None:
        reader = asyncio.StreamReader(MAX_BYTES)
        protocol = partial(_Protocol, reader, self._connected)
        opening = self._loop.create_task(self._loop.connect_accepted_socket(protocol, peer))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _yield(self) -> None:
        """Wait until what is ready has run, and what that makes ready."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def _queue(self, connection: Connection) -> None:
        """Wait for a turn: one per iteration of the event loop, for all connections that are not trusted."""
        # A new connection would otherwise wait several times for all kept ones, or for a piece of all bodies.
        if not connection.trusted:
            async with self._turn:
                await asyncio.sleep(0)

    async def _make_room(self) -> bool:
        """Return whether another connection can be accepted, for which an idle one is closed."""
        deadline = self._loop.time() + _BUSY_SECONDS
        while len(self._tasks) + len(self._opening) >= self._max_connections:
            if idle := [one for one in self._waiting if not one.trusted]:
                self._drop(_oldest_of_busiest(idle))
            elif self._opening:
                await self._yield()
            elif len(self._waiting) == len(self._tasks) or self._loop.time() > deadline:
                return False
            else:
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        return True

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stopping.is_set():
            writer.transport.abort()
            return
        connection = Connection(reader, writer)
        self._waiting[connection] = None
        self._tasks[connection] = task = self._loop.create_task(self._run(connection))
        task.add_done_callback(lambda _: self._drop(connection))

    def _drop(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._bodies.pop(connection, None)
        self._handshakes.pop(connection, None)
        connection.transport.abort()
        if task := self._tasks.pop(connection, None):
            task.cancel()

    @asynccontextmanager
    async def _wait(self, connection: Connection, seconds: float) -> AsyncIterator[None]:
        self._waiting[connection] = None
        try:
            async with asyncio.timeout(seconds):
                yield
        finally:
            self._waiting.pop(connection, None)

    async def _run(self, connection: Connection) -> None:
        try:
            await self._converse(connection)
            connection.close()
        except (OSError, HangUpError) as error:
            log.debug("connection closed", extra={"error": error})

    async def _converse(self, connection: Connection) -> None:
        try:
            async with self._wait(connection, self._request_timeout):
                if self._tls:
                    await self._shake_hands(connection, self._tls)
                request = await connection.request()
            while request and await self._answer(connection, request):
                connection.http.start_next_cycle()
                if not connection.http.trailing_data[0]:
                    async with self._wait(connection, self._idle_timeout):
                        await connection.read()
                await self._queue(connection)
                async with self._wait(connection, self._request_timeout):
                    request = await connection.request()
        except h11.RemoteProtocolError as error:
            # h11 suggests 501 for an unknown transfer encoding, but that is a client error.
            await self._refuse(connection, error.error_status_hint if error.error_status_hint < 500 else 400)

    async def _shake_hands(self, connection: Connection, context: Callable[[], ssl.SSLContext]) -> None:
        """Switch to TLS; of too many handshakes, the oldest of the address that has the most is ended."""
        await connection.begins_tls()
        self._handshakes[connection] = None
        if len(self._handshakes) > _MOST_HANDSHAKES:
            self._drop(_oldest_of_busiest(self._handshakes))
        try:
            await connection.start_tls(context())
        finally:
            self._handshakes.pop(connection, None)

    async def _answer(self, connection: Connection, request: Request) -> bool:
        """Run the application; return whether the connection can take another request."""
        connection.trusted = False
        try:
            response = await self._app(request)
            connection.trusted = response.authenticated
            await self._respond(connection, response, head=request.method == "HEAD")
        except HangUpError:
            raise
        except Exception:
            log.exception("request failed", extra={"method": request.method, "path": request.path})
        if connection.http.our_state is h11.SEND_RESPONSE:
            await self._refuse(connection, 500)
        return connection.http.our_state is h11.DONE and not self._stopping.is_set()

    async def _respond(self, connection: Connection, response: Response, *, head: bool) -> None:
        self._begin(connection, response.status, response.all_headers())
        if response.parts and not head:
            async for part in response.parts:
                await self._send(connection, h11.Data(data=part))
        elif not head:
            await self._send_body(connection, response)
        await self._send(connection, h11.EndOfMessage())

    async def _send_body(self, connection: Connection, response: Response) -> None:
        deadline = self._loop.time() + _WRITE_SECONDS
        self._bodies[connection] = response.body
        self._limit_bodies(connection)
        try:
            for piece in response.pieces():
                await self._send(connection, h11.Data(data=piece), deadline - self._loop.time())
                await self._queue(connection)
        finally:
            self._bodies.pop(connection, None)

    def _limit_bodies(self, newest: Connection) -> None:
        """Close the connections that have been reading the longest, if all bodies take too much memory."""
        for connection in list(self._bodies):
            # Several connections may send the same body.
            distinct = {id(body): len(body) for body in self._bodies.values()}
            if sum(distinct.values()) <= _MOST_BODY_BYTES:
                return
            if connection is not newest and not connection.trusted:
                self._drop(connection)

    async def _refuse(self, connection: Connection, status: int) -> None:
        self._begin(connection, status, {"content-length": "0", "connection": "close"})
        await self._send(connection, h11.EndOfMessage())

    def _begin(self, connection: Connection, status: int, headers: Mapping[str, str]) -> None:
        found = {"date": formatdate(usegmt=True), **headers}
        if self._stopping.is_set():
            found["connection"] = "close"
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found.items()]
        reason = responses.get(status, "").encode()
        connection.write(h11.Response(status_code=status, headers=encoded, reason=reason))

    async def _send(self, connection: Connection, event: h11.Event, seconds: float = _WRITE_SECONDS) -> None:
        """Write part of a response; raise HangUpError unless the client receives everything in time."""
        connection.write(event)
        try:
            async with self._wait(connection, seconds):
                await connection.sent()
        except OSError as error:
            raise HangUpError from error


def _oldest_of_busiest(connections: Collection[Connection]) -> Connection:
    """Return the first connection of the address that has the most of them."""
    ((busiest, _),) = Counter(one.peer for one in connections).most_common(1)
    return next(one for one in connections if one.peer == busiest)
