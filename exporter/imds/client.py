"""The client of IMDS for scheduled events, approvals and facts about this VM; its rate limit and pauses.

Sources: Azure's pages "Scheduled Events for Linux VMs" (requests, first-call delay, 5 requests a second) and
"Azure Instance Metadata Service" (facts about the VM). docs/decisions/0002-imds-client.md explains the
design.
"""

import logging
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec
import requests

from exporter import __version__, config
from exporter.clock import Clock
from exporter.config import AUTO, DISCOVER
from exporter.errors import ImdsError, PollOutcome, cause, one_line
from exporter.model.vm import VirtualMachine, decode_instance
from exporter.transport import LargeAnswerError, Transport
from exporter.work import Backoff

log = logging.getLogger(__name__)
T = TypeVar("T")

# How long a poll may take beyond its timeouts before it counts as hanging: for name resolution, further
# addresses of a host name, a busy machine.
_MARGIN_SECONDS = 60.0
# IMDS responds with 429 to more than 5 requests a second from a VM. The margin is for varying latency.
_REQUESTS = 5
WINDOW_SECONDS = 1.05
SHORTEST_SECONDS = 0.2
_REPEATS = 3

# The newest has recommendations for Spot VMs (Azure's page "Spot eviction risk notifications"), and is not
# known to every IMDS.
NEWEST_API_VERSION, _SAFE_API_VERSION = "2024-07-09", "2020-07-01"
_ASK_AGAIN_SECONDS = 24 * 3600.0
_UNKNOWN_VERSION = (400, 404)
_INSTANCE_API_VERSION = "2021-12-13"
_HEADERS = {
    "Metadata": "true",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"azure-scheduled-events-exporter/{__version__}",
}


