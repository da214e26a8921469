"""The client of IMDS for scheduled events, approvals and facts about this VM; its rate limit and pauses.

Sources: Azure's pages "Scheduled Events for Linux VMs" (requests, first-call delay, 5 requests a second) and
"Azure Instance Metadata Service" (facts about the VM). docs/decisions/0002-imds-client.md explains the
design.
"""

import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import msgspec
import requests
import urllib3
from requests.adapters import HTTPAdapter

from exporter import __version__
from exporter.clock import Clock
from exporter.errors import ImdsError, PollOutcome, cause, innermost, one_line
from exporter.model.vm import VirtualMachine, decode_instance
from exporter.work import Backoff, Watchdog

BODY_LIMIT = 8 * 1024 * 1024
_EXCERPT_LIMIT = 4096
_PIECE_BYTES = 65536
# Connection times of 6 s have been reported; after 10 s no answer is to be expected.
_CONNECT_SECONDS = 10.0
# How long a request may take beyond its timeouts before it counts as hanging: for name resolution, further
# addresses of a host name, a busy machine.
_MARGIN_SECONDS = 30.0
# IMDS responds with 429 to more than 5 requests a second from a VM. The margin is for varying latency.
_REQUESTS = 5
_WINDOW_SECONDS = 1.05
_SHORTEST_SECONDS = 0.2

_INSTANCE_API_VERSION = "2021-12-13"
_HEADERS = {
    "Metadata": "true",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"azure-scheduled-events-exporter/{__version__}",
}


