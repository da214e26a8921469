"""A server driven by hand: each request goes to a function that writes to the bare socket what it likes."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec


class Request(msgspec.Struct, frozen=True):
    """One request as it came in; header names in lower case, ``at`` in seconds of the monotonic clock."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Respond = Callable[["Connection", Request], None]
# Takes a connection over before its first request, for TLS.
Wrap = Callable[[socket.socket], socket.socket]


class Connection:
    def __init__(self, sock: socket.socket, stopping: threading.Event) -> None:
        self.sock = sock
        self.stopping = stopping

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def drip(self, data: bytes, pause: float = 0.02) -> None:
        """Send byte by byte, until all is sent or the server stops."""
        for number in range(len(data)):
            self.send(data[number : number + 1])
            if self.stopping.wait(pause):
                return

    def hang_up(self) -> None:
        self.sock.shutdown(socket.SHUT_RDWR)


class HttpServer:
    """Listens on loopback until `stop`; keeps the requests and counts the connections."""

    def __init__(self, respond: Respond, wrap: Wrap | None = None, port: int = 0) -> None:
        self.respond = respond
        self.requests: list[Request] = []
        self.connections = 0
        self.stopping = threading.Event()
        self._wrap = wrap
        self._socks: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept, name="http-server")]
        self._threads[0].start()

    def stop(self) -> None:
        self.stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                self._socks.append(sock)
                thread = threading.Thread(target=self._serve, args=(sock,), name="http-server-connection")
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            wrapped = self._wrap(sock) if self._wrap else sock
            # TLS takes the file descriptor with it.
            self._socks.append(wrapped)
            with wrapped, wrapped.makefile("rb") as file:
                while request := _read_request(file):
                    self.requests.append(request)
                    self.respond(Connection(wrapped, self.stopping), request)


def _read_request(file: Any) -> Request | None:
    readline: Callable[[], bytes] = file.readline
    start = readline().decode().split()
    if len(start) != 3:
        return None
    at = time.monotonic()
    headers: dict[str, str] = {}
    while line := readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body: bytes = file.read(int(headers.get("content-length", "0")))
    return Request(start[0], start[1], headers, body, at)


@contextlib.contextmanager
def serving(respond: Respond | bytes, wrap: Wrap | None = None, port: int = 0) -> Iterator[HttpServer]:
    """Run a server that answers every request by a function, or with these bytes."""
    if isinstance(respond, bytes):
        raw = respond
        server = HttpServer(lambda connection, _request: connection.send(raw), wrap, port)
    else:
        server = HttpServer(respond, wrap, port)
    try:
        yield server
    finally:
        server.stop()


def answer(body: bytes = b"", status: str = "200 OK", headers: str = "") -> bytes:
    """Return the bytes of a well-formed answer; each of ``headers`` ends in CR LF."""
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def then_hang_up(data: bytes) -> Respond:
    """Answer with these bytes and the end of the connection."""

    def respond(connection: Connection, _: Request) -> None:
        connection.send(data)
        connection.hang_up()

    return respond


def endless(head: bytes, piece: bytes) -> Respond:
    """Answer with a head and then the same piece, for as long as the client takes it."""

    def respond(connection: Connection, _: Request) -> None:
        connection.send(head)
        many = piece * (65536 // len(piece))
        while not connection.stopping.is_set():
            connection.send(many)

    return respond


def dripping(head: bytes, drops: bytes) -> Respond:
    """Answer with a head at once and the rest byte by byte, each well within any timeout of a single read."""

    def respond(connection: Connection, _: Request) -> None:
        connection.send(head)
        connection.drip(drops)

    return respond
