"""One HTTP/1.1 connection: its requests, read within limits, and what is written to it."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import unquote

import h11

from exporter.serving.http import Request

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
