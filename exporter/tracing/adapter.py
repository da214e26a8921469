"""The transport of exported spans: what a receiver answers is bounded in bytes and in time."""

import contextlib
import io
import socket
import threading
import zlib
from http import HTTPStatus
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from exporter.errors import cause

# Of an answer, unpacked; one of the protocol has a few hundred bytes.
_ANSWER_LIMIT = 64 * 1024
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class ObservingAdapter(HTTPAdapter):
    """A transport adapter that bounds answers, and records the latest outcome for logs and status.

    The SDK's exporter returns only success or failure, and would read an answer of any size.
    ``certificate`` is the file with the certificates to trust; requests prefers ``REQUESTS_CA_BUNDLE`` to a
    session's setting.
    """

    def __init__(self, certificate: str = "") -> None:
        super().__init__()
        self._trust = {"verify": certificate} if certificate else {}
        self.reset()

    def reset(self) -> None:
        self.status: int | None = None
        self.answer = b""
        self.problem = ""
        self.sock: socket.socket | None = None

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return a pool of connections whose sockets are known here."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = _observed(type(pool).ConnectionCls, self)
        return pool

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request, and return the start of its answer, which has to end within the timeout."""
        self.reset()
        request.headers["Accept-Encoding"] = "identity"
        deadline = threading.Timer(kwargs["timeout"], self._abort, [kwargs["timeout"]])
        deadline.daemon = True
        deadline.start()
        try:
            with super().send(request, *args, **(kwargs | self._trust)) as response:
                self.answer = _start_of(response)
            self._check_complete()
            self.status, response.raw = response.status_code, io.BytesIO(self.answer)
        except Exception as error:
            self.problem = self.problem or cause(error)
            raise
        finally:
            deadline.cancel()
        if not HTTPStatus.OK <= response.status_code < HTTPStatus.MULTIPLE_CHOICES:
            self.problem = f"the receiver answered with status {self.status}"
        return response

    def _check_complete(self) -> None:
        # For http.client, the end of a connection ends head and trailers like an empty line does.
        if self.problem:
            raise TimeoutError(self.problem)

    def _abort(self, seconds: float) -> None:
        # A socket's timeout applies to each read: a receiver that sends a byte now and then never exceeds it.
        self.problem = f"timed out: no complete answer within {seconds:.3g} s"
        with contextlib.suppress(OSError):
            if self.sock is not None:
                self.sock.shutdown(socket.SHUT_RDWR)


def _observed(base: Any, adapter: ObservingAdapter) -> Any:
    """Return a class of urllib3's connections whose socket ``adapter`` knows."""

    def connect(connection: Any) -> None:
        base.connect(connection)
        adapter.sock = connection.sock

    return type(base.__name__, (base,), {"connect": connect})


def _start_of(response: requests.Response) -> bytes:
    """Return the first 64 KiB of an answer's body, unpacked."""
    packed = bytearray()
    while len(packed) < _ANSWER_LIMIT and (piece := response.raw.read1(_ANSWER_LIMIT, decode_content=False)):
        packed += piece
    if not response.headers.pop("Content-Encoding", ""):
        return bytes(packed[:_ANSWER_LIMIT])
    with contextlib.suppress(zlib.error):  # the status is sufficient
        return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(packed, _ANSWER_LIMIT)
    return b""
