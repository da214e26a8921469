"""Receivers on loopback: HTTP of any mood, mail, and a TLS proxy in front of services that are elsewhere."""

import contextlib
import email
import email.policy
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiosmtpd.controller import Controller

from tests.end_to_end.program import free_port


@dataclass
class Received:
    """A request: where it was for, and what was in it; header names in lower case, ``at`` is monotonic."""

    host: str
    path: str
    body: bytes
    headers: dict[str, str]
    at: float = field(default_factory=time.monotonic)
    answered: bool = True

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


@dataclass
class Receiver:
    """An HTTP server that keeps what it gets; ``mood`` is a status to answer, or what else it does.

    That is "hang", "drip", "garbage" or "reset"; or "lose", which is to take a request and never say so. A
    function is called with the body, and returns one of these.
    """

    mood: int | str | Callable[[bytes], int | str] = 200
    answer: bytes = b"{}"
    answer_headers: dict[str, str] = field(default_factory=dict)
    requests: list[Received] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def authority(self) -> str:
        """Where it is, for a URL."""
        return f"127.0.0.1:{self.port}"

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        """Read a request, and answer as the mood is; what is answered well is kept."""
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length)
        if len(body) < length:
            # Whoever sent it was killed over it.
            return
        match mood := self.mood(body) if callable(self.mood) else self.mood:
            case "hang":
                self.released.wait(60)
            case "drip":
                self._drip(handler)
            case "garbage":
                handler.wfile.write(b"220 mail.example.com ESMTP\r\n")
            case "reset":
                linger = struct.pack("ii", 1, 0)
                handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                socket.close(handler.connection.detach())
            case 200 | "lose":
                headers = {name.lower(): value for name, value in handler.headers.items()}
                answered = mood == 200
                received = Received(headers.get("host", ""), handler.path, body, headers, answered=answered)
                self.requests.append(received)
                if answered:
                    self._answer(handler, 200)
            case _:
                self._answer(handler, int(mood))

    def _answer(self, handler: BaseHTTPRequestHandler, status: int) -> None:
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(self.answer))} | self.answer_headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(self.answer)

    def _drip(self, handler: BaseHTTPRequestHandler) -> None:
        with contextlib.suppress(OSError):
            for letter in b"HTTP/1.1 503 Busy\r\nX-Slow: " + b"x" * 1000:
                if self.released.wait(0.05):
                    return
                handler.wfile.write(bytes([letter]))


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Take it."""
            self.close_connection = True
            with contextlib.suppress(OSError):
                receiver.take(self)

        do_PUT = do_GET = do_POST  # noqa: N815  # the names that http.server asks for

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


@contextlib.contextmanager
def http_receiver(
    mood: int | str | Callable[[bytes], int | str] = 200, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    """Serve on loopback, until the end of the block."""
    receiver = Receiver(mood)
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(receiver))
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Mailbox:
    """What a mail server got."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802  # its name
        """Keep a mail."""
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 OK"


@contextlib.contextmanager
def mail_receiver() -> Iterator[Mailbox]:
    """Run a real SMTP server on loopback."""
    mailbox = Mailbox(free_port())
    controller = Controller(mailbox, hostname="127.0.0.1", port=mailbox.port)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()


@dataclass
class TlsProxy:
    """A proxy that answers for every host itself, with certificates of its own authority."""

    answers: dict[str, tuple[int, bytes]]
    authority: trustme.CA = field(default_factory=trustme.CA)
    requests: list[Received] = field(default_factory=list)
    port: int = 0

    def serve(self, connection: socket.socket) -> None:
        """Take one connection: CONNECT, a handshake, requests."""
        with connection, contextlib.suppress(OSError):
            connection.settimeout(10)
            head = _read_head(connection)
            host = head.split()[1].decode().partition(":")[0]
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.authority.issue_cert(host).configure_cert(context)
            with context.wrap_socket(connection, server_side=True) as inner:
                self._answer(inner, host)

    def _answer(self, inner: ssl.SSLSocket, host: str) -> None:
        head = _read_head(inner)
        path = head.split()[1].decode()
        fields = email.message_from_bytes(head.partition(b"\r\n")[2])
        headers = {name.lower(): str(value) for name, value in fields.items()}
        body = b""
        while len(body) < int(headers.get("content-length", 0)):
            body += inner.recv(65536)
        self.requests.append(Received(host, path, body, headers))
        status, answer = self.answers.get(host, (200, b"ok"))
        lines = f"HTTP/1.1 {status} -\r\nContent-Length: {len(answer)}\r\nConnection: close\r\n\r\n"
        inner.sendall(lines.encode() + answer)


def _read_head(connection: socket.socket) -> bytes:
    """Read up to the empty line, and not a byte more."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            raise ConnectionError("closed")
        head += byte
    return head


@contextlib.contextmanager
def tls_proxy(answers: dict[str, tuple[int, bytes]]) -> Iterator[TlsProxy]:
    """Run the proxy on loopback; ``answers`` are status and body by host."""
    proxy = TlsProxy(answers)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.port = listener.getsockname()[1]

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=proxy.serve, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextlib.contextmanager
def in_place_of_services(
    answers: dict[str, tuple[int, bytes]], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Iterator[TlsProxy]:
    """Run the proxy, and send all HTTPS of this process and its children through it."""
    with tls_proxy(answers) as proxy:
        authority = folder / "ca.pem"
        proxy.authority.cert_pem.write_to_path(str(authority))
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
        yield proxy
