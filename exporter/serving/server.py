"""The server: an application, listening sockets and a thread."""

import asyncio
import logging
import math
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from exporter.serving.asgi import AsgiApp, bounded_bodies
from exporter.serving.connections import Host, Limits
from exporter.serving.lean import Config, H11Protocol

log = logging.getLogger(__name__)


class AsgiServer:
    """An ASGI application, served on a thread of its own from `start` to `stop`.

    Of more than ``max_connections`` the longest silent is closed, then the longest idle, then who does not
    read its answer, and where all are being answered, the newest. A TLS handshake or a request that is not
    complete after ``request_timeout`` seconds, an answer that is not read after 30 s, and a connection unused
    for ``idle_timeout`` seconds, are closed; bodies over `MAX_BODY_BYTES` are answered 413. The application
    finds a body complete, and is told nothing of lifespan.
    """

    def __init__(
        self,
        app: AsgiApp,
        sockets: Sequence[socket.socket],
        *,
        ssl_context_factory: Callable[[], ssl.SSLContext | None] = lambda: None,
        max_connections: int = 256,
        idle_timeout: float = 75.0,
        request_timeout: float = 10.0,
    ) -> None:
        """Prepare; ``sockets`` listen already, at least one, and are the server's from now on."""
        self._sockets = list(sockets)
        self._tls = ssl_context_factory()
        self._limits = Limits(max_connections, idle_timeout, request_timeout)
        self._address = self._sockets[0].getsockname()
        self._config = Config(
            bounded_bodies(app),
            http=H11Protocol,
            ws="none",
            loop="asyncio",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=math.ceil(idle_timeout),
        )
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="web", daemon=True)
        self._started = threading.Event()
        self._grace = 0.0

    @property
    def port(self) -> int:
        """The port that is served on."""
        port: int = self._address[1]
        return port

    @property
    def url(self) -> str:
        """Where this machine finds it, without a final slash."""
        host = {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}.get(self._address[0], self._address[0])  # noqa: S104  # not bound here
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        """Begin to answer; returns once it does."""
        self._thread.start()
        self._started.wait()

    def stop(self, timeout: float = 2.0) -> None:
        """Close everything, within ``timeout`` seconds; answers under way get most of it. May be repeated."""
        if not self._started.is_set():
            self._close_sockets()
            return
        self._grace = timeout * 0.75
        with suppress(RuntimeError):  # the loop is closed: stopped before
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("the web server does not end; left behind")

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        host = Host(self._config, self._tls, self._limits)
        for listener in self._sockets:
            listener.setblocking(False)
        acceptors = [asyncio.create_task(host.accept(listener)) for listener in self._sockets]
        self._started.set()
        await self._stopping.wait()
        for acceptor in acceptors:
            acceptor.cancel()
        await asyncio.gather(*acceptors, return_exceptions=True)
        self._close_sockets()
        await host.close(self._grace)

    def _close_sockets(self) -> None:
        for listener in self._sockets:
            listener.close()
