"""The W3C header ``traceparent`` on what Apprise sends over HTTP: a receiver's work joins the event's trace.

Few of Apprise's services let a header be given. All make a session of requests for every message, whose
headers begin as requests' own defaults; these are where it is put, and only for the send that it belongs to.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from exporter.lean import requests

_traceparent = ContextVar("traceparent", default="")
_default_headers = requests.sessions.default_headers


@contextlib.contextmanager
def traced(traceparent: str) -> Iterator[None]:
    """Have requests that are made on this thread carry the header until the end of the block; "" for none."""
    token = _traceparent.set(traceparent)
    try:
        yield
    finally:
        _traceparent.reset(token)


def install() -> None:
    """Make requests look for the header, from now on; as often as one likes."""
    requests.sessions.default_headers = _headers


def _headers() -> "requests.structures.CaseInsensitiveDict[str]":
    headers = _default_headers()
    traceparent = _traceparent.get()
    if traceparent:
        headers["traceparent"] = traceparent
    return headers
