"""``/metrics``: the metrics in the form that a client asks for."""

import gzip
import re
from collections.abc import Callable, Hashable
from functools import partial
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, gzip_accepted
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from exporter.serving.http import Request, Response

# gzip's default, 9, takes several times as long to save a few per cent more.
_LEVEL = 3
# Below this size compression does not save a packet.
_PACKET_BYTES = 1400
_WEIGHT = re.compile(r";\s*[qQ]\s*=\s*([01](?:\.[0-9]{0,3})?)\s*(?:;|$)")


def _by_weight(header: str) -> str:
    """Return what a client accepts, the most wanted first, without what it refuses (RFC 9110, 12.4.2).

    prometheus_client does not look at weights.
    """

    def weight(entry: str) -> float:
        found = _WEIGHT.search(entry)
        return float(found[1]) if found else 1.0

    return ",".join(sorted(filter(weight, header.split(",")), key=weight, reverse=True))


def scrape(registry: CollectorRegistry, request: Request) -> tuple[Hashable, Callable[[], Response]]:
    """Return the form of the metrics that a request asks for, and the function that renders it.

    ``name[]``, repeatable, selects series by name, as in prometheus_client's own server.
    """
    encode: Callable[[Collector], bytes]
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
        data = encode(registry.restricted_registry(names) if names else registry)
        headers = {"vary": "accept, accept-encoding"}
        if compressed and len(data) >= _PACKET_BYTES:
            data = gzip.compress(data, _LEVEL, mtime=0)
            headers["content-encoding"] = "gzip"
        return Response(data, content_type, headers=headers)

    return (content_type, compressed, names), render
