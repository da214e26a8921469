"""HTTP/1.1 server, built on h11 and asyncio streams.

docs/decisions/0001-web-server.md explains why no existing server is used.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from functools import partial
from http.client import responses

import h11

from exporter.serving.connection import Connection
from exporter.serving.http import Handler, HangUpError, Request, Response

log = logging.getLogger(__name__)

_WRITE_SECONDS = 30.0  # for the peer to read a response
_LOOK_AGAIN = 0.05  # seconds
_BUSY_SECONDS = 1.0  # for requests in progress to end


class Server:
    """Serves an application on its own thread, from `start` until `stop`.

    Once ``max_connections`` are open, a new connection replaces the one that has been idle the longest. If
    most are busy, it waits for them for up to a second; if all are trusted, it is closed. A connection is
    trusted if its latest request was authenticated. ``request_timeout`` covers the TLS handshake and the
    whole request, ``idle_timeout`` the time between requests, both in seconds. Bodies over 16 KiB are
    refused with 413. If the application raises an exception, the response is a 500.
    """

    def __init__(
        self,
        app: Handler,
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
        host, port, *_ = listener.getsockname()
        self._host: str = {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}.get(host, host)  # noqa: S104  # not bound here
        self.port: int = port
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="web", daemon=True)
        self._started = threading.Event()
        self._grace = 0.0
        self._tasks: dict[Connection, asyncio.Task[None]] = {}
        self._waiting: dict[Connection, None] = {}  # for the client; the longest wait comes first

    @property
    def url(self) -> str:
        """The URL for clients on this machine, without a trailing slash."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        """Start serving."""
        self._thread.start()
        self._started.wait()

    def stop(self, timeout: float = 2.0) -> None:
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
        self._pipelining = asyncio.Lock()
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
                protocol = partial(asyncio.StreamReaderProtocol, asyncio.StreamReader(), self._connected)
                await self._loop.connect_accepted_socket(protocol, peer)
            except OSError as error:  # the client has gone, or no more files can be opened
                log.debug("connection not accepted", extra={"error": error})
                await asyncio.sleep(_LOOK_AGAIN)
            # Reads a request that has arrived already, before another connection can replace this one.
            await self._yield()

    async def _yield(self) -> None:
        """Wait until what is ready has run, and what that makes ready."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def _make_room(self) -> bool:
        """Return whether another connection can be accepted, for which an idle one is closed."""
        deadline = self._loop.time() + _BUSY_SECONDS
        while len(self._tasks) >= self._max_connections:
            idle = [one for one in self._waiting if not one.trusted]
            busy = len(self._tasks) - len(self._waiting)
            # Where most are busy, those few that are idle have only just connected.
            if len(idle) > self._max_connections // 8 or not busy or self._loop.time() > deadline:
                if not idle:
                    return False
                self._drop(idle[0])
            else:
                await asyncio.sleep(_LOOK_AGAIN)
        return True

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stopping.is_set():
            writer.transport.abort()
            return
        if self._tls and isinstance(writer.transport, asyncio.ReadTransport):
            writer.transport.pause_reading()  # the first bytes belong to the handshake
        connection = Connection(reader, writer)
        self._waiting[connection] = None
        self._tasks[connection] = task = self._loop.create_task(self._run(connection))
        task.add_done_callback(lambda _: self._drop(connection))

    def _drop(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        connection.writer.transport.abort()
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
            connection.writer.close()
        except (OSError, HangUpError) as error:
            log.debug("connection closed", extra={"error": error})

    async def _converse(self, connection: Connection) -> None:
        try:
            async with self._wait(connection, self._request_timeout):
                if self._tls:
                    await connection.start_tls(self._tls())
                request = await connection.request()
            while request and await self._answer(connection, request):
                connection.http.start_next_cycle()
                if connection.http.trailing_data[0]:
                    # One pipelined request per iteration of the event loop, for all clients together.
                    async with self._pipelining:
                        await asyncio.sleep(0)
                else:
                    async with self._wait(connection, self._idle_timeout):
                        await connection.read()
                async with self._wait(connection, self._request_timeout):
                    request = await connection.request()
        except h11.RemoteProtocolError as error:
            # h11 suggests 501 for an unknown transfer encoding, but that is a client error.
            await self._refuse(connection, error.error_status_hint if error.error_status_hint < 500 else 400)

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
            connection.write(h11.Data(data=response.body))
        await self._send(connection, h11.EndOfMessage())

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

    async def _send(self, connection: Connection, event: h11.Event) -> None:
        """Write part of a response, and wait until the client has received everything written.

        Raises:
            HangUpError: the client did not read it in time, or has disconnected.
        """
        connection.write(event)
        try:
            async with self._wait(connection, _WRITE_SECONDS):
                await connection.sent()
        except OSError as error:
            raise HangUpError from error
