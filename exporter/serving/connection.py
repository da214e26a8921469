"""One HTTP/1.1 connection: its requests, read within limits, and what is written to it."""

import asyncio
import ssl
from urllib.parse import unquote

import h11

from exporter.serving.http import Request

MAX_BYTES = 16 * 1024  # per request head, per request body, and per read
_MAX_HEADERS = 100  # a parsed header takes many times the bytes of a short one
_LOOK_AGAIN = 0.05  # seconds


class Connection:
    """HTTP/1.1 connection to one client. The server enforces the time limits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.http = h11.Connection(h11.SERVER, MAX_BYTES)
        self.trusted = False
        self._socket = writer.transport
        self._socket.set_write_buffer_limits(high=1, low=0)

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Switch to TLS."""
        await self.writer.start_tls(context)
        self.writer.transport.set_write_buffer_limits(high=1, low=0)

    async def request(self) -> Request | None:
        """Return the next request, or None once the client has closed the connection.

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
                path, _, query = head.target.partition(b"?")
                return Request(
                    head.method.decode(),
                    unquote(path.decode()),
                    query.decode("latin-1"),
                    tuple(head.headers),
                    bytes(body),
                    self.disconnected,
                )
            else:
                return None

    async def read(self) -> None:
        """Wait for more data, or for the client to close the connection."""
        self.http.receive_data(await self.reader.read(MAX_BYTES))

    async def disconnected(self) -> None:
        """Wait until the client closes the connection or sends more than `MAX_BYTES`. Its data is kept."""
        received = 0
        while received <= MAX_BYTES and (data := await self.reader.read(MAX_BYTES)):
            self.http.receive_data(data)
            received += len(data)

    def write(self, event: h11.Event) -> None:
        """Write part of a response without waiting for the client to read it."""
        self.writer.write(self.http.send(event) or b"")

    async def sent(self) -> None:
        """Wait until everything written is sent, so that closing the connection loses nothing."""
        await self.writer.drain()
        # With TLS, `drain` waits only for the encryption.
        while self._socket.get_write_buffer_size():
            await asyncio.sleep(_LOOK_AGAIN)


def _check_head(head: h11.Request) -> None:
    headers = dict(head.headers)
    if len(head.headers) > _MAX_HEADERS:
        raise h11.RemoteProtocolError("too many headers", error_status_hint=431)
    if b"content-length" in headers and b"transfer-encoding" in headers:
        # h11 uses Transfer-Encoding; a proxy that uses Content-Length sees other requests (RFC 9112, 6.1).
        raise h11.RemoteProtocolError("ambiguous body length")
    if int(headers.get(b"content-length", 0)) > MAX_BYTES:
        raise h11.RemoteProtocolError("body too large", error_status_hint=413)
