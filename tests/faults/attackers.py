"""Clients that attack a port over many connections, from a process of their own."""

import asyncio
import base64
import contextlib
import itertools
import multiprocessing
import ssl
from collections.abc import Iterator


async def guess(port: int, number: int, tls: ssl.SSLContext | None = None) -> None:
    """Try wrong passwords forever, each over its own connection."""
    for trial in itertools.count():
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            guessed = base64.b64encode(f"prom:{number} {trial}".encode()).decode()
            request = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {guessed}\r\n\r\n"
            writer.write(request.encode())
            await reader.read(1000)
            writer.close()


async def guess_over_tls(port: int, number: int) -> None:
    """Try wrong passwords as `guess` does, each after a handshake."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    await guess(port, number, tls)


async def send_half(port: int, number: int) -> None:
    """Send requests just within the limits, but for their end, and wait until the server closes them."""
    headers = b"a: b\r\n" * 90 if number % 2 else b"a: " + b"b" * 15_000 + b"\r\n"
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 16000\r\n" + headers + b"\r\n")
            writer.write(b"x" * 15_999)
            await reader.read(1000)
            writer.close()


async def scrape(port: int, number: int) -> None:
    """Ask for the largest answers forever; every other client reads no more than a little of them."""
    path = ("/metrics", "/api/v1/events", "/")[number % 3]
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await (reader.read(1000) if number % 2 else reader.read())
            await asyncio.sleep(number % 2 * 5)
            writer.close()


async def shake_hands(port: int, _: int) -> None:
    """Begin TLS handshakes whose first message never ends, forever."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HELLO)
            await reader.read()
            writer.close()


def _hello() -> bytes:
    """Return the beginning of a handshake with as large a first message as OpenSSL accepts."""
    message = b"\x01" + (130_000).to_bytes(3, "big") + b"\x03\x03" + b"a" * 120_000
    pieces = [message[start : start + 2**14] for start in range(0, len(message), 2**14)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


HELLO = _hello()
ATTACKS = {one.__name__: one for one in (guess, guess_over_tls, send_half, scrape, shake_hands)}


def _attack(kind: str, port: int, connections: int) -> None:
    async def run() -> None:
        await asyncio.gather(*(ATTACKS[kind](port, number) for number in range(connections)))

    asyncio.run(run())


@contextlib.contextmanager
def attacked(kind: str, port: int, connections: int = 260) -> Iterator[None]:
    """Attack a port from another process until the end of the block."""
    attacker = multiprocessing.get_context("spawn").Process(target=_attack, args=(kind, port, connections))
    attacker.start()
    try:
        yield
    finally:
        attacker.kill()
        attacker.join()
