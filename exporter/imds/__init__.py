"""Azure's Instance Metadata Service (IMDS): its client, rate limit and back-off, and finding its address."""

from exporter.imds.client import (
    NEWEST_API_VERSION,
    ImdsClient,
    PollPauses,
    RateLimiter,
    client_of,
    endpoint_of,
)

__all__ = [
    "NEWEST_API_VERSION",
    "ImdsClient",
    "PollPauses",
    "RateLimiter",
    "client_of",
    "endpoint_of",
]
