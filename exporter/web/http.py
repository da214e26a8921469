"""The little of HTTP that the handlers need: a request, a response, and ASGI between them and the server."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

TEXT = "text/plain; charset=utf-8"
JSON = "application/json; charset=utf-8"
HTML = "text/html; charset=utf-8"


class Request(msgspec.Struct, frozen=True):
    """A request's head: ``path`` is decoded, ``query`` is as the client wrote it."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def of(cls, scope: Scope) -> "Request":
        """Read an ASGI ``http`` scope."""
        query = scope.get("query_string", b"").decode("latin-1")
        return cls(scope["method"], scope["path"], query, tuple(scope["headers"]))

    def header(self, name: bytes) -> str:
        """Return a header's values, joined by commas as RFC 9110, 5.3 allows; "" where there is none."""
        return ",".join(value.decode("latin-1") for key, value in self.headers if key.lower() == name)


class Response(msgspec.Struct, frozen=True):
    """A whole answer; ``headers`` come on top of those that `send` gives every answer, and beat them."""

    body: bytes
    content_type: str = TEXT
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response | Awaitable[Response]]


def text(message: str, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """Answer with a line of plain text."""
    return Response(f"{message}\n".encode(errors="replace"), TEXT, status, headers)


def failure(status: HTTPStatus, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """Answer with nothing but the status in words."""
    return text(f"{status.value} {status.phrase}", status.value, headers)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, which is cancelled once the client has disconnected.

    Raises:
        asyncio.CancelledError: the client has disconnected.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnected(receive))
    watching.add_done_callback(lambda _: working.cancel())
    try:
        return await working
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_response(send: Send, response: Response, extra: Mapping[str, str], *, head: bool) -> None:
    """Send an answer; ``extra`` are the headers that the web configuration adds, which beat all others."""
    headers = {
        "content-type": response.content_type,
        "content-length": str(len(response.body)),
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }
    headers |= {name.lower(): value for name, value in (*response.headers, *extra.items())}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": encoded})
    await send({"type": "http.response.body", "body": b"" if head else response.body})
