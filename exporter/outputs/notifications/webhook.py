"""Webhooks: POST a message as a CloudEvent (https://cloudevents.io, version 1.0, structured JSON).

A target can have a body of its own instead, by the user's template.
"""

import contextlib
import platform

import msgspec
import requests
from urllib3.exceptions import HTTPError

from exporter.config.addresses import Address
from exporter.model.messages import AnyMessage, Delivery, WatchMessage
from exporter.outputs.notifications import failures
from exporter.outputs.notifications.protocol import CONNECT_SECONDS, READ_SECONDS

_MOST_ANSWER = 2000
_CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
_OWN_CONTENT_TYPE = "application/json"


def cloud_event(message: AnyMessage) -> bytes:
    """Return the CloudEvent of a message; its id is the same for every repetition."""
    names = ["transition", "at", "instance", "severity"]
    if isinstance(message, WatchMessage):
        subject, facts = message.instance or message.host, {}
        names += ["since", "error"]
    else:
        subject, facts = message.event.id, msgspec.to_builtins(message.event)
        names += ["changes", "detail"]
    facts |= {name: getattr(message, name) for name in names}
    event = {
        "specversion": "1.0",
        "type": f"scheduled_event.{message.transition}",
        "source": message.vm.resource_id or message.instance or platform.node(),
        # After a loss of the state the numbers begin again.
        "id": f"{message.key}/{message.sequence}/{message.transition}",
        "time": message.at,
        "datacontenttype": "application/json",
        "data": facts,
    }
    return msgspec.json.encode(event | ({"subject": subject} if subject else {}))


def send(address: Address, message: AnyMessage, traceparent: str, own_body: str = "") -> Delivery:
    """Make one attempt, with the user's own body if there is one; a refusal's first bytes have the reason."""
    content_type = (address.content_type or _OWN_CONTENT_TYPE) if own_body else _CONTENT_TYPE
    headers = {"Content-Type": content_type} | ({"traceparent": traceparent} if traceparent else {})
    with requests.post(
        address.webhook,
        data=own_body.encode() or cloud_event(message),
        headers=address.headers | headers,
        timeout=(CONNECT_SECONDS, READ_SECONDS),
        allow_redirects=False,
        stream=True,
    ) as response:
        if 200 <= response.status_code < 300:
            return Delivery(delivered=True)
        body = b""
        # What arrives at once: the status stands, whatever follows.
        if "content-length" in response.headers:
            with contextlib.suppress(OSError, HTTPError):
                body = response.raw.read1(_MOST_ANSWER, decode_content=True)
        words = failures.said(body, (address.webhook, *address.headers.values()))
        return failures.of_status(response.status_code, words, response.headers.get("retry-after", ""))
