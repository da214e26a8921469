"""An HTTP/1.1 server for ASGI applications: h11 for the protocol, asyncio's streams for the connections.

docs/decisions/0001-web-server.md explains why it is not a ready-made server.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from functools import partial
from http.client import responses
from typing import Any
from urllib.parse import unquote

import h11

from exporter.serving.addresses import BACKLOG

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BYTES = 16 * 1024  # per request head, per request body, and per read
_MAX_HEADERS = 100  # a parsed header takes many times the bytes of a short one
# An ASGI extension: a message of this type says that the client has authenticated.
TRUST = "exporter.trust"
_WRITE_SECONDS = 30.0  # within which a peer must have read an answer


class HangUpError(Exception):
    """Raised by an application, or by ``send``, to close the connection without finishing the response."""


class _Connection:
    """HTTP/1.1 with one client. Time limits are left to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.http = h11.Connection(h11.SERVER, MAX_BYTES)
        self.trusted = False
        self._unbuffer()

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Switch to TLS."""
        await self.writer.start_tls(context)
        self._unbuffer()

    def _unbuffer(self) -> None:
        # ``drain`` then waits until everything is sent, and closing afterwards loses nothing.
        self.writer.transport.set_write_buffer_limits(high=1, low=0)

    async def request(self) -> tuple[h11.Request, bytes] | None:
        """Return the next request with its body, or None once the client has closed the connection.

        Raises:
            h11.RemoteProtocolError: the request is malformed or too large.
        """
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
                return head, bytes(body)
            else:
                return None

    async def read(self) -> None:
        """Wait for more data, or for the client to close the connection."""
        self.http.receive_data(await self.reader.read(MAX_BYTES))

    async def closed(self) -> None:
        """Wait until the client closes the connection or sends more than `MAX_BYTES`, which are kept."""
        received = 0
        while received <= MAX_BYTES and (data := await self.reader.read(MAX_BYTES)):
            self.http.receive_data(data)
            received += len(data)

    def write(self, event: h11.Event) -> None:
        """Write part of a response without waiting for the client to read it."""
        self.writer.write(self.http.send(event) or b"")


def _check_head(head: h11.Request) -> None:
    headers = dict(head.headers)
    if len(head.headers) > _MAX_HEADERS:
        raise h11.RemoteProtocolError("too many headers", error_status_hint=431)
    if b"content-length" in headers and b"transfer-encoding" in headers:
        # h11 uses the second. A proxy that uses the first would see different requests (RFC 9112, 6.1).
        raise h11.RemoteProtocolError("ambiguous body length")
    if int(headers.get(b"content-length", 0)) > MAX_BYTES:
        raise h11.RemoteProtocolError("body too large", error_status_hint=413)


class AsgiServer:
    """Serves an ASGI application on its own thread, from `start` to `stop`.

    Once ``max_connections`` are open, a new connection replaces the one that has been waiting for its client
    the longest; if all of them are being answered or trusted, the new one is closed. A connection is trusted
    if the application has sent `TRUST` for its latest request. ``request_timeout`` covers the TLS handshake
    and the whole request, ``idle_timeout`` the time between requests, both in seconds. Bodies over
    `MAX_BYTES` are refused with 413. The application receives each body in one piece, then
    ``http.disconnect``, and only requests: no lifespan events, no WebSockets.
    """

    def __init__(
        self,
        app: AsgiApp,
        listener: socket.socket,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        max_connections: int = 128,
        idle_timeout: float = 75.0,
        request_timeout: float = 10.0,
    ) -> None:
        """Take ownership of ``listener``; ``tls`` returns the TLS context for each new connection."""
        self._app = app
        self._listener = listener
        self._tls = tls
        self._max_connections = max_connections
        self._idle_timeout = idle_timeout
        self._request_timeout = request_timeout
        self._address = listener.getsockname()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="web", daemon=True)
        self._started = threading.Event()
        self._grace = 0.0
        self._tasks: dict[_Connection, asyncio.Task[None]] = {}
        self._waiting: dict[_Connection, None] = {}  # for the client; the longest wait comes first

    @property
    def port(self) -> int:
        """The port the server listens on."""
        port: int = self._address[1]
        return port

    @property
    def url(self) -> str:
        """The URL for clients on this machine, without a trailing slash."""
        host = {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}.get(self._address[0], self._address[0])  # noqa: S104  # not bound here
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        """Start serving."""
        self._thread.start()
        self._started.wait()

    def stop(self, timeout: float = 2.0) -> None:
        """Stop within ``timeout`` seconds, after the responses under way; may be called again."""
        if not self._started.is_set():
            self._listener.close()
            return
        self._grace = timeout * 0.75
        with suppress(RuntimeError):  # the loop is closed: stopped before
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("the web server did not stop in time")

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._pipelining = asyncio.Lock()
        # asyncio uses its backlog also as the number of connections to accept in a row. One at a time leaves
        # room in a flood for those that are already open.
        await asyncio.start_server(self._accept, sock=self._listener, backlog=1)
        self._listener.listen(BACKLOG)
        self._started.set()
        await self._stopping.wait()
        # `asyncio.Server.close` would leak the connections that it has accepted but not passed on yet.
        with suppress(NotImplementedError):  # on Windows, where it is not needed
            self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in list(self._waiting):
            if connection.http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                self._drop(connection)
        # asyncio's own tasks, which pass connections on, included. `asyncio.run` cancels what remains.
        if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks, timeout=self._grace)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= self._max_connections:
            longest = next((one for one in self._waiting if not one.trusted), None)
            if longest:
                self._drop(longest)
        if self._stopping.is_set() or len(self._tasks) >= self._max_connections:
            writer.transport.abort()
            return
        if self._tls and isinstance(writer.transport, asyncio.ReadTransport):
            writer.transport.pause_reading()  # the first bytes belong to the handshake
        connection = _Connection(reader, writer)
        self._waiting[connection] = None
        self._tasks[connection] = task = self._loop.create_task(self._run(connection))
        task.add_done_callback(lambda _: self._drop(connection))

    def _drop(self, connection: _Connection) -> None:
        self._waiting.pop(connection, None)
        connection.writer.transport.abort()
        if task := self._tasks.pop(connection, None):
            task.cancel()

    @asynccontextmanager
    async def _wait(self, connection: _Connection, seconds: float) -> AsyncIterator[None]:
        self._waiting[connection] = None
        try:
            async with asyncio.timeout(seconds):
                yield
        finally:
            self._waiting.pop(connection, None)

    async def _run(self, connection: _Connection) -> None:
        try:
            await self._converse(connection)
            connection.writer.close()
            # With TLS `drain` does not see what waits in the transport below.
            async with self._wait(connection, _WRITE_SECONDS):
                await connection.writer.wait_closed()
        except (OSError, HangUpError) as error:
            log.debug("connection closed", extra={"error": error})

    async def _converse(self, connection: _Connection) -> None:
        try:
            async with self._wait(connection, self._request_timeout):
                if self._tls:
                    await connection.start_tls(self._tls())
                request = await connection.request()
            while request and await self._answer(connection, *request):
                connection.http.start_next_cycle()
                if connection.http.trailing_data[0]:
                    # One request that was pipelined per turn of the loop, however many clients do so.
                    async with self._pipelining:
                        await asyncio.sleep(0)
                else:
                    async with self._wait(connection, self._idle_timeout):
                        await connection.read()
                async with self._wait(connection, self._request_timeout):
                    request = await connection.request()
        except h11.RemoteProtocolError as error:
            # An unknown transfer encoding is 501 to h11, but no fault of the server.
            await self._refuse(connection, error.error_status_hint if error.error_status_hint < 500 else 400)

    async def _answer(self, connection: _Connection, head: h11.Request, body: bytes) -> bool:
        """Run the application; return whether the connection can take another request."""
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if unread:
                return unread.pop()
            await connection.closed()
            return {"type": "http.disconnect"}

        scope = self._scope(head)
        connection.trusted = False
        try:
            await self._app(scope, receive, partial(self._send, connection))
        except HangUpError:
            raise
        except Exception:
            log.exception("request failed", extra={"method": scope["method"], "path": scope["path"]})
        if connection.http.our_state is h11.SEND_RESPONSE:
            await self._refuse(connection, 500)
        return connection.http.our_state is h11.DONE and not self._stopping.is_set()

    def _scope(self, head: h11.Request) -> Scope:
        path, _, query = head.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": head.http_version.decode(),
            "method": head.method.decode(),
            "scheme": "https" if self._tls else "http",
            "path": unquote(path.decode()),
            "query_string": query,
            "headers": list(head.headers),
            "extensions": {TRUST: {}},
        }

    async def _send(self, connection: _Connection, message: Message) -> None:
        if message["type"] == TRUST:
            connection.trusted = True
            return
        if message["type"] == "http.response.start":
            status: int = message["status"]
            headers = [(b"date", formatdate(usegmt=True).encode()), *message.get("headers", ())]
            headers += [(b"connection", b"close")] if self._stopping.is_set() else []
            reason = responses.get(status, "").encode()
            connection.write(h11.Response(status_code=status, headers=headers, reason=reason))
            return
        connection.write(h11.Data(data=message.get("body", b"")))
        if not message.get("more_body", False):
            connection.write(h11.EndOfMessage())
        try:
            async with self._wait(connection, _WRITE_SECONDS):
                await connection.writer.drain()
        except OSError as error:
            raise HangUpError from error

    async def _refuse(self, connection: _Connection, status: int) -> None:
        headers = [(b"content-length", b"0"), (b"connection", b"close")]
        await self._send(connection, {"type": "http.response.start", "status": status, "headers": headers})
        await self._send(connection, {"type": "http.response.body"})
