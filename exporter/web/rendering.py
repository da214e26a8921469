"""Rendering of large responses, off the event loop: one at a time, shared by requests for the same one."""

import asyncio
import gzip
import re
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, gzip_accepted
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from exporter.serving.http import Request, Response

# Fewer than the connections that the server keeps, so that probes always find room.
MOST_IN_WORK = 64
# gzip's default, 9, takes several times as long to save a few per cent more.
_LEVEL = 3
# Below this size compression does not save a packet.
_PACKET_BYTES = 1400
_WEIGHT = re.compile(r";\s*[qQ]\s*=\s*([01](?:\.[0-9]{0,3})?)\s*(?:;|$)")


Encode = Callable[[Collector], bytes]


class TooManyRequestsError(Exception):
    """So many requests are in work that another one is refused."""


class Renderer:
    """Renders responses on a thread of its own.

    Requests that arrive while others are in work share the next rendering of what they ask for, so that each
    response is at least as new as its request, and a flood costs little more than one client.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "render")
        self._turn = asyncio.Lock()
        self._queued: dict[Hashable, asyncio.Task[Response]] = {}
        self._in_work = 0

    async def render(self, what: Hashable, function: Callable[[], Response]) -> Response:
        """Return the result of a call of ``function`` begun after this one, or raise TooManyRequestsError."""
        if self._in_work >= MOST_IN_WORK:
            raise TooManyRequestsError
        task = self._queued.get(what)
        if task is None:
            task = self._queued[what] = asyncio.create_task(self._run(what, function))
        self._in_work += 1
        try:
            # A client that disconnects must not cancel the rendering for the others.
            return await asyncio.shield(task)
        finally:
            self._in_work -= 1

    async def _run(self, what: Hashable, function: Callable[[], Response]) -> Response:
        async with self._turn:
            del self._queued[what]
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def _by_weight(header: str) -> str:
    """Return what a client accepts, the most wanted first, without what it refuses (RFC 9110, 12.4.2).

    prometheus_client does not look at weights.
    """

    def weight(entry: str) -> float:
        found = _WEIGHT.search(entry)
        return float(found[1]) if found else 1.0

    return ",".join(sorted(filter(weight, header.split(",")), key=weight, reverse=True))


class _Family(NamedTuple):
    """A collector of one family."""

    family: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.family,)


def exposition(collector: Collector, encode: Encode) -> bytes:
    """Return metrics as text, encoded family by family: one emoji makes a text take four times as much."""
    end = encode(CollectorRegistry())
    return b"".join(encode(_Family(one)).removesuffix(end) for one in collector.collect()) + end


def scrape(registry: CollectorRegistry, request: Request) -> tuple[Hashable, Callable[[], Response]]:
    """Return the form of the metrics that a request asks for, and the function that renders it.

    ``name[]``, repeatable, selects series by name, as in prometheus_client's own server.
    """
    encode: Encode
    try:
        encode, content_type = choose_encoder(_by_weight(request.header(b"accept")))
    except TypeError:  # raised by prometheus_client for a format version that is not a number
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    if content_type.startswith("application/openmetrics-text"):
        # Our names are the same under every escaping scheme, and this one takes half the time.
        encode = partial(openmetrics.generate_latest, escaping=openmetrics.ALLOWUTF8)
    compressed = gzip_accepted(_by_weight(request.header(b"accept-encoding")))
    names = tuple(sorted(set(parse_qs(request.query).get("name[]", ()))))

    def render() -> Response:
        data = exposition(registry.restricted_registry(names) if names else registry, encode)
        headers = {"vary": "accept, accept-encoding"}
        if compressed and len(data) >= _PACKET_BYTES:
            data = gzip.compress(data, _LEVEL, mtime=0)
            headers["content-encoding"] = "gzip"
        return Response(data, content_type, headers=headers)

    return (content_type, compressed, names), render