class RateLimiter:
    """Allows 5 requests a second, in the order of the calls; shared by threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slots: deque[float] = deque(maxlen=_REQUESTS)

    def wait(self) -> None:
        """Wait until a request may be sent."""
        with self._lock:
            slot = now = self._clock.monotonic()
            if len(self._slots) == _REQUESTS:
                slot = max(now, self._slots[0] + WINDOW_SECONDS)
            self._slots.append(slot)
        self._clock.sleep(slot - now)


class PollPauses(Backoff):
    """The pauses between polls; used by one thread. ``interval`` is in seconds, from start to start.

    After failures they grow to at most 10 s during the first minute, and to at most 30 s after that.
    """

    def __init__(self, interval: float, *, clock: Clock, chance: Callable[[], float] = random.random) -> None:
        first = max(interval, SHORTEST_SECONDS)
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
        return max(self._interval - took, SHORTEST_SECONDS)


class ImdsClient:
    """Sends requests to IMDS at ``endpoint``, a URL without path; safe to use from several threads.

    Timeouts are in seconds, each for a whole answer. The longer of the two applies to scheduled events until
    the first success, because the first call switches the service on, which takes up to two minutes;
    ``timeout`` applies from then on, and to the facts about the VM. They do not include waiting for
    ``limiter``, which may be shared with other clients, and takes at most a second if few threads send
    requests.

    With the ``api_version`` `AUTO`, the newest version is asked for. Where IMDS does not know it, an older
    one is used, and the newest is tried again a day later.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        api_version: str = AUTO,
        timeout: float = 10.0,
        first_timeout: float = 150.0,
        clock: Clock,
        limiter: RateLimiter | None = None,
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._timeout = timeout
        self._events_timeout = max(timeout, first_timeout)
        self._clock = clock
        self._is_auto = api_version == AUTO
        # That of the last valid answer.
        self.api_version = NEWEST_API_VERSION if self._is_auto else api_version
        self._newest_at = -math.inf
        self._limiter = limiter or RateLimiter(clock)
        self._transport = Transport(self.endpoint)

    def fetch(self) -> bytes:
        """Return the document of scheduled events, for `exporter.model.documents.decode_document`.

        Raises:
            ImdsError: IMDS did not answer with status 200 and at most 8 MiB in time.
        """
        if not self._is_auto:
            return self._ask_events("GET", self.api_version)
        if self._clock.monotonic() < self._newest_at:
            return self._ask_events("GET", _SAFE_API_VERSION)
        try:
            document = self._ask_events("GET", NEWEST_API_VERSION)
        except ImdsError as error:
            if error.status not in _UNKNOWN_VERSION:
                raise
            document = self._ask_events("GET", _SAFE_API_VERSION)
            self._newest_at = self._clock.monotonic() + _ASK_AGAIN_SECONDS
            self.api_version = _SAFE_API_VERSION
            facts = {"refused": NEWEST_API_VERSION, "used": _SAFE_API_VERSION, "error": str(error)}
            log.info("IMDS does not know the newest API version", extra=facts)
        else:
            self.api_version = NEWEST_API_VERSION
        return document

    def approve(self, event_ids: Sequence[str]) -> None:
        """Approve events, which may then start before their NotBefore, for every VM in their ``Resources``.

        Raises:
            ImdsError: IMDS did not confirm it; approving again is harmless.
        """
        body = msgspec.json.encode({"StartRequests": [{"EventId": event_id} for event_id in event_ids]})
        # Approving is the same in both versions.
        version = _SAFE_API_VERSION if self._is_auto else self.api_version
        self._ask_events("POST", version, body)

    def instance(self) -> VirtualMachine:
        """Return the facts about this VM, or raise ImdsError if there is no answer with usable ones."""
        path = f"/metadata/instance?api-version={_INSTANCE_API_VERSION}"
        return decode_instance(self._exchange("GET", path, self._timeout))

    @property
    def longest_poll(self) -> float:
        """The seconds after which a `fetch` followed by `instance` counts as hanging."""
        return 2 * self._events_timeout + self._timeout + _MARGIN_SECONDS

    def expect_answers(self) -> None:
        """Wait no longer for the first answer than for later ones: IMDS has answered another client."""
        self._events_timeout = self._timeout

    def close(self) -> None:
        """Close the connections: idle ones now, the others after use. Later requests open new ones."""
        self._transport.close()

    def _ask_events(self, method: str, api_version: str, body: bytes | None = None) -> bytes:
        path = f"/metadata/scheduledevents?api-version={api_version}"
        answer = self._exchange(method, path, self._events_timeout, body)
        self._events_timeout = self._timeout
        return answer

    def _exchange(self, method: str, path: str, timeout: float, sent: bytes | None = None) -> bytes:
        """Send a request and return the body of its answer, or raise ImdsError if that has no status 200."""
        url = self.endpoint + path
        what = f"{method} {url.partition('?')[0]}"
        self._limiter.wait()
        try:
            status, body = self._transport.send(_prepare(method, url, sent), timeout)
        except TimeoutError as error:
            message = f"{what}: no answer within {timeout:g} s"
            raise ImdsError(PollOutcome.TIMEOUT, message) from error
        except LargeAnswerError as error:
            raise ImdsError(PollOutcome.INVALID_DOCUMENT, f"{what}: {error}") from error
        except Exception as error:
            # Not a list of types: a malformed URL or answer can cause any error in a parser.
            raise ImdsError(PollOutcome.CONNECTION_ERROR, f"{what}: {cause(error)}") from error
        if status != 200:
            reason = PollOutcome.THROTTLED if status == 429 else PollOutcome.HTTP_ERROR
            excerpt = one_line(body.decode(errors="replace"))
            message = f"{what}: status {status}" + (f": {excerpt}" if excerpt else "")
            raise ImdsError(reason, message, status)
        return body


@lru_cache(maxsize=4)
def _prepare(method: str, url: str, body: bytes | None = None) -> requests.PreparedRequest:
    headers = _HEADERS if body is None else _HEADERS | {"Content-Type": "application/json"}
    return requests.Request(method, url, headers=headers, data=body).prepare()


def asked_again(request: Callable[[], T], clock: Clock) -> T:
    """Return the answer to a request; while IMDS throttles, send it up to three times more, a second apart.

    It is for commands beside a running exporter: all programs on a VM share one limit.
    """
    for _ in range(_REPEATS):
        try:
            return request()
        except ImdsError as error:
            if error.reason is not PollOutcome.THROTTLED:
                raise
            clock.sleep(WINDOW_SECONDS)
    return request()


def endpoint_of(configured: str) -> str:
    """Return the configured endpoint; if that is ``discover``, discover it and log its source."""
    if configured != DISCOVER:
        return configured
    # Imported on first use: few VMs need it.
    from exporter.imds.discovery import discover_endpoint

    found = discover_endpoint()
    log.info("endpoint discovered", extra={"endpoint": found.endpoint, "source": found.source})
    return found.endpoint


def client_of(
    settings: config.Imds,
    clock: Clock,
    limiter: RateLimiter | None = None,
) -> ImdsClient:
    """Return a configured client; ``limiter`` may be shared with other clients."""
    return ImdsClient(
        endpoint_of(settings.endpoint),
        api_version=settings.api_version,
        timeout=settings.timeout,
        clock=clock,
        limiter=limiter,
    )
