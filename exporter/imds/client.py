"""The client of Azure's Instance Metadata Service: the document, approvals, and facts about this VM.

Sources: Azure's pages "Scheduled Events for Linux VMs" (requests, first-call delay, 5 requests a second) and
"Azure Instance Metadata Service" (facts about the VM).
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import requests

from exporter import __version__
from exporter.clock import Clock
from exporter.errors import ImdsError, PollOutcome
from exporter.imds.ratelimit import RateLimiter
from exporter.transport import Transport

# Names in documents have the same limit.
_LONGEST_NAME = 256

_INSTANCE_API_VERSION = "2021-12-13"
_HEADERS = {
    "Metadata": "true",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"azure-scheduled-events-exporter/{__version__}",
}


class InstanceFacts(msgspec.Struct, frozen=True, rename="camel"):
    """What IMDS knows of this VM; "" where it says nothing. ``name`` is what events' ``Resources`` hold."""

    name: str = ""
    vm_id: str = ""
    resource_id: str = ""
    resource_group_name: str = ""
    subscription_id: str = ""
    location: str = ""
    zone: str = ""
    vm_scale_set_name: str = ""
    vm_size: str = ""
    platform_fault_domain: str = ""
    platform_update_domain: str = ""


class _InstanceAnswer(msgspec.Struct):
    compute: dict[str, Any] | None = None


class ImdsClient:
    """Asks IMDS at ``endpoint``, a URL without path; safe to use from several threads.

    Timeouts are in seconds and for a whole request: the longer of the two until the first success about
    scheduled events, because the first call switches the service on, which takes up to two minutes; then, and
    for the facts about the VM, ``timeout``.
    ``limiter`` may be shared with the client that this one replaces, so that both keep to one rate. Waiting
    for it, a second at most where few threads ask, comes on top.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        api_version: str = "2020-07-01",
        timeout: float = 10.0,
        first_timeout: float = 150.0,
        clock: Clock,
        limiter: RateLimiter | None = None,
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._timeout = timeout
        self._events_timeout = max(timeout, first_timeout)
        self._events_url = f"{self.endpoint}/metadata/scheduledevents?api-version={api_version}"
        self._limiter = limiter or RateLimiter(clock)
        self._transport = Transport()

    def fetch(self) -> bytes:
        """Give the document of scheduled events, as bytes that `exporter.events.decode_document` takes.

        Raises:
            ImdsError: IMDS did not answer with status 200 and at most 8 MiB in time.
        """
        return self._ask_events(requests.Request("GET", self._events_url, headers=_HEADERS))

    def approve(self, event_ids: Sequence[str]) -> None:
        """Let events proceed before their NotBefore, for every VM in their ``Resources``.

        Raises:
            ImdsError: IMDS did not say that it took them; approving again does no harm.
        """
        body = msgspec.json.encode({"StartRequests": [{"EventId": event_id} for event_id in event_ids]})
        headers = _HEADERS | {"Content-Type": "application/json"}
        self._ask_events(requests.Request("POST", self._events_url, headers=headers, data=body))

    def instance(self) -> InstanceFacts:
        """Give the facts about this VM.

        Raises:
            ImdsError: IMDS did not answer, or with something else.
        """
        url = f"{self.endpoint}/metadata/instance?api-version={_INSTANCE_API_VERSION}"
        self._limiter.wait()
        body = self._transport.exchange(requests.Request("GET", url, headers=_HEADERS), self._timeout)
        return _decode_instance(body)

    def close(self) -> None:
        """Close the connections; requests under way end as they would have."""
        self._transport.close()

    def _ask_events(self, request: requests.Request) -> bytes:
        self._limiter.wait()
        body = self._transport.exchange(request, self._events_timeout)
        self._events_timeout = self._timeout
        return body


def _decode_instance(body: bytes) -> InstanceFacts:
    try:
        answer = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"), type=_InstanceAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"no document about this VM: {error}"
        raise ImdsError(PollOutcome.INVALID_DOCUMENT, message) from error
    compute = answer.compute or {}
    fields = msgspec.structs.fields(InstanceFacts)
    facts = InstanceFacts(**{field.name: _text(compute.get(field.encode_name)) for field in fields})
    if len(facts.name) > _LONGEST_NAME:
        message = f"compute.name has {len(facts.name)} characters; {_LONGEST_NAME} are possible"
        raise ImdsError(PollOutcome.INVALID_DOCUMENT, message)
    return facts


def _text(value: object) -> str:
    """Take numbers as text: fault domains have been both; what is neither tells nothing."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