class RateLimiter:
    """Allows 5 requests a second, in the order of the calls; shared by threads.

    ``wait`` sleeps for a number of seconds; if it returns early, the request is abandoned.
    """

    def __init__(self, clock: Clock, wait: Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._slots: deque[float] = deque(maxlen=_REQUESTS)

    def wait(self) -> None:
        """Wait until a request may be sent.

        Raises:
            ImdsError: the wait was interrupted; the reason is ``THROTTLED``.
        """
        with self._lock:
            slot = self._clock.monotonic()
            if len(self._slots) == _REQUESTS:
                slot = max(slot, self._slots[0] + _WINDOW_SECONDS)
            self._slots.append(slot)
        # With a coarse clock, a full sleep can appear to be slightly too short.
        for _ in range(3):
            left = slot - self._clock.monotonic()
            if left <= 0:
                return
            self._wait(left)
        if self._clock.monotonic() < slot:
            raise ImdsError(
                PollOutcome.THROTTLED, "not sent: interrupted while keeping to 5 requests a second"
            )


class PollPauses(Backoff):
    """The pauses between polls; used by one thread. ``interval`` is in seconds, from start to start.

    After failures they grow to at most 10 s during the first minute, and to at most 30 s after that.
    """

    def __init__(self, interval: float, *, clock: Clock, chance: Callable[[], float] = random.random) -> None:
        first = max(interval, _SHORTEST_SECONDS)
        super().__init__(clock, first=first, early=60.0, early_longest=10.0, longest=30.0, chance=chance)
        self._interval = interval

    def after(self, success: bool, took: float) -> float:
        """Return the seconds to pause after a poll that took ``took`` seconds.

        After a success the next poll starts ``interval`` after the start of this one, or in 0.2 s if that is
        later.
        """
        if not success:
            return self.failed()
        self.succeeded()
        return max(self._interval - took, _SHORTEST_SECONDS)


class _Adapter(HTTPAdapter):
    """Sends requests to one server, and skips the per-request work whose result never changes here.

    It overrides only methods that requests documents for subclasses. Environment variables, redirects and
    cookies are handled by `requests.Session`, which is not used; no proxy is ever passed in.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pool: Any = None

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return the pool of connections to the server."""
        pool = self._pool
        if pool is None:
            pool = self._pool = super().get_connection_with_tls_context(*args, **kwargs)
        return pool

    def request_url(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> str:
        """Return the path, as there is no proxy."""
        return request.path_url

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        """Return status and body; cookies and encoding are not used."""
        response = requests.Response()
        response.status_code, response.raw, response.request = resp.status, resp, req
        return response

    def close(self) -> None:
        """Close idle connections; later requests open new ones."""
        self._pool = None
        super().close()


class ImdsClient:
    """Sends requests to IMDS at ``endpoint``, a URL without path; safe to use from several threads.

    Each request in progress has its own connection, so that a slow fetch does not delay an approval.

    Timeouts are in seconds. The longer of the two applies to scheduled events until the first success,
    because the first call switches the service on, which takes up to two minutes; ``timeout`` applies from
    then on, and to the facts about the VM. A response that is not complete by then is abandoned when its next
    part arrives, or when nothing has arrived for the same time again; connecting to each further address of a
    host name may take another 10 s. Only the head of a response, and trailers after a chunked body, have no
    overall deadline: ``watchdog`` detects those that never end.

    ``limiter`` and ``watchdog`` may be shared with other clients. The timeouts do not include waiting for the
    limiter, which takes at most a second if few threads send requests.
    """

    def __init__(  # noqa: PLR0913  # all but the endpoint by name, and most have defaults
        self,
        endpoint: str,
        *,
        api_version: str = "2020-07-01",
        timeout: float = 10.0,
        first_timeout: float = 150.0,
        clock: Clock,
        limiter: RateLimiter | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._timeout = timeout
        self._events_timeout = max(timeout, first_timeout)
        self._events_url = f"{self.endpoint}/metadata/scheduledevents?api-version={api_version}"
        self._limiter = limiter or RateLimiter(clock)
        self._watchdog = watchdog or Watchdog(clock)
        self._adapter = _Adapter()
        self._closed = False

    def fetch(self) -> bytes:
        """Return the document of scheduled events, for `exporter.model.documents.decode_document`.

        Raises:
            ImdsError: IMDS did not answer with status 200 and at most 8 MiB in time.
        """
        return self._ask_events(self._events_request)

    def approve(self, event_ids: Sequence[str]) -> None:
        """Approve events, which may then start before their NotBefore, for every VM in their ``Resources``.

        Raises:
            ImdsError: IMDS did not confirm it; approving again is harmless.
        """
        body = msgspec.json.encode({"StartRequests": [{"EventId": event_id} for event_id in event_ids]})
        self._ask_events(_prepare("POST", self._events_url, body))

    def instance(self) -> VirtualMachine:
        """Return the facts about this VM.

        Raises:
            ImdsError: there is no answer, or none with usable facts.
        """
        url = f"{self.endpoint}/metadata/instance?api-version={_INSTANCE_API_VERSION}"
        return decode_instance(self._exchange(_prepare("GET", url), self._timeout))

    @property
    def longest_poll(self) -> float:
        """The seconds after which a `fetch` followed by `instance` counts as hanging."""
        return _longest(self._events_timeout) + _longest(self._timeout)

    def close(self) -> None:
        """Close the connections: idle ones now, the others after use. Later requests open new ones."""
        self._closed = True
        self._adapter.close()

    @cached_property
    def _events_request(self) -> requests.PreparedRequest:
        return _prepare("GET", self._events_url)

    def _ask_events(self, request: requests.PreparedRequest) -> bytes:
        body = self._exchange(request, self._events_timeout)
        self._events_timeout = self._timeout
        return body

    def _exchange(self, request: requests.PreparedRequest, timeout: float) -> bytes:
        """Send a request and return the body of its answer.

        Raises:
            ImdsError: there is no answer with status 200; `PollOutcome` has the possible reasons.
        """
        what = f"{request.method} {(request.url or '').partition('?')[0]}"
        self._limiter.wait()
        try:
            with self._watchdog.limit(what, _longest(timeout)):
                status, body = self._send(request, timeout)
        except Exception as error:
            # Not a list of types: a malformed answer can cause any error in the parsers of the libraries.
            if isinstance(innermost(error), TimeoutError):
                message = f"{what}: no answer within {timeout:g} s"
                raise ImdsError(PollOutcome.TIMEOUT, message) from error
            raise ImdsError(PollOutcome.CONNECTION_ERROR, f"{what}: {cause(error)}") from error
        finally:
            if self._closed:
                self._adapter.close()
        if status != 200:
            reason = PollOutcome.THROTTLED if status == 429 else PollOutcome.HTTP_ERROR
            excerpt = one_line(body.decode(errors="replace"))
            raise ImdsError(reason, f"{what}: status {status}" + (f": {excerpt}" if excerpt else ""))
        if len(body) > BODY_LIMIT:
            limit = f"{BODY_LIMIT // 1024**2} MiB"
            raise ImdsError(PollOutcome.INVALID_DOCUMENT, f"{what}: the answer is over {limit}")
        return body

    def _send(self, request: requests.PreparedRequest, timeout: float) -> tuple[int, bytes]:
        """Return status and body; a body over the limit is read only slightly beyond it."""
        deadline = time.monotonic() + timeout
        with self._adapter.send(request, stream=True, timeout=_timeouts(timeout)) as response:
            if response.status_code == 200:
                return 200, _read(response, BODY_LIMIT, deadline)
            # The status is sufficient; the body only adds detail for the log.
            with contextlib.suppress(Exception):
                return response.status_code, _read(response, _EXCERPT_LIMIT, deadline)
            return response.status_code, b""


@cache
def _timeouts(seconds: float) -> Any:
    # Documented by requests, but missing from its types.
    return urllib3.Timeout(connect=min(_CONNECT_SECONDS, seconds), total=seconds)


def _longest(timeout: float) -> float:
    """Return the seconds after which a request with this timeout counts as hanging."""
    # The last read may begin just before the deadline, and lasts up to the timeout itself.
    return 2 * timeout + _MARGIN_SECONDS


def _prepare(method: str, url: str, body: bytes | None = None) -> requests.PreparedRequest:
    headers = _HEADERS if body is None else _HEADERS | {"Content-Type": "application/json"}
    try:
        return requests.Request(method, url, headers=headers, data=body).prepare()
    except ValueError as error:
        message = f"{method} {url.partition('?')[0]}: {cause(error)}"
        raise ImdsError(PollOutcome.CONNECTION_ERROR, message) from error


def _read(response: requests.Response, limit: int, deadline: float) -> bytes:
    """Return the body, or the start of one that is longer than ``limit``.

    Raises:
        TimeoutError: ``deadline``, on the monotonic clock, has passed.
    """
    body = bytearray()
    # Unlike iter_content(), read1() returns whatever has arrived, so that a slow body is detected.
    while len(body) <= limit and (piece := response.raw.read1(_PIECE_BYTES, decode_content=False)):
        body += piece
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(body)
