"""Azure's Instance Metadata Service (IMDS): its client, rate limit and back-off, and finding its address."""

from exporter.imds.client import ImdsClient, PollPauses, RateLimiter
from exporter.imds.discovery import client_of, endpoint_of

__all__ = [
    "ImdsClient",
    "PollPauses",
    "RateLimiter",
    "client_of",
    "endpoint_of",
]
