"""``/metrics``: what Prometheus scrapes."""

import gzip
from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, gzip_accepted
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from exporter.web.http import Request, Response

# Below this a compressed answer fits no fewer packets.
SMALLEST_TO_COMPRESS = 1400
# Level 9, gzip's default, takes several times as long for a few per cent.
COMPRESSION_LEVEL = 3


def metrics(registry: CollectorRegistry, request: Request) -> Response:
    """Render the registry in the format, and under the compression, that the client asks for.

    ``name[]``, repeatable, leaves only the named series, as prometheus_client's own server has it.
    """
    encode: Callable[[Collector], bytes]
    try:
        encode, content_type = choose_encoder(request.header(b"accept"))
    except TypeError:  # how prometheus_client meets a format's version that is not a number
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    if content_type.startswith("application/openmetrics-text"):
        # Our names are the same under every escaping scheme, and this one takes half the time.
        encode = partial(openmetrics.generate_latest, escaping=openmetrics.ALLOWUTF8)
    names = parse_qs(request.query).get("name[]")
    body = encode(registry.restricted_registry(names) if names else registry)
    headers: tuple[tuple[str, str], ...] = (("vary", "accept, accept-encoding"),)
    if len(body) >= SMALLEST_TO_COMPRESS and gzip_accepted(request.header(b"accept-encoding")):
        body = gzip.compress(body, COMPRESSION_LEVEL, mtime=0)
        headers = (("content-encoding", "gzip"), *headers)
    return Response(body, content_type, headers=headers)
