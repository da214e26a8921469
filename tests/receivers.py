"""Receivers on loopback: HTTP of any mood, mail, and a TLS proxy in front of services that are elsewhere."""

import asyncio
import contextlib
import email
import email.policy
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiosmtpd.controller import Controller

from tests.end_to_end.program import free_port
from tests.http_server import Connection, Request, answer, serving


@dataclass
class Receiver:
    """An HTTP server that keeps what it gets; ``mood`` is a status to answer, or what else it does.

    That is "hang", "drip" or "reset". A function is called with the body, and returns one of these.
    """

    mood: int | str | Callable[[bytes], int | str] = 200
    answer: bytes = b"{}"
    answer_headers: dict[str, str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    def take(self, connection: Connection, request: Request) -> None:
        """Answer as the mood is, and hang up; what is answered well is kept."""
        if len(request.body) < int(request.headers.get("content-length", 0)):
            # Whoever sent it was killed over it.
            return
        match mood := self.mood(request.body) if callable(self.mood) else self.mood:
            case "hang":
                self.released.wait(60)
            case "drip":
                connection.drip(b"HTTP/1.1 503 Busy\r\nX-Slow: " + b"x" * 1000, 0.05)
            case "reset":
                linger = struct.pack("ii", 1, 0)
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                raise ConnectionResetError
            case _:
                if mood == 200:
                    self.requests.append(request)
                self._answer(connection, int(mood))
        connection.hang_up()

    def _answer(self, connection: Connection, status: int) -> None:
        headers = {"Content-Length": str(len(self.answer)), "Connection": "close"} | self.answer_headers
        lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in headers.items())]
        connection.send("\r\n".join([*lines, "", ""]).encode() + self.answer)


def after(seconds: float, status: int = 200) -> Callable[[bytes], int]:
    """Return the mood of a receiver that answers after some time."""

    def take(_: bytes) -> int:
        threading.Event().wait(seconds)
        return status

    return take


@contextlib.contextmanager
def http_receiver(
    mood: int | str | Callable[[bytes], int | str] = 200, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    receiver = Receiver(mood)
    wrap = partial(tls.wrap_socket, server_side=True) if tls else None
    with serving(receiver.take, wrap, port) as server:
        receiver.port = server.port
        try:
            yield receiver
        finally:
            receiver.released.set()


@dataclass
class Mailbox:
    port: int = 0
    reply: str = "250 OK"
    # How long it takes to reply once it has the mail.
    seconds: float = 0.0
    mails: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802  # its name
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        await asyncio.sleep(self.seconds)
        return self.reply


@contextlib.contextmanager
def mail_receiver() -> Iterator[Mailbox]:
    mailbox = Mailbox(free_port())
    controller = Controller(mailbox, hostname="127.0.0.1", port=mailbox.port)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()


@dataclass
class TlsProxy:
    """A proxy that responds for every host itself, with certificates of its own authority."""

    answers: dict[str, tuple[int, bytes]]
    authority: trustme.CA = field(default_factory=trustme.CA)
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    def enter(self, sock: socket.socket) -> ssl.SSLSocket:
        """Take CONNECT and a handshake, and return the connection inside."""
        sock.settimeout(10)
        host = _read_head(sock).split()[1].decode().partition(":")[0]
        sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(host).configure_cert(context)
        return context.wrap_socket(sock, server_side=True)

    def respond(self, connection: Connection, request: Request) -> None:
        self.requests.append(request)
        status, body = self.answers.get(request.headers["host"], (200, b"ok"))
        connection.send(answer(body, f"{status} -", "Connection: close\r\n"))
        connection.hang_up()


def _read_head(sock: socket.socket) -> bytes:
    """Read up to the empty line, and not a byte more."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        if not byte:
            raise ConnectionError("closed")
        head += byte
    return head


@contextlib.contextmanager
def tls_proxy(answers: dict[str, tuple[int, bytes]]) -> Iterator[TlsProxy]:
    """Run the proxy on loopback; ``answers`` are status and body by host."""
    proxy = TlsProxy(answers)
    with serving(proxy.respond, proxy.enter) as server:
        proxy.port = server.port
        yield proxy


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
