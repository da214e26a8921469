"""Clients that attack a port over many connections, from a process of their own."""

import asyncio
import base64
import contextlib
import itertools
import multiprocessing
import ssl
from collections.abc import Iterator

from tests.serving.support import HELLO

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


class Attacker:
    """One of many clients, each with a ``number``; with ``tls`` its connections begin with a handshake."""

    def __init__(self, port: int, number: int, tls: ssl.SSLContext | None) -> None:
        self._port, self._number, self._tls = port, number, tls
        self._trials = itertools.count()

    async def guess(self) -> None:
        """Try a wrong password."""
        guessed = base64.b64encode(f"prom:{self._number} {next(self._trials)}".encode()).decode()
        reader = await self._send(
            GET.replace(b"\r\n\r\n", f"\r\nAuthorization: Basic {guessed}\r\n\r\n".encode())
        )
        await reader.read(1000)

    async def get(self) -> None:
        """Ask without a password."""
        await (await self._send(GET)).read(1000)

    async def pipeline(self) -> None:
        """Send many requests at once."""
        await (await self._send(GET * 200)).read()

    async def keep_silent(self) -> None:
        """Send nothing, and wait until the server closes the connection."""
        await (await self._send(b"")).read()

    async def drip(self) -> None:
        """Send a byte now and then."""
        reader = await self._send(b"G")
        while not reader.at_eof():
            await asyncio.sleep(0.5)
            self._writer.write(b"G")

    async def send_half(self) -> None:
        """Send a request just within the limits, but for its end, and wait until the server closes it."""
        headers = b"a: b\r\n" * 90 if self._number % 2 else b"a: " + b"b" * 15_000 + b"\r\n"
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 16000\r\n" + headers + b"\r\n"
        await (await self._send(head + b"x" * 15_999)).read(1000)

    async def scrape(self) -> None:
        """Ask for a large answer; every other client reads no more than a little of it."""
        path = ("/metrics", "/api/v1/events", "/")[self._number % 3]
        reader = await self._send(GET.replace(b"/metrics", path.encode()), limit=1024)
        await (reader.read(1000) if self._number % 2 else reader.read())
        await asyncio.sleep(self._number % 2 * 5)

    async def shake_hands(self) -> None:
        """Begin a TLS handshake whose first message never ends."""
        self._tls = None
        await (await self._send(HELLO)).read()

    async def repeat(self, kind: str) -> None:
        """Do one of the above forever, each time over a new connection."""
        while True:
            with contextlib.suppress(OSError):
                await getattr(self, kind)()
                self._writer.close()

    async def _send(self, sent: bytes, limit: int = 2**16) -> asyncio.StreamReader:
        reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._tls, limit=limit
        )
        self._writer.write(sent)
        return reader


def _attack(kind: str, port: int, connections: int, secure: bool) -> None:
    async def run() -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        clients = [Attacker(port, number, tls if secure else None) for number in range(connections)]
        await asyncio.gather(*(client.repeat(kind) for client in clients))

    asyncio.run(run())


@contextlib.contextmanager
def attacked(kind: str, port: int, connections: int = 260, *, secure: bool = False) -> Iterator[None]:
    """Attack a port from another process, as a method of `Attacker` does, until the end of the block."""
    spawn = multiprocessing.get_context("spawn")
    attacker = spawn.Process(target=_attack, args=(kind, port, connections, secure))
    attacker.start()
    try:
        yield
        assert attacker.is_alive(), f"the attack {kind} ended by itself"
    finally:
        attacker.kill()
        attacker.join()
