"""HTTP requests and responses."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus

import msgspec
from msgspec.structs import replace

TEXT = "text/plain; charset=utf-8"
JSON = "application/json; charset=utf-8"
HTML = "text/html; charset=utf-8"


class HangUpError(Exception):
    """Raised by an application to close the connection without a response."""


class Request(msgspec.Struct, frozen=True):
    """A complete request."""

    method: str
    path: str  # percent-decoded
    query: str  # as it was sent
    headers: tuple[tuple[bytes, bytes], ...]  # names in lower case
    body: bytes
    client: str = ""  # its address

    def header(self, name: bytes) -> str:
        """Return a header's values, joined by commas (RFC 9110, 5.3); "" if it is absent."""
        return ",".join(value.decode("latin-1") for key, value in self.headers if key == name)


class Response(msgspec.Struct, frozen=True):
    """A complete response."""

    body: bytes
    content_type: str = TEXT
    status: int = 200
    headers: Mapping[str, str] = {}  # override the default ones; names in lower case
    authenticated: bool = False  # whether the client sent a correct password
    parts: Iterator[bytes] | None = None  # the body in the parts in which it is sent

    def all_headers(self) -> dict[str, str]:
        """Return all headers, with names in lower case."""
        # A length in a 304 would be that of the body that is not sent (RFC 9110, 8.6).
        has_length = self.status != HTTPStatus.NOT_MODIFIED
        return {
            "content-type": self.content_type,
            **({"content-length": str(len(self.body))} if has_length else {}),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **self.headers,
        }


Handler = Callable[[Request], Response]


def text(message: str, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    """Return a response with a line of plain text."""
    return Response(f"{message}\n".encode(errors="replace"), TEXT, status, headers)


def tagged(request: Request, response: Response) -> Response:
    """Return the response with an ETag of its body, or a 304 if the client has it (RFC 9110, 13.1.2)."""
    tag = f'"{hashlib.sha256(response.body).hexdigest()}"'
    tags = [text.strip().removeprefix("W/") for text in request.header(b"if-none-match").split(",")]
    headers = {**response.headers, "etag": tag}
    if request.method in ("GET", "HEAD") and (tag in tags or "*" in tags):
        return replace(response, body=b"", status=HTTPStatus.NOT_MODIFIED.value, headers=headers)
    return replace(response, headers=headers)
