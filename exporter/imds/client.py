"""The client of IMDS for scheduled events, approvals and facts about this VM; its rate limit and pauses.

Sources: Azure's pages "Scheduled Events for Linux VMs" (requests, first-call delay, 5 requests a second) and
"Azure Instance Metadata Service" (facts about the VM). docs/decisions/0002-imds-client.md explains the
design.
"""

import logging
import os
import random
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from exporter import __version__, config
from exporter.clock import Clock
from exporter.config import API_VERSIONS, AUTO, DISCOVER, PROGRAM
from exporter.errors import ImdsError, PollOutcome, cause, one_line
from exporter.model.vm import VirtualMachine, decode_instance
from exporter.transport import Answer, LargeAnswerError, Request, Transport
from exporter.work import Backoff

log = logging.getLogger(__name__)
T = TypeVar("T")

EVENTS_PATH = "/metadata/scheduledevents"
INSTANCE_PATH = "/metadata/instance"

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
# Asked for in this order where IMDS does not name the versions that it knows. The third has all five types.
_EVENTS_VERSIONS = (NEWEST_API_VERSION, _SAFE_API_VERSION, "2019-01-01", "2017-08-01")
# Azure Stack Hub and government clouds know older ones only. The last has what messages and metrics need.
_INSTANCE_VERSIONS = ("2021-12-13", "2019-06-01", "2017-12-01")
_UNKNOWN_VERSION = (400, 404)
_MOST_VERSIONS_ASKED = 5  # more would use up the requests that all programs on this VM share
_COMMAND_PATIENCE = 10.0  # a command does not wait any longer in silence
_HEADERS = {
    "Metadata": "true",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"{PROGRAM}/{__version__}",
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

    def after(self, error: ImdsError | None, took: float) -> float:
        """Return the seconds to pause after a poll that took ``took`` seconds, and failed with ``error``.

        After a success the next poll starts ``interval`` after the start of this one, or in 0.2 s if that is
        later; after a failure not before IMDS asks for it.
        """
        if error is not None:
            return max(self.failed(), error.retry_after)
        self.succeeded()
        return max(self._interval - took, SHORTEST_SECONDS)


class _Versions:
    """The API version for one kind of document; ``used`` is that of the last valid answer.

    Those of ``preferred`` are asked for in their order; a single one is the configured one, which is not
    replaced. Where IMDS refuses one and names its ``newest-versions``, these come first, if they are among
    ``known``. What is accepted instead of the first one is used until it is refused.
    """

    def __init__(self, preferred: Sequence[str], clock: Clock, known: Collection[str] | None = None) -> None:
        self._preferred = preferred
        self._known = known
        self._clock = clock
        self.is_fixed = len(preferred) == 1
        self.used = self._next = preferred[0]

    def ask(self, request: Callable[[str], T], patience: float) -> T:
        """Return the answer to a request for a version; no other one is tried after ``patience`` seconds.

        Raises:
            ImdsError: that of the last request.
        """
        began = self._clock.monotonic()
        version = self._next
        refused: dict[str, int] = {}
        problem = ""
        while True:
            try:
                answer = request(version)
                break
            except ImdsError as error:
                if error.status not in _UNKNOWN_VERSION:
                    raise
                refused[version] = refused.get(version, 0) + 1
                following = self._after(version, refused, error)
                is_late = self._clock.monotonic() - began > patience
                if following is None or is_late or sum(refused.values()) == _MOST_VERSIONS_ASKED:
                    self._next = self._preferred[0]
                    raise
                version, problem = following, str(error)
        if refused and version not in (self.used, self._preferred[0]):
            facts = {"refused": self._preferred[0], "used": version, "error": problem}
            log.info("IMDS does not know the newest API version", extra=facts)
        self.used = self._next = version
        return answer

    def _after(self, version: str, refused: Mapping[str, int], error: ImdsError) -> str | None:
        """Return the version to ask for next, None if there is none."""
        if self.is_fixed:
            return None
        named = [
            version for version in error.newest_versions if self._known is None or version in self._known
        ]
        newest = self._preferred[0]
        # A single 400 for a version that IMDS does know has been seen; another one would stay in use.
        is_unsure = not named or version in named
        if version in (newest, self.used) and refused[version] == 1 and is_unsure:
            return version
        # Versions are dates. Without an older one, the oldest of the newer ones differs least.
        named = sorted((version for version in named if version < newest), reverse=True) or sorted(named)
        return next((version for version in (*named, *self._preferred) if version not in refused), None)


class ImdsClient:
    """Sends requests to IMDS at ``endpoint``, a URL without path; safe to use from several threads.

    Timeouts are in seconds, each for a whole answer. The longer of the two applies to scheduled events until
    the first success, because the first call switches the service on, which takes up to two minutes;
    ``timeout`` applies from then on, and to the facts about the VM. They do not include waiting for
    ``limiter``, which may be shared with other clients, and takes at most a second if few threads send
    requests.

    With the ``api_version`` `AUTO`, the newest version is asked for. Where IMDS does not know it, an older
    one is used until it is refused. For the facts about the VM that is always so.
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
        versions = _EVENTS_VERSIONS if api_version == AUTO else (api_version,)
        self._events = _Versions(versions, clock, API_VERSIONS)
        self._instance = _Versions(_INSTANCE_VERSIONS, clock)
        self._limiter = limiter or RateLimiter(clock)
        self._statuses: dict[str, int] = {}  # those of the last answers, by path
        # By how many seconds this VM's clock was ahead of IMDS's at the last answer, negative if behind.
        self.clock_offset = 0.0
        self._transport = Transport(self.endpoint)

    def fetch(self) -> bytes:
        """Return the document of scheduled events, for `exporter.model.documents.decode_document`.

        Raises:
            ImdsError: IMDS did not answer with status 200 and at most 1 MiB in time.
        """
        return self._events.ask(self._ask_events, self._events_timeout)

    def approve(self, event_id: str, confirm: Callable[[], None] = lambda: None) -> None:
        """Approve an event, which may then start before its NotBefore, for every VM in its ``Resources``.

        ``confirm`` is called immediately before the request, after waiting for the rate limit. If it raises
        an exception, nothing is sent.

        Raises:
            ImdsError: IMDS did not confirm it; approving again is harmless.
        """
        body = msgspec.json.encode({"StartRequests": [{"EventId": event_id}]})
        # Approving is the same in all versions, and the newest may not be known.
        version = self.api_version if self._events.is_fixed else min(self.api_version, _SAFE_API_VERSION)
        self._ask_events(version, body, confirm)

    def instance(self) -> VirtualMachine:
        """Return the facts about this VM, or raise ImdsError if there is no answer with usable ones."""
        return decode_instance(self._ask_instance().body)

    def date(self) -> datetime:
        """Return the time of the clock of IMDS, by the header Date of an answer with facts about this VM.

        Raises:
            ImdsError: there is no such answer, or it has no valid one.
        """
        answer = self._ask_instance()
        at = answer.date()
        if at is None:
            value = one_line(answer.header(b"date"))
            raise ImdsError(PollOutcome.INVALID_DOCUMENT, f"not a valid Date: {value}")
        return at

    @property
    def api_version(self) -> str:
        """The API version of the last valid document; before that, the one that will be asked for."""
        return self._events.used

    @property
    def instance_api_version(self) -> str:
        """The API version of the last answer with facts about this VM."""
        return self._instance.used

    @property
    def longest_poll(self) -> float:
        """The seconds after which a `fetch` followed by `instance` counts as hanging."""
        # Another version is tried within the timeout, with a timeout of its own.
        return 2 * (self._events_timeout + self._timeout) + _MARGIN_SECONDS

    def expect_answers(self) -> None:
        """Wait no longer for the first answer than for later ones: IMDS has answered another client."""
        self._events_timeout = self._timeout

    def close(self) -> None:
        """Close the connections: idle ones now, the others after use. Later requests open new ones."""
        self._transport.close()

    def _ask_events(
        self, version: str, body: bytes | None = None, confirm: Callable[[], None] = lambda: None
    ) -> bytes:
        answer = self._exchange(EVENTS_PATH, version, self._events_timeout, body, confirm)
        self._events_timeout = self._timeout
        return answer.body

    def _ask_instance(self) -> Answer:
        return self._instance.ask(
            lambda version: self._exchange(INSTANCE_PATH, version, self._timeout), self._timeout
        )

    def _exchange(
        self,
        path: str,
        version: str,
        timeout: float,
        sent: bytes | None = None,
        confirm: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Send a request and return its answer, or raise ImdsError if that has no status 200."""
        method, url = "GET" if sent is None else "POST", self.endpoint + path
        what = f"{method} {url}"
        self._limiter.wait()
        confirm()
        try:
            headers = _HEADERS if sent is None else _HEADERS | {"Content-Type": "application/json"}
            request = Request(method, f"{url}?api-version={version}", headers, sent)
            sent_at = self._clock.now()
            answer = self._transport.send(request, timeout)
        except TimeoutError as error:
            message = f"{what}: no answer within {timeout:g} s"
            raise ImdsError(PollOutcome.TIMEOUT, message) from error
        except LargeAnswerError as error:
            raise ImdsError(PollOutcome.INVALID_DOCUMENT, f"{what}: {error}") from error
        except Exception as error:
            # Not a list of types: a malformed URL or answer can cause any error in a parser.
            raise ImdsError(PollOutcome.CONNECTION_ERROR, f"{what}: {cause(error)}") from error
        self._statuses[path] = answer.status
        if answer.status != 200:
            raise self._refusal(path, what, answer)
        self.clock_offset = answer.clock_offset(sent_at, self._clock.now())
        return answer

    def _refusal(self, path: str, what: str, answer: Answer) -> ImdsError:
        excerpt = one_line(answer.body.decode(errors="replace"))
        versions = _newest_versions(answer.body) if answer.status in _UNKNOWN_VERSION else ()
        advice = _remedy(answer.status)
        if answer.status == HTTPStatus.FORBIDDEN:
            advice += self._other_cause(path, answer)
        message = f"{what}: status {answer.status}"
        message += (f": {excerpt}" if excerpt else "") + (f"; {advice}" if advice else "")
        wait = answer.retry_after(self._clock.now())
        reason = PollOutcome.THROTTLED if answer.status == 429 else PollOutcome.HTTP_ERROR
        return ImdsError(reason, message, answer.status, retry_after=wait, newest_versions=versions)

    def _other_cause(self, path: str, answer: Answer) -> str:
        """Return what else may have answered 403; "" if it was the Metadata Security Protocol.

        Its agent closes the connection, and in practice no allowlist has one of the two paths alone.
        """
        other = EVENTS_PATH if path == INSTANCE_PATH else INSTANCE_PATH
        if self._statuses.get(other) == HTTPStatus.OK:
            sign = f"{other} is answered"
        elif not answer.is_last:
            sign = "the connection stays open"
        else:
            return ""
        remedies = "use hostNetwork" + (", or set instance.name" if path == INSTANCE_PATH else "")
        return f"; or, as {sign}, a pod-identity proxy or a network policy blocks it: {remedies}"


_SOMETHING_ELSE = "something else answers, such as a proxy or a sign-in page: correct imds.endpoint"
_AGENT = "the Guest Proxy Agent of Azure's Metadata Security Protocol"
_AGENT_LOG = "look at its log, ProxyAgent.Connection.log"
_REMEDIES = {
    401: f"IMDS asks for no password; {_SOMETHING_ELSE}; or {_AGENT} fails: {_AGENT_LOG}",
    404: "no IMDS at this address, or it does not have this document in this API version: correct "
    "imds.endpoint, leave imds.api_version at auto",
    410: "IMDS is being updated, and answers again within 70 s",
    421: f"{_AGENT} does not know which process asks: {_AGENT_LOG}",
    429: "programs on this VM together send more than the 5 requests a second that IMDS answers",
}
_FAILING = f"IMDS fails for now, or {_AGENT} does; if it lasts, {_AGENT_LOG}"


def _remedy(status: int) -> str:
    """Return the likely cause of a status and what to do about it; "" if the answer itself has to tell.

    Sources: Azure's pages "Azure Instance Metadata Service" (statuses) and "Metadata Security Protocol", and
    the source of its Guest Proxy Agent (403, 421 and those from 500 on).
    """
    if status == HTTPStatus.FORBIDDEN:
        return (
            "the Metadata Security Protocol refuses what its allowlist (InVMAccessControlProfile) does not "
            f"name: allow {EVENTS_PATH} and {INSTANCE_PATH} to {_identity()}"
        )
    if 300 <= status < 400:
        return f"IMDS does not redirect; {_SOMETHING_ELSE}"
    return _FAILING if status >= 500 else _REMEDIES.get(status, "")


@cache
def _identity() -> str:
    """Return the user and the executable of this process as the Guest Proxy Agent knows them."""
    return f"the executable {os.path.realpath(sys.executable)} of the user {_user()}"


def _user() -> str:
    if sys.platform == "win32":
        # Not the environment's USERNAME, which for a service is the name of the machine.
        try:
            return os.getlogin()
        except OSError:
            return "of this process"
    else:
        import pwd

        try:
            return pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            return f"with uid {os.geteuid()}"


class _Refusal(msgspec.Struct):
    newest_versions: list[Any] = msgspec.field(name="newest-versions", default_factory=list)


def _newest_versions(body: bytes) -> Sequence[str]:
    """Return the API versions that a refusal of IMDS names."""
    try:
        named = msgspec.json.decode(body, type=_Refusal).newest_versions
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    return [
        version
        for version in named
        if isinstance(version, str) and re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", version)
    ]


def asked_again(request: Callable[[], T], clock: Clock) -> T:
    """Return the answer to a request; while IMDS throttles, send it up to three times more, a second apart.

    If IMDS asks for a longer pause, that is observed, but no more than 10 s are waited. It is for commands
    beside a running exporter: all programs on a VM share one limit.
    """
    for _ in range(_REPEATS):
        try:
            return request()
        except ImdsError as error:
            pause = max(WINDOW_SECONDS, error.retry_after)
            if error.reason is not PollOutcome.THROTTLED or pause > _COMMAND_PATIENCE:
                raise
            clock.sleep(pause)
    return request()


def endpoint_of(configured: str) -> str:
    """Return the configured endpoint; if that is ``discover``, discover it."""
    if configured != DISCOVER:
        return configured
    # Imported on first use: few VMs need it.
    from exporter.imds.discovery import discover_endpoint

    return discover_endpoint()


def client_of(settings: config.Imds, clock: Clock, limiter: RateLimiter | None = None) -> ImdsClient:
    """Return a configured client; ``limiter`` may be shared with other clients."""
    return ImdsClient(
        endpoint_of(settings.endpoint),
        api_version=settings.api_version,
        timeout=settings.timeout,
        clock=clock,
        limiter=limiter,
    )
