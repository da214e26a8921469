"""Helpers for the tests of `exporter.serving`: applications, a server, and clients."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from exporter.serving.addresses import listen
from exporter.serving.http import Handler, Request, Response
from exporter.serving.server import Server

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def _hello() -> bytes:
    """Return the beginning of a TLS handshake with as large a first message as OpenSSL accepts."""
    message = b"\x01" + (130_000).to_bytes(3, "big") + b"\x03\x03" + b"a" * 120_000
    pieces = [message[start : start + 2**14] for start in range(0, len(message), 2**14)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


HELLO = _hello()


def echo(request: Request) -> Response:
    return Response(f"{request.method} {len(request.body)}".encode())


class Gate:
    """An application that answers when it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, request: Request) -> Response:
        self.entered.release()
        self.open.wait()
        return echo(request)


@contextmanager
def serving(app: Handler = echo, **options: Any) -> Iterator[Server]:
    server = Server(app, listen("127.0.0.1:0"), **options)
    server.start()
    try:
        yield server
    finally:
        server.stop(2.0)


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def ask(server: Server, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, bytes]:
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
