"""HTTP requests and responses, and HTML pages rendered from Jinja2 templates."""

import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from importlib import resources

import msgspec
from msgspec.structs import replace

from exporter.model.wording import printable

TEXT = "text/plain; charset=utf-8"
JSON = "application/json; charset=utf-8"
HTML = "text/html; charset=utf-8"
# Each of many connections holds one.
_PIECE_BYTES = 16 * 1024


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
    parts: AsyncIterator[bytes] | None = None  # the body in the parts in which it is sent

    def pieces(self) -> Iterator[bytes]:
        """Return the body in pieces that each take little memory."""
        for start in range(0, len(self.body), _PIECE_BYTES):
            yield self.body[start : start + _PIECE_BYTES]

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


Handler = Callable[[Request], Awaitable[Response]]


def text(message: str, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    """Return a response with a line of plain text."""
    return Response(f"{message}\n".encode(errors="replace"), TEXT, status, headers)


def tagged(request: Request, response: Response) -> Response:
    """Return the response with an ETag of its body, or a 304 if the client has it (RFC 9110, 13.1.2)."""
    tag = f'"{hashlib.sha256(response.body).hexdigest()}"'
    known = [one.strip().removeprefix("W/") for one in request.header(b"if-none-match").split(",")]
    headers = {**response.headers, "etag": tag}
    if request.method in ("GET", "HEAD") and (tag in known or "*" in known):
        return replace(response, body=b"", status=HTTPStatus.NOT_MODIFIED.value, headers=headers)
    return replace(response, headers=headers)


def html_page(package: str, **values: object) -> Response:
    """Render the template ``page.html`` of a package. Values are escaped; no script but ``page.js`` may run.

    Besides ``values``, the template gets ``style`` (``page.css``) and ``script`` (``page.js``), which are
    included unescaped, and ``build``, a digest of all three files.
    """
    template, headers = _load(package)
    return Response(template(values).encode(), HTML, headers=headers)


@cache
def _load(package: str) -> tuple[Callable[..., str], Mapping[str, str]]:
    # Imported on first use: most VMs' pages are never viewed.
    from jinja2 import Environment, StrictUndefined

    folder = resources.files(package)
    html, style, script = (
        folder.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js")
    )
    environment = Environment(
        autoescape=True, finalize=_visible, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    own = {"style": style, "script": script, "build": _digest(html + style + script)}
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
        "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    headers = {"content-security-policy": policy, "referrer-policy": "no-referrer"}
    return environment.from_string(html, globals=own).render, headers


def _visible(value: object) -> object:
    """Return text on one line, with control characters and bidirectional marks replaced by ``?``.

    A bidirectional mark can affect the surrounding text, even outside its own element.
    """
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return printable(" ".join(value.split()))
    return value


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
