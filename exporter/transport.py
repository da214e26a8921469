"""HTTP for IMDS on top of requests: one deadline and one size limit for a whole exchange.

The read timeout of requests is one per ``recv``, so that a server which drips a byte a second holds its
caller for hours; and a negative chunk length makes `http.client` read, and keep, all that ever comes.
"""

import contextlib
import http.client
import io
import socket
import threading
import time
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from exporter.errors import ImdsError, PollOutcome

BODY_LIMIT = 8 * 1024 * 1024
# Head and chunk framing come on top of the body; a sane server needs nowhere near as much.
_WIRE_LIMIT = 2 * BODY_LIMIT
_EXCERPT_LIMIT = 4096
# Connects to IMDS that take 6 s have been reported; over 10 s nobody is there.
_CONNECT_SECONDS = 10.0


class Transport:
    """Exchanges with one server over keep-alive connections; safe to use from several threads.

    A session serves one exchange at a time, so that a slow fetch holds up no approval.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[requests.Session] = []
        self._closed = False

    def exchange(self, request: requests.Request, timeout: float) -> bytes:
        """Send a request and give the body of its answer, which has status 200.

        ``timeout`` is in seconds and for all of it, except that each further address of a host name may take
        10 s of connecting more.

        Raises:
            ImdsError: there is no such answer; `PollOutcome` has the possible reasons.
        """
        what = f"{request.method} {request.url.partition('?')[0]}"
        session = self._borrow()
        try:
            status, body = _ask(session, request, timeout)
        except (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError) as error:
            raise ImdsError(PollOutcome.TIMEOUT, f"{what}: no answer within {timeout:g} s") from error
        except Exception as error:
            # Not a list of types: a garbled answer may trip any bug of the four parsers beneath.
            raise ImdsError(PollOutcome.CONNECTION_ERROR, f"{what}: {cause(error)}") from error
        finally:
            self._give_back(session)
        if status != 200:
            reason = PollOutcome.THROTTLED if status == 429 else PollOutcome.HTTP_ERROR
            excerpt = _plain(body.decode(errors="replace"))
            raise ImdsError(reason, f"{what}: status {status}" + (f": {excerpt}" if excerpt else ""))
        if len(body) > BODY_LIMIT:
            limit = f"{BODY_LIMIT // 1024**2} MiB"
            raise ImdsError(PollOutcome.INVALID_DOCUMENT, f"{what}: the answer is over {limit}")
        return body

    def close(self) -> None:
        """Close idle connections, and those in use after use; later exchanges work, on fresh connections."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for session in idle:
            session.close()

    def _borrow(self) -> requests.Session:
        with self._lock:
            return self._idle.pop() if self._idle else _Session()

    def _give_back(self, session: requests.Session) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(session)
                return
        session.close()


class _Session(requests.Session):
    """A session that takes nothing from the environment, keeps no cookie and knows no redirect."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.mount("http://", DeadlineAdapter())
        self.mount("https://", DeadlineAdapter())

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002 - not our signature
        """Find none: even where redirects are not followed, requests reads their bodies to the end."""
        return None


class DeadlineAdapter(requests.adapters.HTTPAdapter):
    """Makes connections on which a timeout is for a whole answer, head and body, and no answer is endless."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Have the pools made of our classes."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}


class _DeadlineReader(io.RawIOBase):
    """A socket's input that ends when the time left at its making is over, or the wire limit reached."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        super().__init__()
        self._sock = sock
        self._raw = raw
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)
        self._allowed = _WIRE_LIMIT

    def readable(self) -> bool:
        """Say that it is."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Read what is there, or wait for it no longer than the deadline."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(remaining)
        count: int | None = self._raw.readinto(buffer)
        self._allowed -= count or 0
        if self._allowed < 0:
            raise OSError("the answer has no end")
        return count

    def close(self) -> None:
        """Let the socket go."""
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """Reads through `_DeadlineReader`; urllib3 has just given the socket what is left of the total."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_DeadlineReader(sock, self.fp.detach()))


class _Connection(HTTPConnection):
    response_class = _Response

    def _new_conn(self) -> socket.socket:
        # urllib3 would give a TLS handshake as much time again.
        started = time.monotonic()
        sock = super()._new_conn()
        left = (self.timeout or 0.0) - (time.monotonic() - started)
        sock.settimeout(max(left, 0.001))
        return sock

    def getresponse(self) -> Any:
        sock = self.sock
        try:
            return super().getresponse()
        except Exception:
            # urllib3 forgets a response whose head it cannot take, and its socket stays open.
            if sock is not None and (descriptor := sock.detach()) >= 0:
                socket.close(descriptor)
            raise


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def _ask(session: requests.Session, request: requests.Request, timeout: float) -> tuple[int, bytes]:
    """Give status and body; of a body over the limit only a little more than that, to tell."""
    # requests hands it on as it is; its types do not say so.
    limits: Any = urllib3.Timeout(connect=min(_CONNECT_SECONDS, timeout), total=timeout)
    prepared = request.prepare()
    with session.send(prepared, stream=True, allow_redirects=False, timeout=limits) as response:
        if response.status_code == 200:
            return 200, _read(response, BODY_LIMIT)
        # The status says enough; what follows it only helps a reader.
        with contextlib.suppress(
            urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError
        ):
            return response.status_code, _read(response, _EXCERPT_LIMIT)
        return response.status_code, b""


def _read(response: requests.Response, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= limit and (piece := response.raw.read(65536, decode_content=False)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def cause(error: BaseException) -> str:
    """Give the innermost reason in words: the outer ones name objects and addresses that differ each time."""
    while (
        inner := error.__cause__ or next((a for a in error.args if isinstance(a, Exception)), None)
    ) is not None:
        error = inner
    words = error.strerror if isinstance(error, OSError) else None
    return _plain(words or str(error)) or type(error).__name__


def _plain(text: str) -> str:
    """Make one short line of what a server sent."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:_EXCERPT_LIMIT]).split())
    return line if len(line) <= 160 else line[:159] + "…"
