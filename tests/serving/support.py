"""What the tests of `exporter.serving` share: applications, a server, and ways to ask it."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from exporter.serving import AsgiApp, AsgiServer, Receive, Scope, Send, listen

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of the body that came."""
    body = (await receive())["body"]
    text = f"{scope['method']} {len(body)}".encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]}
    )
    await send({"type": "http.response.body", "body": text})


class Gate:
    """An application that answers when it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait, then answer."""
        self.entered.release()
        while not self.open.is_set():
            await asyncio.sleep(0.005)
        await echo(scope, receive, send)


@contextmanager
def serving(app: AsgiApp = echo, **options: Any) -> Iterator[AsgiServer]:
    """Serve on a loopback port until the block ends."""
    server = AsgiServer(app, listen("127.0.0.1:0"), **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def connect(server: AsgiServer) -> socket.socket:
    """Open a connection."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def ask(server: AsgiServer, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, bytes]:
    """Send one request over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, "/", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def answer(peer: socket.socket) -> bytes:
    """Read the answer to a GET, whose head and body may come apart."""
    found = b""
    while not found.endswith(b"GET 0"):
        part = peer.recv(1000)
        assert part, found
        found += part
    return found


def is_closed(peer: socket.socket) -> bool:
    """Wait until the server closes a connection; what it sends before is skipped."""
    try:
        while peer.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True
