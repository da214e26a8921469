"""The connections of a server: who is let in, how long each may take, who has to go where room is short."""

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from enum import IntEnum
from typing import Any

import h11

from exporter.serving.lean import Config, H11Protocol, ServerState

log = logging.getLogger(__name__)

# How long a peer may take to read what it is sent: all that waits for it, or the last before the end.
_FLUSH_SECONDS = 30.0
# A new connection counts as silent only after that long: a scrape must get its turn amid a flood.
_GRACE_SECONDS = 1.0
# Turns of the event loop until a connection that was cut, through TLS too, has told uvicorn so: until then an
# application that returns without an answer is logged as an error.
_TURNS_TO_END = 10


@dataclass(frozen=True)
class Limits:
    """``max_connections`` at once; both timeouts are in seconds."""

    max_connections: int
    idle_timeout: float
    request_timeout: float


class Phase(IntEnum):
    """What a connection is doing; where room is short, the lowest goes first and the last never."""

    RECEIVING = 0  # nothing asked yet, or a request is on its way
    IDLE = 1
    CLOSING = 2
    SENDING = 3  # an answer is ready, and the peer takes no more of it for now
    WORKING = 4


class Connection(H11Protocol):
    """A connection that is cut when its peer takes too long.

    A request, body included, must be there ``request_timeout`` seconds after the connection was made or its
    first byte came, however its bytes drip; between requests it may rest for ``idle_timeout``. A peer that
    asks and does not read is waited for as long as one that is to read the last of it.
    """

    def __init__(self, host: "Host") -> None:
        super().__init__(host.config, host.state, {"hang_up": self.cut}, host.loop)
        self.logger = host.uvicorn_log
        self.access_log = False
        self._host = host
        self._timer: asyncio.TimerHandle | None = None
        self.handshake: asyncio.Task[Any] | None = None
        self.made = False
        self._stalled = False
        self.phase = Phase.RECEIVING
        self.since = host.loop.time()

    def cut(self) -> None:
        """Close at once, whatever is under way."""
        if self.made:
            self.transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin to wait for a request; with TLS, after the handshake."""
        super().connection_made(transport)
        self.made = True
        self._enter(Phase.RECEIVING)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind."""
        super().connection_lost(exc)
        # uvicorn leaves its timer running where the peer reset the connection.
        self._unset_keepalive_if_required()
        self._stop_timer()
        self._host.forget(self)

    def data_received(self, data: bytes) -> None:
        """Take what the peer sent, and hand a request that is complete to the application."""
        if self.conn.their_state is h11.MUST_CLOSE:
            # More behind a request that was to be the last: uvicorn would answer twice, and log the second.
            return
        if self.phase is Phase.IDLE:
            self._enter(Phase.RECEIVING)
        # uvicorn's own server takes the time of day once a second, which would be a reason to wake.
        self.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        super().data_received(data)
        self._settle()

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for one."""
        super().on_response_complete()
        self._settle()

    def pause_writing(self) -> None:
        """Begin to wait for the peer to read."""
        super().pause_writing()
        self._stalled = True
        self._enter(Phase.SENDING)

    def resume_writing(self) -> None:
        """Go on once it has."""
        super().resume_writing()
        self._stalled = False
        self._enter(Phase.WORKING)
        self._settle()

    def _settle(self) -> None:
        """Find the phase after something has happened; the patience for a request is never renewed by it."""
        if self.transport.is_closing():
            self._enter(Phase.CLOSING)
        elif self._stalled:
            return
        elif self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}:
            self._enter(Phase.WORKING)
        elif self.phase is Phase.WORKING:
            # The answer is out; a part of the next request may have come behind the last.
            more = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
            self._enter(Phase.RECEIVING if more else Phase.IDLE)

    def _enter(self, phase: Phase) -> None:
        self._stop_timer()
        self.phase, self.since = phase, self.loop.time()
        seconds = self._host.patience[phase]
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self.cut)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Host:
    """The connections of a server, in its event loop: admission, room, and their end."""

    def __init__(self, config: Config, tls: ssl.SSLContext | None, limits: Limits) -> None:
        self.loop = asyncio.get_running_loop()
        self.config = config
        self.state = ServerState()
        self.uvicorn_log = logging.getLogger(f"{__name__}.uvicorn")
        # Below errors uvicorn tells of every bad request: whoever scans the port would fill the log.
        self.uvicorn_log.setLevel(logging.ERROR)
        self.patience = {
            Phase.RECEIVING: limits.request_timeout,
            Phase.IDLE: limits.idle_timeout + _FLUSH_SECONDS,  # uvicorn itself closes them, politely
            Phase.CLOSING: _FLUSH_SECONDS,
            Phase.SENDING: _FLUSH_SECONDS,
            Phase.WORKING: None,
        }
        self._tls = tls
        self._limits = limits
        self._open: set[Connection] = set()

    async def accept(self, listener: socket.socket) -> None:
        """Take connections until cancelled."""
        while True:
            try:
                peer = await self._next(listener)
            except (BlockingIOError, ConnectionError):
                continue
            except OSError as error:
                log.warning("cannot accept connections for now", extra={"error": error})
                await asyncio.sleep(1)
                continue
            if self._make_room():
                self._admit(peer)
            else:
                peer.close()
            # A queue of connections must not keep those that are here from being served.
            await asyncio.sleep(0)

    async def _next(self, listener: socket.socket) -> socket.socket:
        """Give the next connection.

        Not by `sock_accept`: cancelled with a connection in its hands it loses that, and leaves it open.
        """
        ready = asyncio.Event()
        try:
            self.loop.add_reader(listener, ready.set)
        except NotImplementedError:
            # On Windows there is nothing else.
            return (await self.loop.sock_accept(listener))[0]
        try:
            await ready.wait()
        finally:
            self.loop.remove_reader(listener)
        peer, _ = listener.accept()
        peer.setblocking(False)
        return peer

    def _make_room(self) -> bool:
        if len(self._open) < self._limits.max_connections:
            return True
        young = self.loop.time() - _GRACE_SECONDS
        idle = [one for one in self._open if one.phase is not Phase.WORKING]
        if not idle:
            return False
        victim = min(
            idle, key=lambda one: (one.phase is Phase.RECEIVING and one.since > young, one.phase, one.since)
        )
        self._open.discard(victim)
        victim.cut()
        return True

    def _admit(self, peer: socket.socket) -> None:
        with suppress(OSError):
            # asyncio sets it only on sockets made for TCP by name; without it an answer waits 40 ms for the
            # peer's acknowledgement, as head and body are written apart.
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self)
        tls: dict[str, Any] = {}
        if self._tls:
            timeout = self._limits.request_timeout
            tls = {"ssl": self._tls, "ssl_handshake_timeout": timeout, "ssl_shutdown_timeout": timeout}
        taking = self.loop.connect_accepted_socket(lambda: connection, peer, **tls)

        def taken(task: asyncio.Task[Any]) -> None:
            if not connection.made:
                self.forget(connection)
                peer.close()
            if not task.cancelled() and task.exception():
                log.debug("connection failed", extra={"error": task.exception()})

        self._open.add(connection)
        connection.handshake = self.loop.create_task(taking)
        connection.handshake.add_done_callback(taken)

    def forget(self, connection: Connection) -> None:
        """Let a connection go that has ended."""
        self._open.discard(connection)

    async def close(self, grace: float) -> None:
        """End all connections; those being answered get ``grace`` seconds."""
        for connection in list(self._open):
            if connection.phase in {Phase.SENDING, Phase.WORKING}:
                connection.shutdown()
            else:
                connection.cut()
        until = self.loop.time() + grace
        while self._open and self.loop.time() < until:
            await asyncio.sleep(0.01)
        for connection in list(self._open):
            connection.cut()
        for _ in range(_TURNS_TO_END):
            await asyncio.sleep(0)
        for task in self.state.tasks:
            task.cancel()
        await asyncio.gather(*self.state.tasks, return_exceptions=True)
