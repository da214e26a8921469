"""What an application and the server agree on: ASGI 3, whole bodies of bounded size, a way to hang up."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 64 * 1024


async def hang_up(scope: Scope, receive: Receive) -> None:
    """Cut the connection of a request without an answer; for an application that `AsgiServer` runs."""
    scope["state"]["hang_up"]()
    # Only once uvicorn knows of it may the application return without an answer.
    while (await receive())["type"] != "http.disconnect":
        pass


class _TooLargeError(Exception):
    """A body is over `MAX_BODY_BYTES`."""


class _AmbiguousError(Exception):
    """A request tells its body's length in two ways."""


class _GoneError(Exception):
    """The peer went away in the middle of its request."""


def bounded_bodies(app: AsgiApp) -> AsgiApp:
    """Give an application whole bodies of at most `MAX_BODY_BYTES`, of one length."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await _body(scope, receive)
            await app(scope, _replay(body, receive), send)
        except _TooLargeError:
            await _refuse(send, 413, b"413 Content Too Large\n")
        except _AmbiguousError:
            await _refuse(send, 400, b"400 Bad Request\n")
        except (_GoneError, asyncio.CancelledError):
            # Nobody is left to answer: the peer went, or the server stops, which uvicorn would log as the
            # application's failure.
            return

    return serve


async def _body(scope: Scope, receive: Receive) -> bytes:
    headers = dict(scope["headers"])
    if b"content-length" in headers and b"transfer-encoding" in headers:
        # A proxy in front may believe the other, and what is one request there is two here (RFC 9112, 6.1).
        raise _AmbiguousError
    if int(headers.get(b"content-length", b"0")) > MAX_BODY_BYTES:
        raise _TooLargeError
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        body += message["body"]
        if len(body) > MAX_BODY_BYTES:
            raise _TooLargeError
        if not message["more_body"]:
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return parts.pop() if parts else await receive()

    return replay


async def _refuse(send: Send, status: int, text: bytes) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
